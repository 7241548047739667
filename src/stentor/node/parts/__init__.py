"""The parts of a broker's core, each with its own state; `stentor.node.core` puts them together."""
