"""From Kafka to brokers: the records of topics are published, each exactly once.

*Identity.* Each partition of a topic is a producer of its own, and a record's offset is its
sequence number. A broker takes nothing of a producer that is not newer than what it has, so to
publish a record again does no harm, as long as it goes to the same broker: of those that are
listed, one is chosen by a hash of the producer, and waited for if it is down. The offset up to
which everything is on the broker's disk is then committed to Kafka. So a bridge that is killed
between the two reads some records again, and the broker passes over them.

This holds for as long as the broker remembers the producer, which is as long as retention keeps
what it has published; after that there is still the committed offset. The producer's name has in it
the cluster, the bridge, the topic and the partition: under another name for the bridge, everything
is published anew.

*Topics that were made anew* begin at offset 0 again, and a broker would take their records for
repeats. So a partition that ends before what was published of it is an error, and so is one that
begins behind what was read last: its records were deleted before anybody read them.

*Several processes* may run the same bridge: Kafka's consumer group shares the partitions among
them. Whoever is given a partition connects under the producer's name, and so shuts out whoever had
it.

*Bounds.* Nothing is read while a batch waits for brokers. The partitions are then paused, so that
Kafka's client can go on saying that it is there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from stentor.client.backoff import TRANSIENT
from stentor.client.direct import Direct, broker_for
from stentor.errors import NameTaken, PipelineError, StentorError
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.model.names import MAX_NAME_BYTES
from stentor.pipeline.bridges.cluster import Contact, consumer_config
from stentor.pipeline.bridges.crossing import Crossing, credentials
from stentor.pipeline.bridges.dead_letters import DeadLetters, Letter
from stentor.pipeline.bridges.records import about_record, notification_of, time_of
from stentor.pipeline.bridges.values import BadValue, value_reader
from stentor.pipeline.runs.engines import Leg

#: Records that are taken at a time, unless the source says otherwise.
BATCH: Final = 1_000
#: Seconds that a look for records takes at most, and that one attempt at a broker may take.
_LOOK: Final = 0.5
_ATTEMPT: Final = 2.0
#: Seconds for a question to Kafka.
_ASKING: Final = 5.0
#: Partitions that are published at the same time.
_AT_ONCE: Final = 8

#: A topic and the number of a partition.
_Place = tuple[str, int]


@dataclass
class _Partition:
    """What is known of a partition that was assigned."""

    direct: Direct | None = None
    #: The first offset that was not yet dealt with.
    next: int = 0
    #: Whether everything is read that was there.
    ended: bool = False


@dataclass
class _Work:
    """What a batch has for one partition."""

    place: _Place
    partition: _Partition
    items: list[bytes] = field(default_factory=list)


class Inbound:
    """Publishes the records of topics, until it is told to stop."""

    def __init__(self, leg: Leg, bridge: str, crossing: Crossing, registry: Any = None) -> None:
        """`bridge` names it: the consumer group, and the producers."""
        self._source: Mapping[str, Any] = leg.source.options
        self._sink: Mapping[str, Any] = leg.sink.options
        self._bridge = bridge
        self._crossing = crossing
        self._contact = Contact(self._source["servers"], crossing.lost("Kafka"))
        self._broker = crossing.lost("the broker")
        self._read = value_reader(self._source, registry)
        texts = [self._source.get("filter", ""), *leg.filters]
        self._filters = [Filter(text) for text in texts if text]
        self._letters = DeadLetters(self._source, bridge, self._contact)
        self._partitions: dict[_Place, _Partition] = {}
        #: What went wrong in a callback of Kafka's client.
        self._failure: Exception | None = None
        self._cluster = ""
        self._pool = ThreadPoolExecutor(_AT_ONCE, "stentor-bridge")

    def run(self) -> None:
        """Until it is told to stop, or with `once` until all is done that is there."""
        from confluent_kafka import Consumer

        config = consumer_config(self._source, self._contact, f"stentor.{self._bridge}")
        consumer: Any = Consumer(config)
        self._consumer = consumer
        try:
            if not self._find_cluster():
                return
            consumer.subscribe(
                self._source["kafka"], on_assign=self._assigned, on_revoke=self._revoked
            )
            while not self._crossing.stopping() and not self._done():
                self._step()
        finally:
            self._pool.shutdown()
            for partition in self._partitions.values():
                _close(partition)
            self._commit(asynchronous=self._contact.lost)
            consumer.close()

    def _done(self) -> bool:
        return (
            self._crossing.once
            and bool(self._partitions)
            and all(each.ended for each in self._partitions.values())
        )

    def _step(self) -> None:
        """Take some records and deal with them."""
        from confluent_kafka import KafkaError

        limit = self._source.get("max_rows_per_batch", BATCH)
        records = []
        for record in self._consumer.consume(limit, _LOOK):
            error = record.error()
            if error is None:
                records.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                place = record.topic(), record.partition()
                if place in self._partitions:
                    self._partitions[place].ended = True
                self._contact.well()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise PipelineError(
                    f"{record.topic()}[{record.partition()}]: the records behind the last one that "
                    "was read are gone; was the topic made anew, or is its retention too short?"
                )
            elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._contact.problem(error.str())
            else:
                self._contact.error(error)
        self._check()
        if records:
            self._contact.well()
            self._deal_with(records)
        elif self._contact.lost:
            self._look_again()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._contact.fatal is not None:
            raise PipelineError(f"Kafka: {self._contact.fatal}")

    def _look_again(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._consumer.list_topics(timeout=_LOOK)
        except KafkaException:
            return
        self._contact.well()

    def _find_cluster(self) -> bool:
        """Learn which cluster it is, however long that takes; False if it is told to stop."""
        from confluent_kafka import KafkaException

        while not self._crossing.stopping():
            try:
                found = self._consumer.list_topics(timeout=_ATTEMPT)
            except KafkaException as error:
                self._contact.problem(error.args[0].str())
                self._consumer.poll(0)
                self._check()
                self._crossing.pause(_LOOK)
                continue
            self._cluster = found.cluster_id or ""
            self._contact.well()
            self._crossing.state("running")
            return True
        return False

    # -- which partitions

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Kafka's client calls this; what is raised here would be lost."""
        from confluent_kafka import KafkaException

        try:
            places = consumer.committed(partitions, timeout=_ASKING)
            for place in places:
                place.offset = self._start(consumer, place)
                key = place.topic, place.partition
                self._partitions[key] = _Partition(next=place.offset)
            consumer.assign(places)
            consumer.commit(offsets=places, asynchronous=True)  # where it began is settled
        except KafkaException as error:
            # The group is left, and joined anew.
            self._contact.problem(error.args[0].str())
            consumer.unsubscribe()
            consumer.subscribe(
                self._source["kafka"], on_assign=self._assigned, on_revoke=self._revoked
            )
        except Exception as error:
            self._failure = error

    def _start(self, consumer: Any, place: Any) -> int:
        """The offset to begin at; `PipelineError` if records are gone that nobody has read."""
        low, high = consumer.get_watermark_offsets(place, timeout=_ASKING)
        if place.offset < 0:
            latest = self._source.get("starting_offsets") == "latest"
            return int(high if latest else low)
        where = f"{place.topic}[{place.partition}]"
        if place.offset > high:
            raise PipelineError(
                f"{where} ends at offset {high}, and was read up to {place.offset} before: it was "
                "made anew. Give the pipeline another name, to read it from its beginning"
            )
        if place.offset >= low:
            return int(place.offset)
        gone = f"{where}: the records from offset {place.offset} to {low - 1} are gone unread"
        if self._source.get("fail_on_data_loss", True):
            raise PipelineError(
                f"{gone}; with fail_on_data_loss = false they are passed over. Keep more in Kafka "
                "(retention.ms), or run the bridge more often"
            )
        self._crossing.tell(f"{gone}; going on behind them")
        return int(low)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        for place in partitions:
            partition = self._partitions.pop((place.topic, place.partition), None)
            if partition is not None:
                _close(partition)

    # -- what is done with records

    def _deal_with(self, records: list[Any]) -> None:
        began = time.monotonic()
        letters: list[Letter] = []
        work: dict[_Place, _Work] = {}
        ends: dict[_Place, int] = {}
        for record in records:
            place = record.topic(), record.partition()
            partition = self._partitions.get(place)
            if partition is None:
                continue  # it was just given to somebody else
            ends[place] = record.offset() + 1
            found = self._item(record, letters)
            if found is not None:
                work.setdefault(place, _Work(place, partition)).items.append(found)
        self._insist(lambda: self._letters.keep(letters) if letters else None)
        left = list(work.values())
        while left and not self._crossing.stopping():
            left = self._published(left)
        undone = {each.place for each in left}
        for place, end in ends.items():
            if place not in undone and place in self._partitions:
                self._partitions[place].next = end
        self._commit(asynchronous=True)
        self._crossing.figures.corrupt += len(letters)
        self._crossing.did(len(records), time.monotonic() - began, self._lag())

    def _item(self, record: Any, letters: list[Letter]) -> bytes | None:
        """The record as it is published; None if it is not."""
        producer = self._producer(record.topic(), record.partition())
        id = NotificationId(producer, 0, record.offset())
        type = self._sink.get("type") or self._source.get("type")
        try:
            found = notification_of(record, self._read, type, id)
        except BadValue as error:
            where = f"{record.topic()}[{record.partition()}] at offset {record.offset()}"
            letter = Letter(
                str(error),
                f"the record of {where} cannot be read",
                {"kafka": about_record(record)},
                record.key(),
                record.value() or b"",
                record.headers() or [],
            )
            self._letters.check(letter)
            if self._letters.type is None:
                letters.append(letter)
                return None
            self._crossing.figures.corrupt += 1
            return encode(
                Notification(
                    self._letters.attributes(letter),
                    type=self._letters.type,
                    payload=letter.value,
                    id=id,
                    time=time_of(record),
                )
            )
        if not all(each.matches(found) for each in self._filters):
            return None
        return encode(found)

    def _published(self, work: list[_Work]) -> list[_Work]:
        """Publish; what could not be because a broker does not answer."""
        left: list[_Work] = []
        problem: StentorError | None = None
        for each, error in zip(work, self._pool.map(self._publish, work), strict=True):
            if isinstance(error, NameTaken):
                # Whoever has the partition now publishes it, too.
                _close(each.partition)
                if each.place in self._partitions:
                    self._crossing.tell(
                        f"{each.place[0]}[{each.place[1]}] was taken over; is the bridge "
                        f"{self._bridge!r} running twice?"
                    )
                    self._crossing.pause(_LOOK)
                    left.append(each)
            elif isinstance(error, TRANSIENT):
                problem = error
                left.append(each)
            elif error is not None:
                raise error
        self._broker(None if problem is None else str(problem))
        if left:
            self._stay()
        return [each for each in left if each.place in self._partitions]

    def _publish(self, work: _Work) -> StentorError | None:
        """Publish what is new of one partition; it is on disk then. Runs in a thread."""
        partition = work.partition
        try:
            if partition.direct is None:
                self._open(work.place, partition)
            assert partition.direct is not None
            if partition.direct.producer == partition.direct.name:
                items = work.items
            else:  # who has a grant has a name with it
                items = [_renamed(item, partition.direct.producer) for item in work.items]
            partition.direct.publish(items)
        except StentorError as error:
            return error
        return None

    def _open(self, place: _Place, partition: _Partition) -> None:
        producer = self._producer(*place)
        direct = Direct(
            broker_for(producer, self._sink["brokers"]),
            name=producer,
            **credentials(self._sink),
            timeout=_ATTEMPT,
            patience=_ATTEMPT,
        )
        newest = (direct.welcome.published or (0, -1))[1]
        high = self._high(place)
        if newest >= high:
            direct.close()
            raise PipelineError(
                f"{place[0]}[{place[1]}] ends at offset {high}, and offset {newest} of it was "
                "published before: it was made anew. Give the pipeline another name, to publish "
                "it from its beginning"
            )
        partition.direct = direct

    def _high(self, place: _Place) -> int:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=_ASKING)
        except KafkaException as error:
            raise PipelineError(f"Kafka: {error.args[0].str()}") from error
        return int(found[1])

    def _stay(self) -> None:
        """Let Kafka know that we are there, while nothing is read."""
        from confluent_kafka import TopicPartition

        assigned = self._consumer.assignment()
        self._consumer.pause(assigned)
        record = self._consumer.poll(0)
        if record is not None and record.error() is None:  # of a partition that just came
            self._consumer.seek(TopicPartition(record.topic(), record.partition(), record.offset()))
        self._consumer.resume(self._consumer.assignment())
        self._check()

    def _insist(self, work: Any) -> None:
        """Do something that needs Kafka, again until it works."""
        from confluent_kafka import KafkaException

        while not self._crossing.stopping():
            try:
                work()
            except (KafkaException, TimeoutError) as error:
                self._contact.problem(str(error))
                self._stay()
                continue
            return
        raise Stopped

    def _commit(self, *, asynchronous: bool) -> None:
        """Tell Kafka how far everything is on disk; if that fails, it is read again."""
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(*place, each.next) for place, each in self._partitions.items()]
        try:
            if places:
                self._consumer.commit(offsets=places, asynchronous=asynchronous)
        except KafkaException as error:
            self._contact.error(error.args[0])

    def _lag(self) -> int:
        """Records that are there and not yet read, as far as is known without asking."""
        from confluent_kafka import TopicPartition

        lag = 0
        for (topic, number), partition in self._partitions.items():
            place = TopicPartition(topic, number)
            known = self._consumer.get_watermark_offsets(place, cached=True)
            lag += max(0, known[1] - partition.next) if known else 0
        return lag

    def _producer(self, topic: str, partition: int) -> str:
        return producer_name(self._cluster, self._bridge, topic, partition)


class Stopped(Exception):
    """It was told to stop in the middle of something, which is done again the next time."""


def producer_name(cluster: str, bridge: str, topic: str, partition: int) -> str:
    """Who publishes the records of a partition.

    >>> producer_name("c1", "quotes.in", "quotes", 3)
    'kafka/c1/quotes.in/quotes/3'
    """
    name = f"kafka/{cluster}/{bridge}/{topic}/{partition}"
    if len(name.encode()) <= MAX_NAME_BYTES - 64:  # a grant may add its own
        return name
    return f"kafka/{sha256(name.encode()).hexdigest()}/{partition}"


def _renamed(item: bytes, producer: str) -> bytes:
    from stentor.model import decode

    found = decode(item)
    assert found.id is not None
    return encode(found.replace(id=NotificationId(producer, 0, found.id.sequence)))


def _close(partition: _Partition) -> None:
    if partition.direct is not None:
        partition.direct.close()
        partition.direct = None
