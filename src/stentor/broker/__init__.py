"""A live broker: `Broker` runs one in an event loop, `Settings` says how."""

from typing import TYPE_CHECKING, Any

from stentor.broker.settings import Grant, Limits, Retention, Settings, TlsFiles

if TYPE_CHECKING:
    from stentor.broker.host import Broker

__all__ = ["Broker", "Grant", "Limits", "Retention", "Settings", "TlsFiles"]


def __getattr__(name: str) -> Any:
    # The broker brings the matching engine with it, which commands that only read settings can do
    # without.
    if name == "Broker":
        try:
            from stentor.broker.host import Broker
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"a broker needs {error.name}, which is not installed: "
                "pip install 'stentor[broker]'",
                name=error.name,
            ) from error
        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
