"""Whole networks of brokers in one process, with virtual links and every legal schedule.

>>> net = Network.tree([(1, 2), (1, 3)], routing="covering")
>>> a, b = net.client(at=2), net.client(at=3)
>>> s = b.subscribe("x > 1")
>>> net.settle()
>>> _ = a.publish({"x": 2}), a.publish({"x": 0})
>>> net.settle()
>>> [dict(n) for n in b.received]
[{'x': 2}]
"""

from stentor.simulation.client import Client
from stentor.simulation.counters import Counters
from stentor.simulation.network import Network

__all__ = ["Client", "Counters", "Network"]
