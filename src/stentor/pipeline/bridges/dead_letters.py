"""Where it goes what cannot be read or written: a topic, a file, an event type; or the bridge ends.

What is put aside is on disk before the bridge goes on, so nothing is lost. A record that could not
be read and is published under an event type has an id like any other, so it is there once; all
others may be there twice if the bridge was killed right behind it, and say where they come from.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from stentor.errors import PipelineError
from stentor.pipeline.bridges.cluster import Contact, client_config

#: Seconds for Kafka to take what is put aside, before it is tried again.
_SENDING: Final = 5.0
#: The longest cause that is told.
_CAUSE: Final = 500


@dataclass
class Letter:
    """What could not be dealt with, and why."""

    cause: str
    #: What it is, for people: "the record orders[0] at 17".
    what: str
    #: Where it is, under names that are those of attributes.
    about: dict[str, Any]
    key: bytes | None = None
    value: bytes = b""
    headers: list[tuple[str, Any]] = field(default_factory=list)


class DeadLetters:
    """Keeps letters, or raises `PipelineError` for the first if nobody wants them."""

    def __init__(self, options: Mapping[str, Any], bridge: str, contact: Contact) -> None:
        self._options = options
        wanted: Mapping[str, str] = options.get("dead_letter", {})
        self._topic = wanted.get("topic")
        self._file = wanted.get("file")
        #: The event type of letters that are published.
        self.type = wanted.get("type")
        self._bridge = bridge
        self._contact = contact
        self._producer: Any = None

    def check(self, letter: Letter) -> None:
        """Raise if it must not be put aside."""
        if self._topic is self._file is self.type is None:
            raise PipelineError(
                f'{letter.what}: {letter.cause}; with dead_letter = {{file = "…"}}, {{topic = '
                '"…"} or {type = "…"} it would be put aside'
            )

    def attributes(self, letter: Letter) -> dict[str, Any]:
        """What a letter says that is published."""
        return {"cause": letter.cause[:_CAUSE], "bridge": self._bridge, **letter.about}

    def keep(self, letters: Iterable[Letter]) -> None:
        """Put them aside, in the file or the topic; they are on disk when this returns."""
        if self._file is not None:
            self._write(Path(self._file), list(letters))
        elif self._topic is not None:
            self._send(self._topic, list(letters))

    def _write(self, file: Path, letters: list[Letter]) -> None:
        lines = [msgspec.json.encode(self._line(letter)) + b"\n" for letter in letters]
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as out:
                out.write(b"".join(lines))
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise PipelineError(f"{file} cannot be written: {error.strerror}") from error

    def _line(self, letter: Letter) -> dict[str, Any]:
        return {
            "time": datetime.now(UTC),
            **self.attributes(letter),
            "key_base64": None if letter.key is None else b64encode(letter.key).decode(),
            "value_base64": b64encode(letter.value).decode(),
        }

    def _send(self, topic: str, letters: list[Letter]) -> None:
        from confluent_kafka import KafkaException, Producer

        if self._producer is None:
            config = client_config(self._options, self._contact, enable_idempotence=True)
            self._producer = Producer(config)
        failed: list[Any] = []
        for letter in letters:
            headers = [
                *letter.headers,
                ("stentor-bridge", self._bridge.encode()),
                ("stentor-cause", letter.cause[:_CAUSE].encode()),
                ("stentor-about", msgspec.json.encode(letter.about)),
            ]
            self._producer.produce(
                topic,
                letter.value,
                letter.key,
                headers=headers,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        if self._producer.flush(_SENDING):
            self._producer.purge()
            self._producer.flush(0)
            raise TimeoutError(f"dead letters cannot be written to {topic}")
        if failed:
            raise KafkaException(failed[0])
