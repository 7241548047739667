"""Which pipelines run without Spark, what is told of those that cannot, and Spark's connectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.pipeline.runs import Pipeline, load
from stentor.pipeline.runs.engines import legs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = """\
[source.quotes]
kafka = ["quotes", "trades"]
servers = "k1:9092, k2:9092"
"""
BROKER = """\
[source.events]
brokers = ["127.0.0.1:7411"]
"""
INTO_BROKER = """\
[[sink]]
stentor = { brokers = ["127.0.0.1:7411"] }
"""
INTO_TOPIC = """\
[[sink]]
kafka = { topic = "copies", servers = "k1:9092", key = "symbol" }
"""


def read(tmp_path: Path, text: str) -> Pipeline:
    file = tmp_path / "p.toml"
    file.write_text(text)
    return load(file)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(PipelineDefinitionError) as caught:
        read(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def test_what_only_carries_events_is_a_bridge(tmp_path: Path) -> None:
    step = '[[step]]\nname = "dear"\nselect = "price > 100"\n'
    pipeline = read(tmp_path, TOPIC + step + INTO_BROKER)
    assert pipeline.engine == "bridge"
    (leg,) = legs(pipeline)
    assert (leg.source.name, leg.filters) == ("quotes", ("price > 100",))
    assert leg.source.options["servers"] == ["k1:9092", "k2:9092"]
    assert "a bridge, runs without Spark" in pipeline.describe()
    back = read(tmp_path, BROKER + INTO_TOPIC)
    assert back.engine == "bridge"
    assert "events to kafka, each record once" in back.describe()


@pytest.mark.parametrize(
    "text",
    [
        "engine = 'spark'\n" + BROKER + INTO_TOPIC,
        "[spark]\nmaster = 'local[1]'\n" + BROKER + INTO_TOPIC,
        BROKER + "schema = 'symbol string'\n" + INTO_TOPIC,
        BROKER + "[[step]]\nname = 's'\ntransform = { a = '1' }\n" + INTO_TOPIC,
        BROKER + "[[sink]]\njson = 'out'\n",
        BROKER + INTO_BROKER,
        BROKER + INTO_TOPIC + "trigger = '5s'\n",
    ],
)
def test_everything_else_is_for_spark(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).engine == "spark"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "engine = 'bridge'\n" + BROKER + "[[sink]]\njson = 'out'\n",
            "p.toml:4: from stentor to json only Spark goes, and the engine is a bridge",
        ),
        (
            "engine = 'bridge'\n" + TOPIC + "schema = 'a long'\n" + INTO_BROKER,
            "p.toml:5: 'schema' is for Spark, and the engine is a bridge",
        ),
        ("engine = 'fast'\n" + TOPIC + INTO_BROKER, "p.toml:1: it must be one of bridge, spark"),
        ("engine = 'spark'\n" + TOPIC + INTO_BROKER, "p.toml:2: schema is missing: Spark reads"),
        (
            TOPIC + "schema = 'a long'\nformat = 'avro'\n" + INTO_BROKER,
            "p.toml:5: Spark's connector knows no schema registry, so avro needs a bridge",
        ),
        (
            "engine = 'spark'\n" + BROKER + INTO_TOPIC.replace(" }", ", exactly_once = true }"),
            "p.toml:5: Spark writes to Kafka at least once",
        ),
        (
            TOPIC + "settings = { group.id = 'mine' }\n" + INTO_BROKER,
            "p.toml:4: group.id is not for you to set",
        ),
        (
            TOPIC.replace("k2:9092", "k2") + INTO_BROKER,
            "p.toml:3: servers: 'k2' is not an address of a Kafka broker: host:port",
        ),
        (
            TOPIC + "dead_letter = { folder = 'x' }\n" + INTO_BROKER,
            'p.toml:4: dead_letter: it must be one of {topic = "…"}, {file = "…"} and {type',
        ),
        (
            "[source.t]\njdbc = 'jdbc:derby:x'\n[[sink]]\nconsole = true\n",
            "p.toml:1: give a table, or a query",
        ),
    ],
)
def test_mistakes_are_told_with_their_lines(tmp_path: Path, text: str, said: str) -> None:
    found = problems(tmp_path, text)
    assert found[0].startswith(said), found


def test_an_archive_may_be_called_a_delta_table(tmp_path: Path) -> None:
    named = [
        read(
            tmp_path, f"[source.past]\n{word} = 'in'\nfilter = 'n > 1'\n[[sink]]\n{word} = 'out'\n"
        )
        for word in ("archive", "delta")
    ]
    first, second = named
    assert first.sources == second.sources
    assert [sink.kind for sink in second.sinks.values()] == ["archive"]
    assert [each.options for each in first.sinks.values()] == [
        each.options for each in second.sinks.values()
    ]


# -- what Spark is told


def test_the_options_of_sparks_connector(tmp_path: Path) -> None:
    from stentor.pipeline.runs.connectors import kafka_source_options

    (tmp_path / "password").write_text("secret\n")
    more = f"""\
schema = "a long"
starting_offsets = "latest"
max_rows_per_batch = 500
fail_on_data_loss = false
settings = {{ sasl.password = "@{tmp_path}/password", "security.protocol" = "SASL_SSL" }}
"""
    source = read(tmp_path, TOPIC + more + INTO_BROKER).sources["quotes"]
    assert kafka_source_options(source.options, stream=True) == {
        "kafka.bootstrap.servers": "k1:9092,k2:9092",
        "kafka.sasl.password": "secret",
        "kafka.security.protocol": "SASL_SSL",
        "subscribe": "quotes,trades",
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "500",
        "failOnDataLoss": "false",
    }


@pytest.mark.slow
def test_without_the_connectors_jar_it_is_told_what_to_add(
    spark: SparkSession, tmp_path: Path
) -> None:
    from stentor.pipeline.runs import Runner

    reading = read(tmp_path, TOPIC + "schema = 'a long'\n[[sink]]\njson = 'out'\n")
    with pytest.raises(PipelineError, match=r"source 'quotes': Spark has no connector to Kafka"):
        Runner(reading, spark, once=True).run()
    (tmp_path / "in.json").write_text('{"symbol": "IBM"}')
    writing = read(tmp_path, "[source.files]\njson = 'in.json'\n" + INTO_TOPIC)
    outcome = Runner(writing, spark, once=True).run()
    assert outcome.problem is not None
    assert "spark.jars.packages" in outcome.problem


@pytest.mark.slow
def test_records_and_events_in_spark(spark: SparkSession) -> None:
    """The same events as in a bridge, of records as Spark's connector gives them."""
    from stentor.pipeline.runs.connectors import KAFKA_SCHEMA, kafka_events, kafka_records

    rows = [
        (b"k", b'{"symbol": "IBM", "at": {"x": 1}}', "quotes", 3, 7, None),
        (None, b'{"symbol": "SAP", "at": null}', "quotes", 0, 8, None),
    ]
    records = spark.createDataFrame(rows, KAFKA_SCHEMA)
    options = {"schema": "symbol string, at struct<x: long>", "filter": "symbol = 'IBM'"}
    events = kafka_events(records, options)
    (found,) = [row.asDict(recursive=True) for row in events.collect()]
    assert found == {
        "symbol": "IBM",
        "at": {"x": 1},
        "_id": "kafka/quotes/3:0:7",
        "_type": "quotes",
        "_time": None,
        "kafka": {"topic": "quotes", "partition": 3, "offset": 7, "key": "k"},
    }
    (record,) = kafka_records(events.drop("kafka"), {"topic": "copies", "key": "at.x"}).collect()
    assert record.asDict() == {
        "topic": "copies",
        "key": "1",
        "value": '{"symbol":"IBM","at":{"x":1}}',
    }


def test_check_finds_unknown_columns_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    from stentor.pipeline.runs.analysis import check_tables
    from stentor.pipeline.runs.loader import read as read_loaded

    file = tmp_path / "p.toml"
    file.write_text(
        TOPIC
        + """\
schema = "symbol string, price double"
filter = "pricee > 1"
[source.more]
kafka = "more"
servers = "k1:9092"
schema = "symbol string, price double"
[source.table]
jdbc = "jdbc:derby:none"
table = "t"
[[step]]
name = "s"
from = "more"
select = "kafka.offset > 5 and prise > 5"
[[step]]
name = "t"
from = "more"
transform = { a = "rond(price)" }
[[sink]]
from = "more"
kafka = { topic = "copies", servers = "k1:9092", key = "symbl" }
[[sink]]
from = "s"
jdbc = { url = "jdbc:derby:none", table = "t" }
[[sink]]
from = "t"
csv = "out"
[[sink]]
from = "table"
json = "more"
[[sink]]
from = "quotes"
json = "quotes"
"""
    )
    loaded = read_loaded(file)
    unchecked = check_tables(loaded, spark)
    with pytest.raises(PipelineDefinitionError) as caught:
        loaded.document.check()
    found = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert [line.split(";")[0] for line in found] == [
        "p.toml:5: source 'quotes': there is no column 'pricee'",
        "p.toml:16: step 's': there is no column 'prise'",
        "p.toml:20: step 't': there is no function 'rond'",
        "p.toml:23: sink 'more-kafka': there is no column 'symbl'",
    ]
    assert unchecked == ["what is made of the source 'table' is not checked, as it has no schema"]


@pytest.mark.slow
def test_a_table_of_a_database_goes_through_a_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    """Derby comes with Spark."""
    from stentor.pipeline.runs import Runner

    url = f"jdbc:derby:{tmp_path}/db;create=true"
    table = spark.createDataFrame([(n, f"S{n % 3}") for n in range(30)], "n long, symbol string")
    table.write.format("jdbc").option("url", url).option("dbtable", "quotes").save()
    (tmp_path / "new").mkdir()
    lines = [f'{{"n": {n}, "symbol": "S1"}}' for n in range(100, 110)]
    (tmp_path / "new" / "a.json").write_text("\n".join(lines))
    pipeline = read(
        tmp_path,
        f"""
[source.quotes]
jdbc = "{url}"
table = "quotes"
[source.asked]
jdbc = "{url}"
query = 'select "n" from quotes where "n" < 3'
[source.new]
json = "new"
stream = true
schema = "n long, symbol string"
[[step]]
name = "chosen"
from = "quotes"
select = "n > 20"
[[sink]]
from = "chosen"
jdbc = {{ url = "{url}", table = "chosen" }}
[[sink]]
name = "stream"
from = "new"
jdbc = {{ url = "{url}", table = "arrived" }}
[[sink]]
from = "asked"
csv = "asked"
""",
    )
    assert pipeline.engine == "spark"
    assert Runner(pipeline, spark, once=True).run().problem is None
    again = Runner(pipeline, spark, once=True).run().problem
    assert again is not None  # a batch fails where something is, unless it is told otherwise
    assert "chosen" in again

    def rows(name: str) -> list[int]:
        found = spark.read.format("jdbc").option("url", url).option("dbtable", name).load()
        return sorted(row["n"] for row in found.collect())

    assert rows("chosen") == list(range(21, 30))
    assert rows("arrived") == list(range(100, 110))
    asked = spark.read.option("header", True).csv(str(tmp_path / "asked"))
    assert sorted(row[0] for row in asked.collect()) == ["0", "1", "2"]
    wrong = f"[source.q]\njdbc = '{url}'\nquery = 'select none from quotes'\n"
    with pytest.raises(PipelineError) as caught:
        Runner(read(tmp_path, wrong + "[[sink]]\nconsole = true\n"), spark, once=True).run()
    assert str(caught.value).startswith("source 'q': [JDBC_EXTERNAL_ENGINE_SYNTAX_ERROR")
    assert "\n" not in str(caught.value)
