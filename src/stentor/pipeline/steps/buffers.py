"""The buffer of one group of events that are put into order. See `ordering` for what it is for.

Everything here is about frames with the columns `micros`, `producer`, `epoch`, `sequence` and
`event`, and nothing knows of Spark.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

#: The time of an event that has none: before all others.
NO_TIME: Final = -(2**62)

_COLUMNS: Final = ("micros", "producer", "epoch", "sequence", "event")
_KEY: Final = ("effective", "producer", "epoch", "sequence")
_SCHEMA: Final = pa.schema(
    [
        ("effective", pa.int64()),
        ("micros", pa.int64()),
        ("producer", pa.string()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
        ("event", pa.string()),
    ]
)


class Mark(NamedTuple):
    """Where in the order an event stands."""

    effective: int
    producer: str
    epoch: int
    sequence: int


def arrange(events: pd.DataFrame) -> pd.DataFrame:
    """The events in their order, each with its effective time."""
    own = events[[*_COLUMNS]].sort_values(["producer", "epoch", "sequence"], kind="stable")
    own["effective"] = own.groupby("producer", sort=False)["micros"].cummax()
    return own.sort_values([*_KEY], kind="stable", ignore_index=True)


class Buffer:
    """Events that wait, in order, and the mark of the last that has left."""

    def __init__(self, waiting: pd.DataFrame | None = None, mark: Mark | None = None) -> None:
        self._waiting = arrange(self.nothing()) if waiting is None else waiting
        self._mark = mark

    @staticmethod
    def nothing() -> pd.DataFrame:
        """A frame without events."""
        return _SCHEMA.empty_table().to_pandas()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_time(self) -> int | None:
        """The effective time of the first that waits."""
        return int(self._waiting["effective"].iat[0]) if len(self._waiting) else None

    def take(self, arrived: pd.DataFrame) -> pd.DataFrame:
        """Add events; those that are late are not added, but returned."""
        if arrived.empty:
            return arrived
        mark = self._mark
        late = []
        if mark is not None:
            # Of the producer that the mark is from, its own order decides.
            own = (arrived["producer"] == mark.producer).to_numpy()
            behind = own & _before(arrived, mark, ("epoch", "sequence"))
            late.append(arrived[behind])
            floor = np.where(own, mark.effective, NO_TIME)
            arrived = arrived.assign(micros=np.maximum(arrived["micros"], floor))[~behind]
        together = [self._waiting, arrived] if len(self._waiting) else [arrived]
        waiting = arrange(pd.concat(together))
        if mark is not None:
            before = _before(waiting, mark, _KEY)
            late.append(waiting[before])
            waiting = waiting[~before].reset_index(drop=True)
        self._waiting = waiting
        return pd.concat(late) if late else self.nothing()

    def release(self, watermark: int, limit: int) -> pd.DataFrame:
        """Let go those that the watermark has passed, and those for which there is no room."""
        passed = int(np.searchsorted(self._waiting["effective"].to_numpy(), watermark, "left"))
        count = max(passed, len(self._waiting) - limit)
        released = self._waiting.iloc[:count]
        if count:
            last = released.iloc[-1]
            self._mark = Mark(
                int(last["effective"]),
                str(last["producer"]),
                int(last["epoch"]),
                int(last["sequence"]),
            )
            self._waiting = self._waiting.iloc[count:].reset_index(drop=True)
        return released

    def dump(self) -> bytes:
        """The buffer as bytes, for the state of a query."""
        metadata = {} if self._mark is None else {"mark": msgspec.json.encode(self._mark)}
        schema = _SCHEMA.with_metadata(metadata)
        table = pa.Table.from_pandas(self._waiting, schema=schema, preserve_index=False)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, schema, options=options) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def load(cls, data: bytes) -> Buffer:
        """What `dump` wrote."""
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
            noted = (reader.schema.metadata or {}).get(b"mark")
        mark = None if noted is None else Mark(*msgspec.json.decode(noted))
        return cls(table.to_pandas(), mark)


def _before(events: pd.DataFrame, mark: Mark, names: tuple[str, ...]) -> np.ndarray:
    """Which events stand before the mark, compared by these columns from left to right."""
    before = np.zeros(len(events), bool)
    equal = np.ones(len(events), bool)
    for name in names:
        values, limit = events[name].to_numpy(), getattr(mark, name)
        before |= equal & (values < limit)
        equal &= values == limit
    return before
