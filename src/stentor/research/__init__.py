"""Routing of the literature that no broker runs: for the simulator, under the contract of routers.

What is here either gives no guarantee that an operator could rely on (gossip), or fixes beforehand
what must be able to change while a service runs (boxes, key mappings, multicast plans, cells).
"""
