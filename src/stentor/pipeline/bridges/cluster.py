"""A Kafka cluster: how its client is set up, and whether it answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final

from stentor.errors import PipelineError
from stentor.pipeline.steps.options import secret

#: Kafka's client would log to stderr by itself; what matters reaches `Contact`.
_log: Final = logging.getLogger("stentor.kafka")
_log.setLevel(logging.CRITICAL)

#: Memory for records that were fetched ahead, in KiB.
_FETCHED_AHEAD: Final = 32 * 1024
#: Milliseconds after which the partitions of a process that was killed go to another.
_SESSION: Final = 10_000
#: Milliseconds at most between two attempts to connect, so that a cluster is found soon again.
_LONGEST_PAUSE: Final = 2_000


def check_client() -> None:
    """`PipelineError` that says what to install, if there is no client of Kafka."""
    if find_spec("confluent_kafka") is None:
        raise PipelineError("a bridge to Kafka needs its client: pip install 'stentor[kafka]'")


class Contact:
    """Whether a cluster answers. Kafka's client tries on by itself; people have to be told."""

    def __init__(self, servers: list[str], tell: Callable[[str | None], None]) -> None:
        """`tell` is called with what is wrong, and with None when all is well again."""
        self._servers = ", ".join(servers)
        self._tell = tell
        self.lost = False
        #: What no trying heals.
        self.fatal: str | None = None

    def error(self, error: Any) -> None:
        """The client's callback; it runs whenever the client is asked for something."""
        from confluent_kafka import KafkaError

        if error.fatal():
            self.fatal = error.str()
        elif error.code() in (
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TRANSPORT,
            KafkaError._RESOLVE,
            KafkaError._AUTHENTICATION,
            KafkaError._SSL,
        ):
            self.problem(error.str())

    def problem(self, text: str) -> None:
        """Something does not work, and is tried again."""
        if not self.lost:
            self.lost = True
            self._tell(f"Kafka at {self._servers} does not answer: {text}")

    def well(self) -> None:
        """It has answered."""
        if self.lost:
            self.lost = False
            self._tell(None)


def client_config(options: Mapping[str, Any], contact: Contact, **own: Any) -> dict[str, Any]:
    """The settings of a client: the user's, and `own`, in which _ stands for a dot."""
    given = {key: secret(value) for key, value in options.get("settings", {}).items()}
    return {
        "reconnect.backoff.max.ms": _LONGEST_PAUSE,
        **({"session.timeout.ms": _SESSION} if "group_id" in own else {}),
        **given,
        "bootstrap.servers": ",".join(options["servers"]),
        "error_cb": contact.error,
        "logger": _log,
        **{key.replace("_", "."): value for key, value in own.items()},
    }


def consumer_config(options: Mapping[str, Any], contact: Contact, group: str) -> dict[str, Any]:
    """For a consumer that commits when it is told to, and begins where it is told to."""
    return client_config(
        options,
        contact,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="error",
        isolation_level="read_committed",
        enable_partition_eof=True,
        queued_max_messages_kbytes=_FETCHED_AHEAD,
    )
