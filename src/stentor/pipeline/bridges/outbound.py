"""From brokers to Kafka: what a durable subscription gets is written to a topic, each exactly once.

The subscription is confirmed when Kafka has a batch, so nothing is lost, whoever is killed. What
was written and not confirmed comes again after a restart. To write it *once*, the bridge looks at
what is there: each record has the id of its notification in a header. The consumer group of the
bridge keeps for each partition of the topic an offset before which everything is confirmed.
Whenever a producer is made, the topic is read from there to its end, and ids that are found there
are not written again. That is the last batch, usually, and what others have written since. Which of
these ids are confirmed is not known; so the offsets stay where they are until all of them have come
again, or `HELD` further records were written.

Each batch is one transaction of Kafka, under a name that belongs to the bridge. So who reads
committed records sees all of a batch or nothing; and a process that was taken for dead cannot write
any more when its successor begins, because Kafka shuts out who had the name before. Whatever fails
in between, such as a broker of Kafka that dies, has the same answer as a restart: a new producer, a
look at what is there, and the rest of the batch again.

This holds for as long as Kafka keeps the group's offsets (`offsets.retention.minutes`, seven days
after the bridge has gone), and as long as the subscription's home is not lost: what was confirmed
there in its last second may come again (see docs/durability.md).

With `exactly_once = false` there is neither a transaction nor a look: the producer is idempotent,
so what it tries again is there once, but a batch that was not confirmed when the process was killed
is written again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from stentor.client import Bus, Subscription, connect
from stentor.client.backoff import TRANSIENT
from stentor.errors import NoReply, PipelineError
from stentor.filters import Filter
from stentor.model import Notification
from stentor.pipeline.bridges.cluster import Contact, client_config, consumer_config
from stentor.pipeline.bridges.crossing import Crossing, credentials
from stentor.pipeline.bridges.dead_letters import DeadLetters, Letter
from stentor.pipeline.bridges.records import Outgoing, outgoing, written_by
from stentor.pipeline.bridges.values import BadValue, value_writer
from stentor.pipeline.runs.engines import Leg

#: Notifications that are written at a time, unless the source says otherwise.
BATCH: Final = 1_000
#: Records that are written until ids are given up that were found and have not come again.
HELD: Final = 100_000
#: Seconds without a notification after which, with `once`, everything is done.
IDLE: Final = 2.0
_LOOK: Final = 0.5
#: Seconds for a question to Kafka, for a batch, and between two attempts.
_ASKING: Final = 5.0
_WRITING: Final = 20.0
_PAUSE: Final = 0.5


class Outbound:
    """Writes what a durable subscription gets to a topic, until it is told to stop."""

    def __init__(self, leg: Leg, bridge: str, crossing: Crossing, registry: Any = None) -> None:
        """`bridge` names it: the durable subscription, the transactions and the group."""
        self._source: Mapping[str, Any] = leg.source.options
        self._sink: Mapping[str, Any] = leg.sink.options
        self._topic: str = self._sink["topic"]
        self._bridge = bridge
        self._crossing = crossing
        self._contact = Contact(self._sink["servers"], crossing.lost("Kafka"))
        self._broker = crossing.lost("the broker")
        self._write = value_writer(self._sink, registry)
        parts = [text for text in (self._source.get("filter", ""), *leg.filters) if text]
        self._filter = Filter(" and ".join(f"({text})" for text in parts))
        self._letters = DeadLetters(self._sink, bridge, self._contact)
        self._once = bool(self._sink.get("exactly_once", True))
        self._kafka: _Topic | None = None

    def run(self) -> None:
        """Until it is told to stop, or with `once` until nothing comes any more."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        while not self._crossing.stopping():
            try:
                async with self._bus() as bus:
                    bus.on_state(lambda state: self._state(bus, state))
                    self._broker(None)
                    await self._cross(bus)
                return
            except TRANSIENT as error:
                self._broker(str(error))
                await asyncio.to_thread(self._crossing.pause, _PAUSE)
            finally:
                if self._kafka is not None:
                    self._kafka.close()
                    self._kafka = None

    def _bus(self) -> Bus:
        return connect(
            *self._source["brokers"],
            name=f"bridge/{self._bridge}",
            **credentials(self._source),
            timeout=3.0,
            delays=(0.05, 2.0),
        )

    def _state(self, bus: Bus, state: str) -> None:
        if state == "reconnecting":
            self._broker(str(bus.error or "the connection to the broker is lost"))
        elif state == "connected":
            self._broker(None)

    async def _cross(self, bus: Bus) -> None:
        limit = self._source.get("max_rows_per_batch", BATCH)
        subscription = bus.subscribe(
            self._filter,
            durable=self._bridge,
            since=self._since(),
            auto_confirm=False,
            window=2 * limit,
        )
        async with subscription as events:
            self._crossing.state("running")
            quiet = time.monotonic()
            while not self._crossing.stopping():
                if self._kafka is None:
                    # The topic is looked at before anything is asked for.
                    await asyncio.to_thread(self._insist, [])
                try:
                    batch = await events.next_batch(limit, _LOOK)
                except NoReply:
                    await asyncio.to_thread(self._idle)
                    if self._crossing.once and time.monotonic() - quiet >= IDLE:
                        return
                    continue
                if not batch:
                    return
                if not await self._deal_with(bus, events, batch):
                    return
                quiet = time.monotonic()

    def _since(self) -> str | datetime | None:
        moment: datetime | None = self._source.get("starting_timestamp")
        if moment is not None:
            return moment
        return None if self._source.get("starting_offsets") == "latest" else "earliest"

    def _idle(self) -> None:
        if self._kafka is not None:
            self._kafka.poll()
        self._check()
        if self._contact.lost and self._kafka is not None and self._kafka.answers():
            self._contact.well()

    def _check(self) -> None:
        if self._contact.fatal is not None:
            raise PipelineError(f"Kafka: {self._contact.fatal}")

    async def _deal_with(
        self, bus: Bus, events: Subscription[Notification], batch: list[Notification]
    ) -> bool:
        """Write a batch and confirm it; False if it is to stop before that is done."""
        began = time.monotonic()
        letters: list[Letter] = []
        records: list[tuple[str, Outgoing]] = []
        for n in batch:
            # What came from this topic does not go there again, round and round.
            if n.get("kafka.topic") != self._topic and n.type != (self._letters.type or ""):
                self._add(n, records, letters)
        if not await asyncio.to_thread(self._insist, records, letters):
            return False
        if letters and self._letters.type is not None:
            for letter in letters:
                await bus.publish(
                    self._letters.attributes(letter),
                    type=self._letters.type,
                    payload=letter.value,
                    ack=True,
                )
        await events.confirm()
        if self._kafka is not None:
            await asyncio.to_thread(self._kafka.confirmed)
        self._crossing.figures.corrupt += len(letters)
        self._crossing.did(len(batch), time.monotonic() - began, None)
        return True

    def _add(
        self, n: Notification, records: list[tuple[str, Outgoing]], letters: list[Letter]
    ) -> None:
        try:
            record = outgoing(n, self._topic, self._write, self._sink.get("key"), self._bridge)
            records.append((str(n.id), record))
        except BadValue as error:
            letter = Letter(
                str(error),
                f"the notification {n.id} cannot be written to {self._topic}",
                {"original": str(n.id), "event": dict(n)},
                value=n.payload,
            )
            self._letters.check(letter)
            letters.append(letter)

    def _insist(
        self, records: list[tuple[str, Outgoing]], letters: list[Letter] | None = None
    ) -> bool:
        """Write all of it, however often that takes; False if it is told to stop before."""
        from confluent_kafka import KafkaException

        while not self._crossing.stopping():
            try:
                if self._kafka is None:
                    topic = _Topic(self._sink, self._bridge, self._contact, once=self._once)
                    self._kafka = topic.open()
                self._kafka.write(records)
                if letters:
                    self._letters.keep(letters)
            except (KafkaException, TimeoutError) as error:
                self._failed(error)
                continue
            self._contact.well()
            return True
        return False

    def _failed(self, error: Exception) -> None:
        from confluent_kafka import KafkaError, KafkaException

        text = str(error)
        if isinstance(error, KafkaException):
            said = error.args[0]
            text = said.str()
            if said.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                raise PipelineError(
                    f"another process has taken over the bridge {self._bridge!r}, so this one ends"
                ) from error
            if said.code() in (
                KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.UNSUPPORTED_VERSION,
                KafkaError.MSG_SIZE_TOO_LARGE,
                KafkaError._INVALID_ARG,
            ):
                raise PipelineError(f"Kafka refuses what is to be written: {text}") from error
        self._contact.problem(text)
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None
        self._crossing.pause(_PAUSE)


class _Topic:
    """A producer for a topic, with what was written before and may not be confirmed."""

    def __init__(
        self, options: Mapping[str, Any], bridge: str, contact: Contact, *, once: bool
    ) -> None:
        from confluent_kafka import Producer

        self._options = options
        self._topic: str = options["topic"]
        self._bridge = bridge
        self._contact = contact
        self._group = f"stentor.{bridge}"
        own: dict[str, Any] = {"enable_idempotence": True}
        if once:
            own["transactional_id"] = self._group
        self._transactional = once
        self._producer: Any = Producer(client_config(options, contact, **own))
        self._reader: Any = None
        #: Ids that were found in the topic and have not come again, and those of the last batch.
        self._found: set[str] = set()
        self._batch: list[str] = []
        #: Records that were written since.
        self._written = 0
        #: By partition, the offset behind what was written and is there.
        self._ends: dict[int, int] = {}
        self._failure: Any = None

    def open(self) -> _Topic:
        """Shut out who was here before, and look at what they have written."""
        from confluent_kafka import Consumer

        try:
            if self._transactional:
                self._producer.init_transactions(_ASKING)
                config = consumer_config(self._options, self._contact, self._group)
                self._reader = Consumer(config)
                self._look()
        except BaseException:
            self.close()
            raise
        return self

    def _look(self) -> None:
        """Find the ids of what may not be confirmed."""
        from confluent_kafka import OFFSET_INVALID, TopicPartition

        numbers = self._partitions()
        asked = [TopicPartition(self._topic, number) for number in numbers]
        places = self._reader.committed(asked, timeout=_ASKING)
        begun = any(place.offset != OFFSET_INVALID for place in places)
        for place in places:
            low, high = self._reader.get_watermark_offsets(place, timeout=_ASKING)
            if place.offset < 0:
                # A partition that was added is read from its beginning; a topic that is new to the
                # bridge has nothing of it.
                place.offset = low if begun else high
            place.offset = max(low, min(place.offset, high))
            self._ends[place.partition] = high
        if not begun:
            self._reader.commit(offsets=places, asynchronous=False)
        self._read([place for place in places if place.offset < self._ends[place.partition]])

    def _partitions(self) -> list[int]:
        """The numbers of the partitions. A producer that asks makes the topic, if Kafka lets it."""
        found = self._producer.list_topics(self._topic, timeout=_ASKING).topics[self._topic]
        if found.error is not None or not found.partitions:
            why = "it has no partitions" if found.error is None else found.error.str()
            raise TimeoutError(f"the topic {self._topic!r} is not there yet ({why}); make it")
        return sorted(found.partitions)

    def _read(self, places: list[Any]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        left = {place.partition for place in places}
        self._reader.assign(places)
        silent = time.monotonic()
        while left:
            for record in self._reader.consume(BATCH, _LOOK):
                silent = time.monotonic()
                error = record.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left.discard(record.partition())
                elif error is not None:
                    raise KafkaException(error)
                else:
                    found = written_by(record, self._bridge)
                    if found is not None:
                        self._found.add(found)
                    if record.offset() + 1 >= self._ends[record.partition()]:
                        left.discard(record.partition())
            if time.monotonic() - silent > _WRITING:
                raise TimeoutError(f"{self._topic} cannot be read")
        self._reader.unassign()

    def write(self, records: list[tuple[str, Outgoing]]) -> None:
        """Write what is not there yet; Kafka has it when this returns."""
        from confluent_kafka import KafkaException

        self._batch = [id for id, _ in records]
        new = [record for id, record in records if id not in self._found]
        if not new:
            self._producer.poll(0)
            return
        self._failure = None
        deadline = time.monotonic() + _WRITING
        if self._transactional:
            self._producer.begin_transaction()
        for record in new:
            self._produce(record, deadline)
        while self._producer.flush(_LOOK) and self._failure is None:
            # What waits is sent when Kafka is back; a transaction that takes too long is not.
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic} cannot be written")
        if self._failure is not None:
            raise KafkaException(self._failure)
        if self._transactional:
            self._producer.commit_transaction(_WRITING)
        self._written += len(new)

    def _produce(self, record: Outgoing, deadline: float) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    headers=record.headers,
                    timestamp=record.timestamp,
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._topic} cannot be written") from None
                self._producer.poll(_LOOK)

    def _delivered(self, error: Any, record: Any) -> None:
        if error is not None:
            self._failure = self._failure or error
        else:
            end = record.offset() + 1
            self._ends[record.partition()] = max(end, self._ends.get(record.partition(), 0))

    def confirmed(self) -> None:
        """Everything that was written is confirmed: whoever comes next looks behind it."""
        from confluent_kafka import KafkaException, TopicPartition

        self._found.difference_update(self._batch)
        if self._written >= HELD:
            self._found.clear()
        if self._reader is None or self._found:
            return
        places = [TopicPartition(self._topic, *each) for each in self._ends.items()]
        try:
            self._reader.commit(offsets=places, asynchronous=True)
            self._reader.poll(0)
        except KafkaException as error:
            self._contact.error(error.args[0])

    def poll(self) -> None:
        """Let the client say what it has to."""
        self._producer.poll(0)

    def answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            self._producer.list_topics(timeout=_LOOK)
        except KafkaException:
            return False
        return True

    def close(self) -> None:
        """What was not finished is dropped; it is done again."""
        self._producer.purge()
        self._producer.flush(0)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
