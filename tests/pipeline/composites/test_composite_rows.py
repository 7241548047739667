"""Rows of composite events hold what their notifications hold."""

from random import Random

import pyarrow as pa
import pytest
from composite_histories import random_history, random_pattern
from keyed_histories import SCHEMA, keyed, within
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from stentor.composite import Pattern, detect_local
from stentor.composite.intervals import moment
from stentor.model import Notification, NotificationId, encode
from stentor.pipeline.columns import BatchMaker
from stentor.pipeline.composites.composite_rows import CompositeRows, composite_schema

NAMED = StructType().add("count", "long").add("country", "string").add("_id", "string")


def agree(patterns: list[Pattern], source: StructType, events: list[Notification]) -> int:
    """Whether the rows are those that are made of the notifications; how many there are."""
    schema = composite_schema(patterns, source)
    found = [each for pattern in patterns for each in detect_local(pattern, events)]
    rows = CompositeRows(patterns, source, schema).batch(found)
    maker = BatchMaker(StructType(schema.fields[:-1]))
    encoded = [encode(each.notification()) for each in found]
    expected = maker.batch(encoded, [0] * len(found), stream="", broker="")
    assert rows.schema.names[:-1] == expected.schema.names
    for name in expected.schema.names:
        assert rows.column(name).to_pylist() == expected.column(name).to_pylist(), name
    leaves = [[str(leaf.id) for leaf in each.leaves()] for each in found]
    told = [[e["event"]["_id"] for e in events] for events in rows.column("_events").to_pylist()]
    assert told == leaves
    assert pa.types.is_list(rows.schema.field("_events").type)
    return len(found)


@pytest.mark.spec("R-06.02")
def test_they_are_what_the_notifications_are(spark: SparkSession) -> None:
    source = StructType.fromDDL(SCHEMA)
    rows = nested = 0
    for seed in range(500, 580):
        r = Random(seed)
        pattern = within(random_pattern(r), 1)
        made = agree([pattern], source, keyed(1, random_history(r)))
        rows += made
        nested += made * (pattern.level > 0)
    assert rows > 40
    assert nested > 2


def test_a_count_of_their_own(spark: SparkSession) -> None:
    events = [
        Notification(attributes, time=moment(i), id=NotificationId("p", 1, i))
        for i, attributes in enumerate(
            [{"country": "fr"}, {"country": "de", "count": 7}, {"count": 8}, {"country": "it"}]
        )
    ]
    pairs = Pattern("A{2}", {"A": "exists country or exists count"})
    twice = Pattern("X ; X", {"X": pairs})
    assert agree([pairs, twice], NAMED, events) == 3
    first, second = (each.notification() for each in detect_local(pairs, events))
    assert (first["A.count"], second["A.count"], second["A.country"]) == (7, 2, "it")
