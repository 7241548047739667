"""Archives of batches: what is written, where, under which schema, and what is read of it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from stentor.errors import ArchiveError, InvalidConfiguration, UnsupportedColumn
from stentor.filters import Filter
from stentor.pipeline.archives import archive, compact, history
from stentor.pipeline.archives.appender import Appended
from stentor.pipeline.archives.data_files import safe_name
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.tables import Archive, Table

DAY = datetime(2026, 3, 29, tzinfo=UTC)

SCHEMA = "symbol string, price double, _id string, _type string, _time timestamp, n long"


def state(path: Path) -> Table:
    return Archive(place_of(path)).table()


def read_files(events: DataFrame) -> set[str]:
    return {unquote(name).removeprefix("file://") for name in events.inputFiles()}


@pytest.fixture(scope="module")
def quotes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """An archive of two days and several types, in two appends, and its rows."""
    path = tmp_path_factory.mktemp("quotes")
    kinds = ["quote.stock", "quote", "news/ä b", None, "x" * 200]
    rows = [
        (
            None if n % 7 == 0 else f"s{n % 5}",
            float("nan") if n % 11 == 0 else n / 2,
            f"p:1:{n}",
            kinds[n % 5],
            None if n % 13 == 0 else DAY + timedelta(hours=n),
            n,
        )
        for n in range(40)
    ]
    for part in (rows[:20], rows[20:]):
        archive(spark.createDataFrame(part, SCHEMA).repartition(2), path)
    return path, rows


def test_partitions_are_types_and_days_in_utc(quotes: tuple[Path, list[Any]]) -> None:
    path, rows = quotes
    found = state(path)
    wanted = {
        (kind, None if time is None else f"{time:%Y-%m-%d}") for _, _, _, kind, time, _ in rows
    }
    assert {(file.type, file.day) for file in found.files.values()} == wanted
    assert found.rows == 40
    for file in found.files.values():
        directory = Path(file.path).parts
        assert directory[1] == (safe_name(file.type) if file.type else "none")
        assert directory[2] == (file.day or "none")
        assert (path / file.path).stat().st_size == file.bytes
    names = {Path(file.path).parts[1] for file in found.files.values()}
    assert "news~2f~c3~a4~20b" in names
    assert max(map(len, names)) < 130


@pytest.mark.spec("R-07.86")
def test_history_is_what_a_subscriber_would_have_got(
    spark: SparkSession, quotes: tuple[Path, list[Any]]
) -> None:
    path, rows = quotes
    filters = [
        "",
        "",
        "symbol = 's1' and price > 3",
        "price < 4 or symbol is missing",
        "price is missing",
        "isa quote",
        "_type = 'quote' and not price > 20",
        "_time >= time '2026-03-30T00:00:00Z'",
        "symbol prefix 's' and price between 5 and 20",
        "_producer = 'p' and exists symbol",
        "volume > 1 or later = 'x'",
    ]
    bounds = [
        (None, None),
        (DAY + timedelta(hours=5), DAY + timedelta(hours=30)),
        ("2026-03-29T23:30:00+01:00", "2026-03-30T12:00:00Z"),
    ]
    asked = [(text, *bounds[i % 3]) for i, text in enumerate(filters)]
    frames = [
        history(spark, path, text, since, until).select(F.lit(i).alias("query"), "n")
        for i, (text, since, until) in enumerate(asked)
    ]
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionAll(frame)
    found: dict[int, set[int]] = {i: set() for i in range(len(asked))}
    for row in union.collect():
        assert row.n not in found[row.query]
        found[row.query].add(row.n)
    for i, (text, since, until) in enumerate(asked):
        assert found[i] == {row[5] for row in rows if wanted(row, text, since, until)}, asked[i]


def wanted(row: Any, text: str, since: Any, until: Any) -> bool:
    """By brute force, on the notification that the row stands for."""
    from stentor.model import Notification, NotificationId

    symbol, price, written, kind, time, n = row
    attributes = {"symbol": symbol, "price": None if price != price else price, "n": n}
    event = Notification(attributes, type=kind, id=NotificationId.parse(written), time=time)
    moments = [datetime.fromisoformat(m) if isinstance(m, str) else m for m in (since, until)]
    if any(moments) and time is None:
        return False
    return (
        Filter(text).matches(event)
        and (moments[0] is None or time >= moments[0])
        and (moments[1] is None or time < moments[1])
    )


def test_files_that_cannot_match_are_not_read(
    spark: SparkSession, quotes: tuple[Path, list[Any]]
) -> None:
    path, _ = quotes
    files = state(path).files.values()
    everything = history(spark, path)
    assert len(read_files(everything)) == len(files)

    def names(keep: Any) -> set[str]:
        return {str(path / file.path) for file in files if keep(file)}

    stock = history(spark, path, "_type = 'quote.stock'")
    assert read_files(stock) == names(lambda f: f.type == "quote.stock")
    kinds = history(spark, path, "isa quote")
    assert read_files(kinds) == names(lambda f: f.type in ("quote", "quote.stock"))
    day = history(spark, path, since=DAY + timedelta(days=1), until=DAY + timedelta(days=2))
    assert read_files(day) == names(lambda f: f.day == "2026-03-30")
    dear = history(spark, path, "price >= 15")
    assert read_files(dear) == names(
        lambda f: not f.lacks("price") and (f.bounds["price"].high or 99) >= 15
    )
    assert 0 < len(read_files(dear)) < len(files)
    assert history(spark, path, "price > 1000").collect() == []
    # What is left is pushed down to Parquet, which knows the times of its row groups.
    plan = day._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThanOrEqual(_time,2026-03-30" in plan


def test_what_pruning_leaves_is_all_that_tasks_read(
    spark: SparkSession, quotes: tuple[Path, list[Any]]
) -> None:
    path, _ = quotes
    found = history(spark, path, "_type = 'quote'").withColumn("file", F.input_file_name())
    read = {unquote(row.file).removeprefix("file://") for row in found.collect()}
    assert read == {str(path / f.path) for f in state(path).files.values() if f.type == "quote"}


def test_the_session_time_zone_has_no_say(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    times = [DAY - timedelta(microseconds=1), DAY, DAY + timedelta(hours=23, minutes=59)]
    rows = [(n, time) for n, time in enumerate(times)]
    try:
        for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            archive(spark.createDataFrame(rows, "n long, _time timestamp").coalesce(1), tmp_path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found = [(f.day, f.rows) for f in state(tmp_path).files.values()]
    assert sorted(found) == [("2026-03-28", 1)] * 2 + [("2026-03-29", 2)] * 2
    micros = history(spark, tmp_path).select("n", F.unix_micros("_time").alias("t")).collect()
    wanted = [(n, int(time.timestamp() * 1_000_000)) for n, time in rows]
    assert sorted((row.n, row.t) for row in micros) == sorted(wanted * 2)


def test_schemas_grow(spark: SparkSession, tmp_path: Path) -> None:
    """A new attribute next month, whole numbers that become fractions, deep ones too."""
    january = [(1, 10, (1,), [1, 2])]
    february = [(2.5, "new", (2.5, "y"), [1.5])]
    march = [(7, "x")]
    archive(
        spark.createDataFrame(
            january, "price int, volume long, at struct<x:int>, sizes array<int>"
        ),
        tmp_path,
    )
    archive(
        spark.createDataFrame(
            february, "price double, note string, at struct<x:double,y:string>, sizes array<double>"
        ),
        tmp_path,
    )
    archive(spark.createDataFrame(march, "price long, note string"), tmp_path)

    def check() -> None:
        found = history(spark, tmp_path)
        assert found.schema.simpleString() == (
            "struct<price:double,volume:bigint,at:struct<x:double,y:string>,"
            "sizes:array<double>,_type:string,note:string,_corrupt:string>"
        )
        rows = {row.price: row.asDict(recursive=True) for row in found.collect()}
        assert rows == {
            1.0: {
                "price": 1.0,
                "volume": 10,
                "at": {"x": 1.0, "y": None},
                "sizes": [1.0, 2.0],
                "note": None,
                "_type": None,
                "_corrupt": None,
            },
            2.5: {
                "price": 2.5,
                "volume": None,
                "at": {"x": 2.5, "y": "y"},
                "sizes": [1.5],
                "note": "new",
                "_type": None,
                "_corrupt": None,
            },
            7.0: dict.fromkeys(found.columns) | {"price": 7.0, "note": "x"},
        }
        assert history(spark, tmp_path, "at.x > 2 or price = 7").count() == 2

    check()
    assert state(tmp_path).columns.names == [
        "price", "volume", "at", "sizes", "_type", "price@double", "note", "sizes@array_double"
    ]  # fmt: skip
    done = compact(spark, tmp_path)
    # What was whole stays whole: the files of January and March are of one kind.
    assert (done.files_before, done.files_after, done.rows) == (2, 1, 2)
    check()


def test_what_contradicts_is_refused_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive(spark.createDataFrame([(1, (2,))], "x long, deep struct<y:long>"), tmp_path)
    before = state(tmp_path)
    for schema, text in [
        ("x string", r"'x' is a bigint in the archive and a string in the events; cast it"),
        ("deep struct<y:boolean>", r"'deep.y' is a bigint .* and a boolean"),
        ("deep string", r"'deep' is a struct<y:bigint> .* and a string"),
        ("X long", r"has a column x, and the events have X"),
    ]:
        with pytest.raises(ArchiveError, match=text):
            archive(spark.createDataFrame([], schema), tmp_path)
    for unsupported, text in [
        (StructType().add("d", DateType()), r"'d' is a date, which no attribute value is"),
        (StructType().add("_time", StringType()), r"_time is a timestamp, not a string"),
        (StructType().add("_day", TimestampType()), "has a column '_day' itself"),
        (StructType().add("v", NullType()), "no column to archive"),
        (StructType().add("a", LongType()).add("A", IntegerType()), "differ in case only"),
    ]:
        with pytest.raises(UnsupportedColumn, match=text):
            archive(spark.createDataFrame([], unsupported), tmp_path)
    assert state(tmp_path).version == before.version


def test_an_event_that_is_there_already(spark: SparkSession, tmp_path: Path) -> None:
    def events(*numbers: int | None) -> DataFrame:
        rows = [
            (n, None if n is None else f"p:1:{n}", None if n in (3, None) else DAY) for n in numbers
        ]
        return spark.createDataFrame(rows, "n long, _id string, _time timestamp")

    first = archive(events(1, 2, 3), tmp_path)
    assert isinstance(first, Appended)
    assert (first.version, first.rows) == (1, 3)
    assert archive(events(2), tmp_path).rows == 1  # nobody asked
    again = archive(events(1, 2, 3, 4, 4, None, None), tmp_path, deduplicate=True)
    assert again.rows == 3
    assert archive(events(4), tmp_path, deduplicate=True).rows == 0
    found = sorted(str(row.n) for row in history(spark, tmp_path).collect())
    assert found == ["1", "2", "2", "3", "4", "None", "None"]
    with pytest.raises(InvalidConfiguration, match="have no such column"):
        archive(spark.createDataFrame([(1,)], "x long"), tmp_path, deduplicate=True)


def test_questions_that_make_no_sense(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(1,)], "x long")
    with pytest.raises(ArchiveError, match="there is no archive at"):
        history(spark, tmp_path / "nowhere")
    with pytest.raises(InvalidConfiguration, match="these events are a batch"):
        archive(events, tmp_path, query_name="q")
    archive(events, tmp_path)
    for arguments, text in [
        ({"since": "1 hour", "until": "2 hours"}, "is not before until"),
        ({"live": True}, "needs the addresses of brokers"),
        ({"brokers": "b1:7411"}, "only with live=True"),
        ({"options": {"token": "x"}}, "used only with live=True"),
    ]:
        with pytest.raises(InvalidConfiguration, match=text):
            history(spark, tmp_path, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ArchiveError, match="does not say which events of which journal"):
        history(spark, tmp_path, brokers="127.0.0.1:1", live=True)
    assert history(spark, tmp_path, since="1 day").count() == 0  # it has no times


def test_paths_with_characters_of_patterns(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "[all] {x,y} 100% *"
    archive(spark.createDataFrame([("a", 1)], "_type string, x long"), path)
    assert [row.x for row in history(spark, path).collect()] == [1]
    assert compact(spark, f"file:{path}").files_after == 0
