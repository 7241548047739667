"""The broker's whole decision logic, without input or output.

`stentor.node.core` is what brokers run, in live networks and in simulated ones, made of the parts
in `stentor.node.parts`.
"""
