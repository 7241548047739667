"""The subscriptions of a shard in Spark's state, and the way from there to a working copy.

State is what Spark makes exactly-once: a micro-batch that is repeated starts from the same state,
and what it did to it counts once. Working copies in Python workers must be neither older nor newer.
So the state names its version by a digest of all changes that led to it, and a copy is only used
under exactly that digest, and only by a query that sees events and filters in the same way.

A shard may be processed by another worker each time, whose copy has missed the last changes. The
last few are therefore in the state, too, under the digests that they lead to. A worker goes
back from the newest until it finds a version that it has, and applies what came after; only if
there is none, it reads all buckets.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from stentor.errors import PipelineError
from stentor.pipeline.matching.kernel_cache import claim_kernel_cache
from stentor.pipeline.matching.parcels import CHANGES, unwrapped, wrapped
from stentor.pipeline.matching.shard_index import Change, Held, Layout
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.matching.worker import Memory

#: Versions that a worker can catch up from; and changes, above which reading all is as quick.
LOGGED: Final = 16
LOGGED_CHANGES: Final = 10_000
#: Events that wait in memory until all changes are known; more wait on disk.
WAITING_BYTES: Final = 64 * 2**20

_copies: Final[Memory[Held]] = Memory()


@dataclass
class _Version:
    """What the state says about itself: its digest is the last one."""

    shards: int
    digests: list[str] = field(default_factory=list)

    def pack(self) -> tuple[int, str]:
        return self.shards, " ".join(self.digests)


class Keeper(StatefulProcessor):
    """Applies changes to the state, then holds events against it."""

    def __init__(self, layout: Layout, shards: int, on_error: str, vocabulary: Vocabulary) -> None:
        self._layout = layout
        self._shards = shards
        self._on_error = on_error
        self._vocabulary = vocabulary
        #: What a working copy depends on besides the state.
        self._setting = _digest("", (tuple(layout), on_error, vocabulary))

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._version = handle.getValueState("version", "shards int, digests string")
        self._buckets = handle.getMapState("buckets", "bucket int", "content binary")
        self._log = handle.getMapState("log", "digest string", "changes binary")

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        claim_kernel_cache()
        self._vocabulary.install()
        with SpooledTemporaryFile(WAITING_BYTES) as waiting:
            changes = _sort_out(rows, waiting)
            held = self._brought_up_to(_last_of_each(changes))
            waiting.seek(0)
            for content in _read(waiting):
                for matched in held.matches(unwrapped(content)):
                    yield Row(content=bytearray(wrapped(matched)))

    def close(self) -> None:
        pass

    # -- versions

    def _brought_up_to(self, changes: list[Change]) -> Held:
        """The working copy, after these changes, which are in the state then."""
        found = self._version.get()
        version = _Version(self._shards)
        if found is not None:
            version = _Version(found[0], found[1].split())
        if version.shards != self._shards:
            raise PipelineError(
                f"the checkpoint keeps subscriptions in {version.shards} shards, and not in "
                f"{self._shards}; say shards={version.shards}, or begin a new checkpoint"
            )
        before = version.digests[-1] if version.digests else ""
        held = self._copy(version)
        made = held.apply(changes, on_error=self._on_error)
        if not made:
            return _copies.put(self._setting + before, held)
        for number in sorted({change.bucket for change in made}):
            content = held.bucket(number)
            if content is None:
                self._buckets.removeKey((number,))
            else:
                self._buckets.updateValue((number,), (content,))
        after = _digest(before, [tuple(change) for change in made])
        logged = made if len(made) <= LOGGED_CHANGES else None
        self._log.updateValue((after,), (pickle.dumps(logged),))
        version.digests.append(after)
        while len(version.digests) > LOGGED:
            self._log.removeKey((version.digests.pop(0),))
        self._version.update(version.pack())
        return _copies.put(self._setting + after, held)

    def _copy(self, version: _Version) -> Held:
        """The shard at the version that is in the state."""
        digests = version.digests
        known = next((d for d in reversed(digests) if self._setting + d in _copies), None)
        if known is not None:
            missed = digests[digests.index(known) + 1 :]
            logs = [self._log.getValue((digest,)) for digest in missed]
            changes = [pickle.loads(log[0]) for log in logs if log is not None]
            held = _copies.take(self._setting + known)
            if held is not None and len(changes) == len(missed) and None not in changes:
                for some in changes:
                    held.apply(some, on_error=self._on_error, in_state=True)
                return held
        held = Held(self._layout)
        for (number,), (content,) in self._buckets.iterator() if digests else ():
            held.load(number, content, on_error=self._on_error)
        held.compact()
        return held


def _digest(before: str, more: Any) -> str:
    """What stands for something and all that came before it."""
    digest = hashlib.sha256(before.encode())
    digest.update(pickle.dumps(more))
    return digest.hexdigest()[:32]


def _sort_out(rows: Iterable[Row], waiting: IO[bytes]) -> list[pa.RecordBatch]:
    """The changes; the events have to wait for them."""
    changes: list[pa.RecordBatch] = []
    for row in rows:
        if row.kind == CHANGES:
            changes.append(unwrapped(row.content))
        else:
            waiting.write(len(row.content).to_bytes(8, "big"))
            waiting.write(row.content)
    return changes


def _read(waiting: IO[bytes]) -> Iterator[bytes]:
    while size := waiting.read(8):
        yield waiting.read(int.from_bytes(size, "big"))


def _last_of_each(batches: list[pa.RecordBatch]) -> list[Change]:
    """For each subscription the change that counts: by `order` where there is one, then by place.

    A null comes before any value.
    """
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    columns = [table.column(name).to_pylist() for name in ("id", "filter", "bucket")]
    changes = [Change(*row) for row in zip(*columns, strict=True)]
    places = table.column("place").to_pylist()
    orders = table.column("order").to_pylist() if "order" in table.column_names else places
    ranks = [(o is not None, o, place) for o, place in zip(orders, places, strict=True)]
    last: dict[Any, int] = {}
    for number in sorted(range(len(changes)), key=ranks.__getitem__):
        last[changes[number].id] = number
    return [changes[number] for number in last.values()]
