"""Columns that change their types: the past stays what it was, to the last digit.

Batches come with columns whose types change from one to the next, and with values at the ends of
what these types hold; compactions come in between. The oracle knows only what was published.
"""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from archive_events import DAWN, append, at
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from stentor.errors import ArchiveError
from stentor.filters import Filter
from stentor.pipeline.archives import archive, compact, history
from stentor.pipeline.archives.columns import (
    as_columns,
    attribute_name,
    column_name,
    grown,
    logical,
)
from stentor.pipeline.archives.continuation import ArchivePart, HistoryReader
from stentor.pipeline.archives.frames import part_of, spark_schema
from stentor.pipeline.archives.moments import Between
from stentor.pipeline.archives.pasts import ArchivedEvents
from stentor.pipeline.archives.replayer import Encoders, Events
from stentor.pipeline.archives.schemas import CORRUPT, fitted, joined_types
from stentor.pipeline.archives.statistics import may_lose
from stentor.pipeline.archives.tables import Archive, File
from stentor.pipeline.columns import with_reserved
from stentor.pipeline.columns.types import TIME, list_of

EDGE = 2**53
WHOLE = [0, 1, -1, 7, EDGE - 1, EDGE, EDGE + 1, -EDGE - 1, 2**60 + 1, 2**63 - 1, -(2**63), None]
FRACTIONS = [
    0.0, -0.0, 1.0, 0.1, 2.5, float(EDGE), float(EDGE + 2), 2.0**63, -(2.0**63), 5e-324, 1.8e308,
    float("inf"), float("-inf"), float("nan"), None,
]  # fmt: skip
CENTS = [Decimal("0.10"), Decimal("2.50"), Decimal("7.00"), Decimal("-1.25"), None]
DIGITS = [Decimal(7), Decimal(EDGE + 1), Decimal(2**63 - 1), Decimal(-1), None]

#: Types that a number may have, and values of each.
NUMBERS: list[tuple[DataType, list[Any]]] = [
    (LongType(), WHOLE),
    (DoubleType(), FRACTIONS),
    (DecimalType(9, 2), CENTS),
    (DecimalType(19, 0), DIGITS),
]
CONSTANTS = [
    "0", "1", "7", "0.1", "2.5", str(EDGE), str(EDGE + 1), str(EDGE + 2), f"{float(EDGE + 2)!r}",
    str(-EDGE - 1), str(2**60), str(2**60 + 1), str(2**63 - 1), str(-(2**63)), "9.3e18", "1e300",
]  # fmt: skip
FILTERS = [
    "",
    *(f"x {op} {constant}" for op in ("=", "!=", "<", ">=") for constant in CONSTANTS),
    *(f"deep.y {op} {constant}" for op in ("=", ">") for constant in CONSTANTS),
    *(f"list has {constant}" for constant in CONSTANTS),
    *(f"x between {EDGE} and {c}" for c in CONSTANTS),
    *(f"{name} is {kind}" for name in ("x", "deep.y") for kind in ("int", "float", "missing")),
    "exists x and not deep.y = 1",
    "some list > 9007199254740992",
]
PLAIN = {
    "_id": StringType(),
    "_time": TimestampType(),
    "_broker": StringType(),
    "_offset": LongType(),
}


def published(value: Any) -> Any:
    """What is published of the value of a column; None if nothing is."""
    if isinstance(value, list):
        return tuple(v for v in map(published, value) if v is not None)
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return None if value is None or value != value else value


def shown(attributes: Any) -> list[tuple[str, str]]:
    """With types and signs, which `==` does not tell."""
    return sorted((name, repr(value)) for name, value in attributes.items())


class Past:
    """Batches of random types and values, and what was published with them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.attributes: dict[int, dict[str, Any]] = {}
        self.times: dict[int, int] = {}
        self.raw: dict[int, dict[str, Any]] = {}

    def batch(self, numbers: list[tuple[DataType, list[Any]]]) -> tuple[StructType, list[Any]]:
        chance = self.chance
        schema = StructType()
        pools = {}
        for name in ("x", "deep", "list"):
            if chance.random() < 0.8:
                kind, pools[name] = chance.choice(numbers)
                if name == "deep":
                    kind = StructType().add("y", kind)
                schema.add(name, ArrayType(kind) if name == "list" else kind)
        for name, kind in PLAIN.items():
            schema.add(name, kind)
        return schema, [self.event(pools) for _ in range(chance.randrange(1, 5))]

    def event(self, pools: dict[str, list[Any]]) -> dict[str, Any]:
        chance, number = self.chance, len(self.raw) + 1
        row: dict[str, Any] = {}
        for name, pool in pools.items():
            if name == "list":
                row[name] = chance.choice([None, chance.choices(pool, k=chance.randrange(3))])
            else:
                value = chance.choice(pool)
                row[name] = chance.choice([None, {"y": value}]) if name == "deep" else value
        flat = {k: v for k, v in row.items() if k != "deep"}
        flat["deep.y"] = (row.get("deep") or {}).get("y")
        found = {k: published(v) for k, v in flat.items()}
        self.attributes[number] = {k: v for k, v in found.items() if v is not None}
        self.raw[number] = flat
        self.times[number] = DAWN + chance.randrange(100)
        more = {"_id": f"p:1:{number}", "_broker": "b1", "_offset": number}
        return row | more | {"_time": self.times[number]}

    def matching(self, filter: Filter, between: Between) -> set[int]:
        return {
            number
            for number, attributes in self.attributes.items()
            if filter.matches(attributes) and between.meets(self.times[number], self.times[number])
        }


def some_times(chance: random.Random) -> Between:
    since, until = sorted(chance.sample(range(-5, 105), 2))
    return Between(
        chance.choice([None, DAWN + since]),
        chance.choice([None, DAWN + until]),
    )


def written(directory: Path, chance: random.Random, numbers: Any = NUMBERS) -> tuple[Archive, Past]:
    found, past = at(directory), Past(chance)
    for _ in range(chance.randrange(1, 7)):
        schema, events = past.batch(numbers)
        append(found, events, schema=schema)
        if chance.random() < 0.4:
            compact(None, directory)
    return found, past


def number_of(id: str) -> int:
    return int(id.rpartition(":")[2])


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_read_without_spark_is_what_was_published(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """`replay` and `past`: for every filter and every time, the same values of the same types."""
    chance = random.Random(seed)
    archived, past = written(tmp_path_factory.mktemp("archive"), chance)
    table = archived.table()
    for text in chance.sample(FILTERS, 8):
        between, filter, encoders = some_times(chance), Filter(text), Encoders()
        wanted = past.matching(filter, between)
        found = {}
        for portion in Events(table, filter, between).behind():
            for batch in portion.events.to_batches():
                drafts = encoders.of(batch.schema).drafts(batch)
                for id, draft in zip(batch.column("_id").to_pylist(), drafts, strict=True):
                    found[number_of(id)] = shown(draft.attributes)
        # An event without attributes, type, subject and channel cannot be published.
        expected = {n: shown(past.attributes[n]) for n in wanted if past.attributes[n]}
        assert found == expected, text
        assert_live(archived, past, filter)


def assert_live(archived: Archive, past: Past, filter: Filter) -> None:
    """What a live history gives out of the archive."""
    table = archived.table()
    schema = with_reserved(spark_schema(table.schema))
    options = {"historyPath": table.place.root, "historyVersion": str(table.version)}
    reader = HistoryReader(schema, options | {"filter": str(filter)})
    part = ArchivePart(part_of(table, list(table.files.values()), str(filter)))
    found = set()
    for batch in reader.read(part):
        for row in batch.to_pylist():
            number = number_of(row["_id"])
            found.add(number)
            assert_fits(row | {"deep.y": (row.get("deep") or {}).get("y")}, past.raw[number])
    assert found == past.matching(filter, Between())


def assert_fits(row: dict[str, Any], was: dict[str, Any]) -> None:
    """Each value is what was published, or null and in `_corrupt`."""
    told = json.loads(row.get("_corrupt") or "{}")
    for name, value in was.items():
        if name not in row or value is None:
            assert name not in told
        elif name in told:
            assert row[name] is None
            assert value != float(value) if not isinstance(value, list) else value
        elif isinstance(value, list):
            assert [same(a, b) for a, b in zip(row[name], value, strict=True)] == [True] * len(
                value
            )
        else:
            assert same(row[name], value), (name, row, was)
    assert not told.keys() - was.keys()


def same(a: Any, b: Any) -> bool:
    """Equal as numbers, where a decimal is what its shortest form says."""
    if isinstance(a, float) and isinstance(b, Decimal):
        return Decimal(repr(a)) == b
    return bool(a == b or (a != a and b != b))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_history_is_what_was_published(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    found, past = written(tmp_path, chance)
    while sum("@" in name for name in found.table().columns.names) < 2:
        schema, events = past.batch(NUMBERS)
        append(found, events, schema=schema)
    for text in ["", f"x = {EDGE + 1}", "x is int", *chance.sample(FILTERS, 3)]:
        between, filter = some_times(chance), Filter(text)
        first, last = (None if t is None else _time(t) for t in between)
        rows = history(spark, tmp_path, filter, since=first, until=last).collect()
        assert {number_of(row["_id"]) for row in rows} == past.matching(filter, between), text
        for row in rows:
            plain = row.asDict(recursive=True)
            plain["deep.y"] = (plain.get("deep") or {}).get("y")
            assert_fits(plain, past.raw[number_of(row["_id"])])


def _time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def test_a_column_that_becomes_double_leaves_large_integers_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Through `archive` itself: what was found before the change is found after it."""
    large = EDGE + 1
    archive(spark.createDataFrame([(large + 2 * n,) for n in range(1_000)], "x long"), tmp_path)
    archive(spark.createDataFrame([(0.5,), (float(EDGE),)], "x double"), tmp_path)
    for _ in range(2):
        assert history(spark, tmp_path, f"x = {large}").count() == 1
        assert history(spark, tmp_path, f"x = {EDGE}").count() == 1
        assert history(spark, tmp_path, f"x >= {large}").count() == 1_000
        (row,) = history(spark, tmp_path, f"x = {large}").collect()
        assert row.x is None
        assert json.loads(row["_corrupt"]) == {"x": large}
        assert history(spark, tmp_path).where("x is null").count() == 1_000
        compact(spark, tmp_path)


def test_files_of_several_types_become_one_of_each(tmp_path: Path) -> None:
    """However they alternate; a file that lacks the column goes with the first."""
    found = at(tmp_path)
    for number in range(1, 10):
        kind = [LongType(), DoubleType(), None][number % 3]
        schema = StructType() if kind is None else StructType().add("x", kind)
        for name, other in PLAIN.items():
            schema.add(name, other)
        more = {"_id": f"p:1:{number}", "_broker": "b1", "_offset": number, "_time": DAWN}
        append(found, [{"x": 1, **more}], schema=schema)
    assert compact(None, tmp_path).files_after == 2
    assert len(found.table().files) == 2
    assert found.table().rows == 9


def test_the_past_of_a_subscription_has_the_types_of_its_events(tmp_path: Path) -> None:
    found = at(tmp_path)
    columns = {**PLAIN, "_stream": StringType()}
    values: list[tuple[DataType, Any]] = [(LongType(), EDGE + 1), (DoubleType(), 5.0)]
    for number, (kind, value) in enumerate([*values, *values], 1):
        schema = StructType().add("x", kind)
        for name, other in columns.items():
            schema.add(name, other)
        where = {"_broker": "b1", "_stream": "b1#1", "_offset": number, "_time": DAWN + number}
        append(found, [{"x": value, "_id": f"p:1:{number}", **where}], schema=schema)
    compact(None, tmp_path)
    recalled = ArchivedEvents(found.table(), Filter("exists x"), Between())
    values_found = [n["x"] for portion in recalled.portions() for n in portion]
    assert list(map(repr, values_found)) == ["9007199254740993", "5.0"] * 2
    assert pa.types.is_floating(found.table().schema.field("x").type)


def test_records_in_lists_keep_their_numbers_too() -> None:
    """Nobody publishes such a column, but it can be archived."""
    one = pa.struct([("n", pa.int64()), ("d", pa.decimal128(9, 2))])
    other = pa.struct([("n", pa.float64()), ("d", pa.float64()), ("s", pa.string())])
    schema = pa.schema([("l", list_of(other)), CORRUPT])
    rows = [[{"n": 1, "d": Decimal("0.10")}], [{"n": EDGE + 1, "d": None}], None, []]
    old = pa.record_batch([pa.array(rows, list_of(one))], names=["l"])
    assert joined_types("l", old.schema.field(0).type, schema.field(0).type) == schema.field(0).type
    found = fitted(old, schema).to_pylist()
    assert found[0] == {"l": [{"n": 1.0, "d": 0.1, "s": None}], "_corrupt": None}
    assert found[1]["l"] is None
    assert json.loads(found[1]["_corrupt"]) == {"l": [{"n": EDGE + 1, "d": None, "s": None}]}
    assert [row["l"] for row in found[2:]] == [None, []]
    file = File("f", None, None, 4, 1, 0)
    assert may_lose(file, "l", old.schema.field(0).type, schema.field(0).type)


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(6, 4), pa.decimal128(11, 4)),
        (pa.decimal128(9, 2), pa.int64(), pa.decimal128(21, 2)),
        (pa.decimal128(9, 2), pa.float64(), pa.float64()),
        (pa.decimal128(38, 10), pa.int64(), pa.decimal128(38, 10)),
        (pa.decimal128(38, 30), pa.int64(), pa.float64()),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.float64()),
    ],
)
def test_numbers_of_two_types_in_one_table(
    old: pa.DataType, new: pa.DataType, both: pa.DataType
) -> None:
    for pair in ((old, new), (new, old)):
        first, second = (pa.schema({"x": kind}) for kind in pair)
        columns, own = grown(first, second)
        assert logical(columns) == pa.schema({"x": both})
        assert own.names == [columns.names[1]] != ["x"]
        assert grown(columns, first) == (columns, first)


@pytest.mark.parametrize(
    "other", [pa.string(), pa.bool_(), pa.binary(), TIME, pa.list_(pa.int64())]
)
def test_what_is_no_number_is_never_united_with_one(other: pa.DataType) -> None:
    for kind in (pa.int64(), pa.float64(), pa.decimal128(9, 2)):
        with pytest.raises(ArchiveError, match="cast it"):
            grown(pa.schema({"x": kind}), pa.schema({"x": other}))


def test_tasks_know_what_the_program_has_declared_of_types(tmp_path: Path) -> None:
    """A live history asks the filter in tasks, where nothing is declared."""
    found = at(tmp_path)
    schema = StructType().add("x", LongType()).add("_type", StringType())
    append(found, [{"x": 1, "_type": "order"}, {"x": 2, "_type": "quote"}], schema=schema)
    table = found.table()
    part = part_of(table, list(table.files.values()), "isa document")
    assert list(part.read()) == []
    told = part._replace(lineage={"order": frozenset({"order", "document"})})
    assert [row["x"] for events in told.read() for row in events.to_pylist()] == [1]


NAMES = [
    "plain", "a b", "a,b;c", "{x}(y)=z", "100%", "100%25", "a@b", "tab\tnew\nline", "ünï.cødé", "𝕏"
]  # fmt: skip


def test_any_name_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """The format forbids some characters, and two names must never become one."""
    assert len({column_name(name) for name in NAMES}) == len(NAMES)
    assert [attribute_name(column_name(name)) for name in NAMES] == NAMES
    inner = StructType([StructField(name, LongType()) for name in NAMES if "." not in name])
    schema = StructType([StructField(name, LongType()) for name in NAMES]).add("in here", inner)
    row = (*range(len(NAMES)), tuple(range(len(inner))))
    archive(spark.createDataFrame([row], schema), tmp_path)
    archive(spark.createDataFrame([(0.5,)], StructType().add("100%", DoubleType())), tmp_path)
    assert "100%25@double" in at(tmp_path).table().columns.names
    assert not [n for n in at(tmp_path).table().columns.names if set(n) & set(" .,;{}()\n\t=")]
    rows = history(spark, tmp_path).collect()
    assert history(spark, tmp_path).columns == [*NAMES, "in here", "_type"]
    first = next(row for row in rows if row["plain"] == 0).asDict(recursive=True)
    assert first["in here"] == {f.name: i for i, f in enumerate(inner.fields)}
    assert [first[name] for name in NAMES] == list(range(len(NAMES)))
    assert sorted(row["100%"] for row in rows) == [0.5, 4.0]
    assert history(spark, tmp_path, '"a b" = 1 and "in here.100%" = 4').count() == 1


@given(st.text(max_size=12))
def test_names_come_back(name: str) -> None:
    assert attribute_name(column_name(name)) == name


def test_structs_under_other_names(tmp_path: Path) -> None:
    kind = pa.struct({"a b": pa.int64()})
    batch = pa.record_batch([pa.array([{"a b": 1}, None], kind)], names=["s"])
    _, own = grown(pa.schema([]), batch.schema)
    assert as_columns(batch, own).to_pylist() == [{"s": {"a%20b": 1}}, {"s": None}]


def test_decimals_that_become_doubles_are_rounded_to_the_nearest() -> None:
    numbers = [Decimal("293.888"), Decimal("-782.247"), None, Decimal("0.001")]
    kind, wanted = pa.decimal128(18, 3), pa.float64()
    shapes: tuple[Callable[[Any], Any], ...] = (
        lambda number: number,
        lambda number: {"x": number},
        lambda number: [number],
        lambda number: [{"x": number}],
    )
    types: tuple[Callable[[pa.DataType], pa.DataType], ...] = (
        lambda kind: kind,
        lambda kind: pa.struct([("x", kind)]),
        list_of,
        lambda kind: list_of(pa.struct([("x", kind)])),
    )
    for shape, type_of in zip(shapes, types, strict=True):
        rows = [shape(number) for number in numbers]
        old = pa.record_batch({"a": pa.array(rows, type_of(kind))})
        new = fitted(old, pa.schema([("a", type_of(wanted)), CORRUPT]))
        assert new.column("_corrupt").null_count == len(rows)
        doubles = [None if number is None else float(number) for number in numbers]
        assert new.column("a").to_pylist() == [shape(double) for double in doubles]
