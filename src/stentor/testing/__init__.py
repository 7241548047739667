"""Brokers for tests: real ones, in the test's own process, with time that passes when it is told.

>>> import stentor.testing
>>> with stentor.testing.broker() as broker:
...     bus = broker.connect()
...     with bus.subscribe("price > 100") as quotes:
...         _ = bus.publish({"price": 120}, deliver_at="1h")
...         broker.assert_nothing_delivered()
...         broker.advance("1h")
...         print(broker.assert_delivered({"price": 120})["price"])
120

With pytest, the fixture `stentor_broker` is such a broker. The page is docs/testing.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stentor.testing.brokers import AsyncTestBroker, TestBroker, broker
    from stentor.testing.notes import Delivery

__all__ = ["AsyncTestBroker", "Delivery", "TestBroker", "broker"]


def __getattr__(name: str) -> Any:
    """Everything is loaded when it is asked for: a run of pytest may need no broker."""
    if name not in __all__:
        raise AttributeError(f"module 'stentor.testing' has no attribute {name!r}")
    from importlib import import_module

    module = "notes" if name == "Delivery" else "brokers"
    try:
        return getattr(import_module(f"stentor.testing.{module}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"a broker for tests needs what brokers need ({error}): pip install 'stentor[broker]'"
        ) from error
