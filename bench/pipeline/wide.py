"""Reading two attributes of events that have sixty-two: what leaves the broker, and what it costs.

    whole      all attributes are sent, and the reader passes over them
    projected  the broker leaves out what the reader has no column for

Both make the same record batches, in turns, in this process; the broker runs in another one. No
Spark. `PYTHONPATH=src:bench python -m pipeline.wide` prints bytes and microseconds per event: until
it is read, of the reader's processor, and of the broker's.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

from live.brokers import BrokerProcess
from stentor.client.direct import Direct
from stentor.client.encoding import EventEncoder

EVENTS: Final = 20_000
TURNS: Final = 5


def measure_wide(events: int = EVENTS, turns: int = TURNS) -> dict[str, Any]:
    """Both ways; the best of several turns."""
    with (
        TemporaryDirectory(prefix="stentor-bench-") as folder,
        BrokerProcess("b1", data=Path(folder) / "b1") as broker,
    ):
        readings = [f"reading_{number}" for number in range(60)]
        drawn = [
            {"symbol": "IBM", "price": n / 8, **{name: f"{name} is {n}" for name in readings}}
            for n in range(events)
        ]
        with Direct(broker.address, name="desk") as direct:
            direct.publish(EventEncoder("desk", 1).many(drawn, 0, datetime.now(UTC)))
        found: dict[str, list[dict[str, float]]] = {"whole": [], "projected": []}
        for _ in range(turns):
            for way, figures in found.items():
                figures.append(_read(broker, events, projected=way == "projected"))
    return {
        way: {name: min(each[name] for each in figures) for name in figures[0]}
        for way, figures in found.items()
    }


def _read(broker: BrokerProcess, events: int, *, projected: bool) -> dict[str, float]:
    from pyspark.sql.types import StructType

    from stentor.pipeline.columns import BatchMaker

    schema = StructType().add("symbol", "string").add("price", "double").add("_offset", "long")
    maker = BatchMaker(schema)
    names = maker.layout.asked_for if projected else None
    size = rows = 0
    with Direct(broker.address) as direct:
        (state,) = direct.streams()
        began, own, theirs = perf_counter(), process_time(), broker.processor_seconds
        for part in direct.read(state.stream, 1, state.head, headers=True, attributes=names):
            size += sum(map(len, part.items))
            batch = maker.batch(part.items, part.offsets, stream=state.stream, broker="b1")
            rows += batch.num_rows
        took = perf_counter() - began, process_time() - own, broker.processor_seconds - theirs
    if rows != events:
        raise SystemExit(f"wrong: {rows} of {events} events")
    names_of = ("us", "reader_us", "broker_us")
    return {
        "bytes": size / events,
        **{n: 1e6 * t / events for n, t in zip(names_of, took, strict=True)},
    }


if __name__ == "__main__":
    print(json.dumps(measure_wide(), indent=2))
