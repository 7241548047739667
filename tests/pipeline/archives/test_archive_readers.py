"""Archives through readers that nobody here wrote: DuckDB, Polars, pandas, deltalake; and without
Spark."""

import math
import os
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from archive_events import DAWN, append, at, event
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, DoubleType, LongType, StringType, StructType

import stentor
from stentor.errors import ArchiveError, InvalidConfiguration, InvalidValue
from stentor.pipeline.archives import archive, compact
from stentor.pipeline.archives import history as spark_history
from stentor.pipeline.archives.moments import from_micros

LARGE = 2**53 + 1
NAN, INF = float("nan"), float("inf")
SCHEMA = (
    "symbol string, price double, n long, d decimal(20,4), at struct<x: long, y: string>, "
    "tags array<string>, _id string, _type string, _time timestamp, _broker string, _offset long"
)


@pytest.fixture(scope="module")
def duck() -> Any:
    """DuckDB with its own extension for Delta tables, from a package rather than a download."""
    folder = Path(duckdb_extension_delta.__file__).parent
    (extension,) = folder.glob("extensions/*/delta.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def rows_of() -> list[tuple[Any, ...]]:
    rows = []
    for n in range(60):
        price = [1.5 * n, NAN, INF, -INF, None][0 if n % 10 else n // 10 % 5]
        time = None if n == 7 else from_micros(DAWN) + timedelta(hours=n, microseconds=n)
        kind = ["quote.stock", "trade", None, "news/ä b"][n % 4]
        rows.append(
            (
                "s" * 60 + chr(0x10FFFF) if n == 3 else f"s{n % 3}",
                price,
                LARGE + n,
                Decimal(n) / 10_000,
                (n, f"y{n}") if n % 2 else None,
                ["a", f"t{n}"],
                f"p:1:{n}",
                kind,
                time,
                "b1",
                n + 1,
            )
        )
    return rows


@pytest.fixture(scope="module")
def quotes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quotes") / "archive"
    rows = rows_of()
    for part in (rows[:20], rows[20:]):
        archive(spark.createDataFrame(part, SCHEMA).coalesce(1), path)
    archive(spark.createDataFrame([(0.5, "later")], "n double, note string"), path)
    return path


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


def test_every_reader_sees_the_same_rows(duck: Any, quotes: Path) -> None:
    wanted = sorted(rows_of(), key=lambda row: row[10])
    names = [part.strip().split(" ")[0] for part in SCHEMA.split(", ") if "y: string" not in part]
    columns = ", ".join(f'"{name}"' for name in names)
    query = f"select {columns} from delta_scan('{quotes}')"
    arrow = DeltaTable(quotes).to_pyarrow_table()
    # NumPy's integers cannot be missing, and would be rounded.
    exact = DeltaTable(quotes).to_pandas(types_mapper=pd.ArrowDtype)
    tables = {
        "duckdb": duck.sql(query).to_arrow_table(),
        "polars": pl.read_delta(str(quotes)).to_arrow(),
        "deltalake": arrow,
        "pandas": pa.Table.from_pandas(exact, schema=arrow.schema),
        "stentor": stentor.history(quotes).to_arrow(),
    }
    for reader, table in tables.items():
        found = [row for row in table.to_pylist() if row["_offset"] is not None]
        found.sort(key=lambda row: row["_offset"])
        assert len(found) == len(wanted), reader
        for row, was in zip(found, wanted, strict=True):
            for name, value in zip(names, was, strict=True):
                if name == "at" and value is not None:
                    value = {"x": value[0], "y": value[1]}
                if name == "n" and reader == "stentor":
                    continue  # one column again, of another type
                assert same(row[name], value), (reader, name, row)
    assert duck.sql(
        f"select \"n@double\" from delta_scan('{quotes}') where note = 'later'"
    ).fetchall() == [(0.5,)]


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("_type = 'quote.stock'", 15),
        ("_type is null", 16),
        ("_day = '2026-01-02'", 24),
        ("_day is null", 2),
        ("price > 1e300", 2),  # in SQL, what is not a number is greater than all
        ("price = 'inf'::double", 1),
        ("price < -1e300", 1),
        (f"n = {LARGE}", 1),
        (f"n > {LARGE + 58}", 1),
        ("symbol > 'ss'", 1),
        ("symbol like 'sss%'", 1),
        ("d = 0.0059", 1),
        ('"at".x = 59', 1),
        ("_time >= '2026-01-03 11:00:00.000059+00'", 1),
        ("_time > '2026-01-03 11:00:00.000059+00'", 0),
    ],
)
def test_no_reader_passes_over_what_matches(
    duck: Any, quotes: Path, condition: str, count: int
) -> None:
    """By the statistics in the log, and by those in the files."""
    found = duck.sql(f"select count(*) from delta_scan('{quotes}') where {condition}").fetchone()
    assert found == (count,)


def test_an_average_of_each_symbol(duck: Any, tmp_path: Path) -> None:
    for n in range(9):
        append(at(tmp_path), [event(n, n)])
    query = f"select symbol, avg(price) from delta_scan('{tmp_path}') group by 1 order by 1"
    assert duck.sql(query).fetchall() == [("s0", 3.0), ("s1", 4.0), ("s2", 5.0)]
    compact(None, tmp_path)
    assert duck.sql(query).fetchall() == [("s0", 3.0), ("s1", 4.0), ("s2", 5.0)]
    lazily = pl.scan_delta(str(tmp_path)).filter(pl.col("price") > 6).select("_offset").collect()
    assert sorted(lazily["_offset"]) == [7, 8]


def test_what_is_not_a_number_stays_where_sql_looks_for_it(duck: Any, tmp_path: Path) -> None:
    """Parquet's own statistics leave it out, so there are none for such a column."""
    prices = [1.0, NAN, 2.0]
    append(at(tmp_path), [event(n, n, price=price) for n, price in enumerate(prices)])
    append(at(tmp_path), [event(3, 3, price=5.0)])
    for _ in range(2):
        query = f"select count(*) from delta_scan('{tmp_path}') where price > 3"
        assert duck.sql(query).fetchone() == (2,)
        assert stentor.history(tmp_path, "price > 3").to_arrow()["_offset"].to_pylist() == [3]
        missing = stentor.history(tmp_path, "price is missing").to_arrow()
        assert missing["_offset"].to_pylist() == [1]
        compact(None, tmp_path)


def test_history_without_spark(spark: SparkSession, quotes: Path) -> None:
    for text, since, until in [
        ("", None, None),
        ("isa quote and at.x > 3", None, None),
        (f"n = {LARGE + 5}", None, None),
        ("price is missing or symbol = 's1'", "2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"),
        ("note = 'later'", None, None),
    ]:
        found = stentor.history(quotes, text, since, until)
        wanted = spark_history(spark, quotes, text, since, until)
        table = found.to_arrow()
        assert table.schema.names == wanted.columns
        ids = sorted(str(row["_id"]) for row in wanted.select("_id").collect())
        assert sorted(map(str, table["_id"].to_pylist())) == ids
        assert len(found.to_pandas()) == found.to_polars().height == len(ids)
    found = stentor.history(quotes, "exists _time")
    offsets = found.to_arrow()["_offset"].to_pylist()
    assert offsets == sorted(offsets)


def test_one_type_and_day_reads_only_its_files(spark: SparkSession, quotes: Path) -> None:
    since, until = "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"
    found = stentor.history(quotes, "_type = 'trade'", since, until)
    assert {(file.type, file.day) for file in found.files} == {("trade", "2026-01-02")}
    read = spark_history(spark, quotes, "_type = 'trade'", since, until).inputFiles()
    assert {name.rpartition("/")[2] for name in read} == {
        file.path.rpartition("/")[2] for file in found.files
    }
    assert 0 < len(read) < len(at(quotes).table().files)


def test_questions_that_make_no_sense(quotes: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="is not before until"):
        stentor.history(quotes, since="1 hour", until="2 hours")
    with pytest.raises(ArchiveError, match="there is no archive at"):
        stentor.history(tmp_path)
    assert stentor.history(quotes, version=1).to_arrow().num_rows == 20
    with pytest.raises(ArchiveError, match=r"version .* no longer known, or not yet"):
        stentor.history(quotes, version=99)
    assert stentor.history(quotes, since="1d").to_arrow().num_rows == 0
    with pytest.raises(InvalidValue, match=r"since='noon' is not a time.* or for how long"):
        stentor.history(quotes, since="noon")
    with pytest.raises(InvalidConfiguration, match="first the session, then the path"):
        spark_history(quotes, "n = 1")  # type: ignore[arg-type]


def test_decimals_and_times_keep_their_digits(tmp_path: Path) -> None:
    schema = StructType().add("d", DecimalType(38, 10)).add("x", DoubleType()).add("n", LongType())
    schema = schema.add("_time", "timestamp").add("_id", StringType())
    digits = Decimal("1234567890123456789012345678.0123456789")
    row = {"d": digits, "x": 5e-324, "n": -(2**63), "_time": DAWN + 1, "_id": "p:1:1"}
    append(at(tmp_path), [row], schema=schema)
    (found,) = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert (found["d"], found["x"], found["n"]) == (digits, 5e-324, -(2**63))
    assert found["_time"] == from_micros(DAWN + 1)
    assert stentor.history(tmp_path, f"n = {-(2**63)}").to_arrow().num_rows == 1


def test_integers_are_exact_in_pandas(tmp_path: Path) -> None:
    schema = StructType().add("n", LongType()).add("x", DoubleType())
    append(at(tmp_path), [{"n": LARGE}, {"n": None, "x": 0.5}], schema=schema)
    found = stentor.history(tmp_path).to_pandas()
    assert found["n"].dropna().tolist() == [LARGE]


def test_no_spark_is_imported(tmp_path: Path) -> None:
    append(at(tmp_path), [event(1, 1)])
    program = (
        "import sys; from stentor import history; "
        f"found = history({str(tmp_path)!r}, since='2026-01-01T00:00:00Z').to_arrow(); "
        "assert found.num_rows == 1; "
        "assert 'pyspark' not in sys.modules"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run(
        [sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": path}
    )
