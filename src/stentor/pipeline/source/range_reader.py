"""What a task does: read a range of a journal from whichever broker has it, as Arrow batches.

A broker that is down is waited for. If the journal moves to another listed broker meanwhile, it is
found there by its id and read on from the same offset. What was planned and is not there any more
is an error, or passed over if the user said so: it is never silently less.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from math import inf
from time import monotonic, sleep
from typing import Final

import pyarrow as pa

from stentor.client.backoff import TRANSIENT, Backoff
from stentor.errors import HistoryGone
from stentor.model.moments import TIME
from stentor.pipeline.columns import BatchMaker, Layout
from stentor.pipeline.source.journals import holder
from stentor.pipeline.source.offsets import Range
from stentor.pipeline.source.options import Reading

#: A batch is made as soon as it has so many rows or bytes.
BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 16 * 2**20

_log: Final = logging.getLogger("stentor.pipeline")


def read_range(
    part: Range, options: Reading, filter: str, maker: BatchMaker
) -> Iterator[pa.RecordBatch]:
    """The events of a range that the filter matches.

    Payloads and attributes leave the broker only if there is a column for them.
    """
    offsets: list[int] = []
    items: list[bytes] = []
    size = 0
    left = inf if options.limit is None else options.limit
    for found_offsets, found_items in _stretches(part, options, filter, maker.layout):
        if len(found_items) > left:
            found_offsets, found_items = found_offsets[: int(left)], found_items[: int(left)]
        left -= len(found_items)
        offsets += found_offsets
        items += found_items
        size += sum(map(len, found_items))
        if len(items) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield maker.batch(items, offsets, stream=part.stream, broker=part.broker)
            offsets, items, size = [], [], 0
        if not left:
            break
    if items:
        yield maker.batch(items, offsets, stream=part.stream, broker=part.broker)
    if maker.corrupt:
        _log.warning(
            "%d of %d events of %r at offsets %d..%d did not fit the schema; see _corrupt",
            maker.corrupt,
            maker.rows,
            part.broker,
            part.first,
            part.last,
        )


def count_range(part: Range, options: Reading) -> int:
    """How many events of a range the filter matches, without the events."""
    return sum(len(found) for found, _ in _stretches(part, options, options.filter, times=TIME))


def _stretches(
    part: Range, options: Reading, filter: str, layout: Layout | None = None, times: str = ""
) -> Iterator[tuple[list[int], list[bytes]]]:
    at = part.first
    hint = part.address
    strict = options.fail_on_data_loss
    moves = 0
    patience = options.connecting.patience
    deadline = monotonic() + patience
    backoff = Backoff(0.1, 2.0)
    while at <= part.last:
        with holder(part.stream, options.connecting, hint) as found:
            if found is None:
                _lost(part, at, "no listed broker has this journal any more", strict)
                return
            direct, journal = found
            if journal.head < part.last:
                text = f"its journal ends at {journal.head} now"
                _lost(part, max(at, journal.head + 1), text, strict)
            if journal.low > at:
                text = f"retention has removed them: the journal begins at {journal.low}"
                _lost(part, at, text, strict, min(journal.low - 1, part.last))
            last = min(part.last, journal.head)
            try:
                stretches = direct.read(
                    part.stream,
                    at,
                    last,
                    filter,
                    skip_lost=not strict,
                    times=times,
                    headers=layout is not None and not layout.has("_payload"),
                    attributes=None if layout is None else layout.asked_for,
                )
                for stretch in stretches:
                    at = max(at, stretch.through + 1)
                    if stretch.offsets:
                        yield stretch.offsets, stretch.items
                    deadline = monotonic() + patience
                    backoff.reset()
            except HistoryGone:
                # Gone by retention while it was read, or the journal has just moved elsewhere.
                moves += 1
                if moves > len(options.connecting.brokers):
                    raise
                hint = None
                continue
            except TRANSIENT as error:
                # It is down, or is being removed: the journal comes back, here or elsewhere.
                if monotonic() >= deadline:
                    raise
                _log.info("looking for the journal %r again: %s", part.stream, error)
                sleep(backoff.next())
                continue
            if last < part.last:
                return  # the rest is gone, and that is accepted


def _lost(part: Range, first: int, why: str, strict: bool, last: int | None = None) -> None:
    text = (
        f"offsets {first}..{part.last if last is None else last} of broker {part.broker!r} "
        f"(journal {part.stream!r}) are lost: {why}"
    )
    if strict:
        raise HistoryGone(
            f"{text}. To go on without them, set failOnDataLoss to false; to keep more, raise the "
            "retention of the broker, or run the query more often"
        )
    _log.warning("%s; going on without them", text)
