"""What Spark knows of a pipeline before it runs: columns, functions, types, each with its line."""

import json
import socket
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stentor.errors import InvalidConfiguration, PipelineDefinitionError, PipelineError
from stentor.pipeline.runs.analysis import check_tables
from stentor.pipeline.runs.loader import read
from stentor.pipeline.runs.spark_session import check_master

HEAD = """
[source.names]
json = "names.json"
schema = "symbol string, name string"
[source.quotes]
brokers = ["127.0.0.1:1"]
schema = "symbol string, price double, volume long, at struct<x:double>, tags array<string>"
"""
SINK = '\n[[sink]]\nconsole = true\nmode = "append"\n'


def checked(spark: SparkSession, directory: Path, text: str) -> list[str]:
    file = directory / "market.toml"
    file.write_text(text)
    loaded = read(file)
    unchecked = check_tables(loaded, spark)
    loaded.document.check()
    return unchecked


def problems(spark: SparkSession, directory: Path, text: str) -> list[str]:
    with pytest.raises(PipelineDefinitionError) as found:
        checked(spark, directory, text)
    return str(found.value).replace(f"{directory}/", "").splitlines()


@pytest.mark.parametrize(
    ("step", "line", "said"),
    [
        (
            'select = "pricee > 5"',
            11,
            "there is no column 'pricee'; did you mean 'price'? known: sy",
        ),
        ('select = "price > 5 or at.y = 1"', 11, "there is no column 'at.y'"),
        (
            'from = "quotes"\n[step.transform.set]\na = "price"\nb = "pricee * 2"',
            14,
            "there is no column 'pricee'; did you mean 'price'? known:",
        ),
        ('transform = { r = "rond(price)" }', 11, "no function 'rond'; did you mean 'round'?"),
        ('transform = { r = "at.y + 1" }', 11, "there is no column 'y'; known: x"),
        ('transform = { r = "price + tags" }', 11, "DATATYPE_MISMATCH"),
        ('rename = { pricee = "p" }', 11, "'pricee'"),
        ('convert = { pricee = "long" }', 11, "'pricee'"),
        ('collapse = { key = ["symbl"], rule = { x = "max price" } }', 11, "'symbl'"),
        ('collapse = { key = ["symbol"], rule = { x = "max pric" } }', 11, "'pric'"),
        ('sql = "select smybol from quotes"', 11, "no column 'smybol'; did you mean 'symbol'?"),
        ('sql = "select * from qotes"', 11, "qotes"),
        ('enrich = { table = "names", on = ["nothing"] }', 11, "'nothing'"),
        (
            '[step.detect]\nwatermark = "1 second"\npattern = "A partition by symbl"\n'
            '[step.detect.events]\nA = "price > 1"',
            13,
            "no column 'symbl'; did you mean 'symbol'?",
        ),
        (
            '[step.detect]\nwatermark = "1 second"\npattern = "A partition by symbol"\n'
            '[step.detect.events]\nA = "pric > 1"',
            15,
            "no column 'pric'; did you mean 'price'?",
        ),
    ],
)
def test_what_does_not_exist_is_told_with_its_line(
    spark: SparkSession, tmp_path: Path, step: str, line: int, said: str
) -> None:
    (found,) = problems(spark, tmp_path, f'{HEAD}\n[[step]]\nname = "s"\n{step}\n{SINK}')
    assert found.startswith(f"market.toml:{line}: step 's': "), found
    assert said in found


def test_all_mistakes_at_once_and_none_twice(spark: SparkSession, tmp_path: Path) -> None:
    """What is made of a table that cannot be made says nothing more."""
    text = f"""{HEAD}
[[step]]
name = "one"
select = "a = 1"

[[step]]
name = "two"
select = "b = 1"

[[step]]
name = "three"
from = "quotes"
transform = {{ c = "nothing(price)" }}

[[sink]]
from = "quotes"
parquet = {{ path = "out", partition_by = ["symbl"] }}
"""
    found = problems(spark, tmp_path, text)
    assert [each.partition(": ")[0] for each in found] == [
        "market.toml:11",
        "market.toml:20",
        "market.toml:24",
    ]
    assert found[2].startswith("market.toml:24: sink 'quotes-parquet': there is no column 'symbl'")


def test_no_mistake_hides_another(spark: SparkSession, tmp_path: Path) -> None:
    """Those of the file, files that are missing, and several that Spark finds in one step."""
    text = f"""{HEAD}
[source.subscriptions]
parquet = "nowhere.parquet"
[source.others]
parquet = "nowhere.either"
[[step]]
name = "matched"
from = "quotes"
match = "subscriptions"
[[step]]
name = "after"
select = "prise > 1"
[[step]]
name = "bars"
from = "quotes"
[step.collapse]
key = ["symbl", "symbol"]
[step.collapse.rule]
open = "firstt price"
high = "max prise"
low = "min pryce"
close = "lst price"
[[step]]
name = "more"
from = "quotes"
[step.transform.set]
a = "uper(symbol)"
b = "pryce * 2"
c = "volume * 2"
[[step]]
name = "follows"
select = "d = 1"
[[step]]
name = "circle"
from = "ring"
select = "e = 1"
[[step]]
name = "ring"
from = "circle"
select = "e = 1"
[[sink]]
from = "after"
nothing = 1
[[sink]]
from = "quotes"
parquet = {{ path = "out", partition_by = ["symbl", "tag"] }}
"""
    found = [each.removeprefix("market.toml:") for each in problems(spark, tmp_path, text)]
    said = [(int(line), text) for line, _, text in (each.partition(": ") for each in found)]
    expected = [
        (10, "nowhere.parquet; make it first, as a table with the columns subscription_id and"),
        (12, "nowhere.either; make it first, or give a schema"),
        (19, "step 'after': there is no column 'prise'"),
        (24, "step 'bars': there is no column 'symbl'"),
        (26, "rule: the rule for 'open' has no meaning: 'firstt' is unknown; did you mean 'first'"),
        (27, "step 'bars': there is no column 'prise'"),
        (28, "step 'bars': there is no column 'pryce'"),
        (29, "rule: the rule for 'close' has no meaning: 'lst' is unknown; did you mean 'last'"),
        (34, "step 'more': there is no function 'uper'"),
        (35, "step 'more': there is no column 'pryce'"),
        (40, "it depends on itself: circle → ring → circle"),
        (50, "there is no key 'nothing' in sink[0]"),
        (53, "there is no column 'symbl'"),
        (53, "there is no column 'tag'"),
    ]
    assert [line for line, _ in said] == [line for line, _ in expected], "\n".join(found)
    for (_, told), (_, wanted) in zip(said, expected, strict=True):
        assert wanted in told


def test_what_is_right_passes_whatever_it_is_made_of(spark: SparkSession, tmp_path: Path) -> None:
    """No broker is there, no file is read, nothing is written."""
    (tmp_path / "names.json").write_text(json.dumps({"symbol": "IBM", "name": "Big"}) + "\n")
    text = f"""{HEAD}
[source.inferred]
json = "names.json"

[[step]]
name = "dear"
from = "quotes"
select = "price > 5 and at.x = 1 and tags has 'a' and _time > time '2026-01-01T00:00:00Z'"

[[step]]
name = "value"
transform = {{ value = "round(price * volume, 2)", kind = "upper(_type)" }}

[[step]]
name = "named"
enrich = {{ table = "inferred", on = ["symbol"] }}

[[step]]
name = "bars"
from = "quotes"
[step.collapse]
key = ["symbol"]
rule = {{ high = "max price", trades = "count" }}
window = "1 minute"
watermark = "10 seconds"

[[sink]]
from = "named"
archive = "archive"

[[sink]]
from = "bars"
stentor = {{ brokers = ["127.0.0.1:1"], type = "bar" }}
"""
    assert checked(spark, tmp_path, text) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["market.toml", "names.json"]


def test_what_cannot_be_known_is_said(spark: SparkSession, tmp_path: Path) -> None:
    text = """
[source.quotes]
brokers = ["127.0.0.1:1"]
[source.past]
archive = "nowhere"
[[step]]
name = "s"
from = "quotes"
select = "anything = 1"
[[sink]]
from = "s"
console = true
[[sink]]
from = "past"
parquet = "out"
"""
    one, two = checked(spark, tmp_path, text)
    assert one == "what is made of the source 'quotes' is not checked, as it has no schema"
    assert two.startswith("what is made of the source 'past' is not checked: there is no archive")


def test_a_master_that_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")  # one of them will do
    with pytest.raises(InvalidConfiguration, match="sc://server is a server of Spark Connect"):
        check_master("sc://server")
    for other in ("local[2]", "yarn", "k8s://https://127.0.0.1:1"):
        check_master(other)


def test_a_master_that_is_not_there_is_told_soon() -> None:
    began = time.monotonic()
    with pytest.raises(
        PipelineError, match=r"no Spark master at spark://127.0.0.1:1 \(127.0.0.1:1"
    ):
        check_master("spark://127.0.0.1:1")
    with pytest.raises(PipelineError, match="is it running"):
        check_master("spark://127.0.0.1:1,nobody.invalid:7077", patience=1.0)
    # A server that takes no connections: its queue is full.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        with pytest.raises(PipelineError, match="answer"):
            check_master(f"spark://127.0.0.1:{address[1]}", patience=0.3)
        for each in waiting:
            each.close()
    assert time.monotonic() - began < 30  # Spark itself takes more than a minute


@pytest.mark.parametrize("url", ["spark://", "spark://host", "spark://host:x", "spark://h:70770"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="write spark://host:port"):
        check_master(url)
