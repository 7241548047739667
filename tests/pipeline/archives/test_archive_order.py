"""The order of an archive: that of time, and always that of each journal."""

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from archive_events import DAWN, append, at, event
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import ArchiveError
from stentor.pipeline.archives import merge
from stentor.pipeline.archives.compaction import compact
from stentor.pipeline.archives.data_files import ONE_DAY
from stentor.pipeline.archives.merge import in_order
from stentor.pipeline.archives.moments import ALWAYS, Between
from stentor.pipeline.archives.order import journal_code
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.tables import Archive

#: Years after the others.
ABSURD = 30_000 * ONE_DAY
BELIEVED = DAWN + ONE_DAY


def read(archive: Archive, between: Between = ALWAYS, **patched: int) -> list[dict[str, Any]]:
    """All events in order, read in small portions."""
    table = archive.table()
    found = []
    turns: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "LEAST_ROWS", 2)
        patch.setattr(merge, "ROWS", 8)
        for name, value in patched.items():
            patch.setattr(merge, name, value)
        for portion in in_order(table.place, list(table.files.values()), table.columns, between):
            found += portion.events.to_pylist()
            turns += portion.turn.tolist()
    assert turns == sorted(turns)
    return found


def expected(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """The order by its definition: the latest time so far in the journal, journal, offset."""
    keys = {}
    for journal in {e["_broker"] for e in events}:
        latest = -(2**63)
        for each in sorted(
            (e for e in events if e["_broker"] == journal), key=lambda e: int(e["_offset"])
        ):
            if each["_time"] is not None and each["_time"] <= BELIEVED:
                latest = max(latest, each["_time"])
            keys[journal, each["_offset"]] = latest
    return sorted(keys, key=lambda at: (keys[at], journal_code(at[0]), at[1]))


def places(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(e["_broker"], e["_offset"]) for e in events]


@st.composite
def published(draw: st.DrawFn) -> list[list[list[dict[str, Any]]]]:
    """Batches of pieces of events of some journals, whose clocks may be set back or far ahead."""
    at = dict.fromkeys(draw(st.sampled_from([("b1",), ("b1", "b2")])), (0, 0))
    batches = []
    for _ in range(draw(st.integers(1, 4))):
        pieces = []
        for broker in at:
            for _ in range(draw(st.integers(0, 2))):
                piece = []
                for _ in range(draw(st.integers(1, 6))):
                    offset, time = at[broker]
                    step = draw(st.sampled_from([0, 0, 1, 1, 3, -2, -7, None, ABSURD]))
                    said = None if step is None else time + step
                    at[broker] = offset + 1, time if said is None or step == ABSURD else said
                    kind = draw(st.sampled_from(["quote", "trade"]))
                    piece.append(event(offset + 1, said, broker=broker, _type=kind))
                pieces.append(piece)
        batches.append(pieces)
    return batches


@pytest.mark.slow
@pytest.mark.spec("01/T-9")
@settings(max_examples=20, deadline=None)
@given(published(), st.randoms(use_true_random=False))
def test_the_order_is_that_of_its_definition_also_after_compactions(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[list[dict[str, Any]]]],
    chance: random.Random,
) -> None:
    archive = at(tmp_path_factory.mktemp("archive"))
    events = [e for pieces in batches for piece in pieces for e in piece]
    for pieces in batches:
        shuffled = [chance.sample(piece, len(piece)) for piece in pieces]
        append(archive, *chance.sample(shuffled, len(shuffled)))
        if chance.random() < 0.3 and archive.exists():
            compact(None, archive.place.root)
    wanted = expected(events)
    assert places(read(archive)) == wanted
    assert places(read(archive, OPEN_FILES=chance.choice([0, 1, 3]))) == wanted
    compact(None, archive.place.root)
    assert places(read(archive)) == wanted
    low, high = sorted(chance.randint(-10, 20) for _ in range(2))
    between = Between(DAWN + low, DAWN + high)
    # Turns follow from what is read.
    inside = [e for e in events if e["_time"] is not None and low <= e["_time"] - DAWN < high]
    assert places(read(archive, between)) == expected(inside)


def test_clocks_that_go_forward_cost_nothing(tmp_path: Path) -> None:
    archive = at(tmp_path)
    append(archive, [event(n, n) for n in range(10)])
    append(archive, [event(n, n) for n in range(10, 20)])
    compact(None, tmp_path)
    (file,) = archive.table().files.values()
    assert pq.read_schema(tmp_path / file.path).names == [*archive.table().columns.names, "_day"]
    assert (file.journal, file.offsets, file.rows) == ("b1", (0, 19), 20)


def test_events_without_offsets_keep_the_order_of_their_producers(tmp_path: Path) -> None:
    archive = at(tmp_path)
    ids = [("ann", 1, 8), ("ann", 1, 9), ("ann", 2, 0), ("ann", 2, 1), ("bob", 7, 3)]
    times = [50, 40, 30, 60, 45]  # ann restarts, and her clock is behind
    events = [
        event(0, time, broker=None, _offset=None, _id=f"{producer}:{epoch}:{sequence}")
        for (producer, epoch, sequence), time in zip(ids, times, strict=True)
    ]
    append(archive, random.Random(5).sample(events, len(events)))
    append(archive, [event(0, None, broker=None, _offset=None, _id=None)])
    found = defaultdict(list)
    for each in read(archive):
        found[(each["_id"] or "nobody").partition(":")[0]].append(each["_id"])
    assert found["ann"] == ["ann:1:8", "ann:1:9", "ann:2:0", "ann:2:1"]
    assert [e["_id"] for e in read(archive)][:2] == [None, "bob:7:3"]


def test_only_what_overlaps_in_time_is_open(tmp_path: Path) -> None:
    archive = at(tmp_path)
    for start in range(0, 40, 4):
        append(archive, [event(n, n) for n in range(start, start + 4)])
    assert places(read(archive, OPEN_FILES=2)) == [("b1", n) for n in range(40)]
    for broker in ("b2", "b3"):
        append(archive, [event(n, n, broker=broker) for n in range(40)])
    # If more do, some are opened again and again; the order and the rest are the same.
    opened: Counter[str] = Counter()
    now, most = 0, 0
    with pytest.MonkeyPatch.context() as patch:

        class Watched(merge._Open):
            def __init__(self, place: Place, path: str) -> None:
                nonlocal now, most
                super().__init__(place, path)
                opened[path] += 1
                now += 1
                most = max(most, now)

            def close(self) -> None:
                nonlocal now
                super().close()
                now -= 1

        patch.setattr(merge, "_Open", Watched)
        found = read(archive, OPEN_FILES=2, ROWS=6)
    assert sorted(places(found), key=lambda at: (at[1], journal_code(at[0]))) == places(found)
    assert len(found) == 120
    assert (now, most) == (0, 3)
    assert max(opened.values()) > 1


def test_a_clock_that_is_years_ahead_takes_nobody_along(tmp_path: Path) -> None:
    archive = at(tmp_path)
    for start in range(0, 20, 4):
        batch = [event(n, ABSURD if n == 5 else n) for n in range(start, start + 4)]
        append(archive, batch)
    assert places(read(archive)) == [("b1", n) for n in range(20)]
    compact(None, tmp_path)
    assert places(read(archive)) == [("b1", n) for n in range(20)]


def test_a_file_that_is_missing_is_said(tmp_path: Path) -> None:
    archive = at(tmp_path)
    append(archive, [event(1, 1)])
    (name,) = archive.table().files
    (tmp_path / name).unlink()
    with pytest.raises(ArchiveError, match="is missing from the archive"):
        read(archive)
    (tmp_path / name).write_bytes(b"PAR1 nothing")
    with pytest.raises(ArchiveError, match="is damaged"):
        read(archive)
