"""Matching as functions in SQL: the broker's answer for every row, and mistakes that are told."""

from collections import Counter
from decimal import Decimal
from math import nan
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from filter_tables import (
    Row,
    declare_event_types,
    disagreements,
    random_filter,
    random_table,
)
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from stentor.errors import FilterSyntaxError, PipelineDefinitionError, UnsupportedColumn
from stentor.filters import Filter
from stentor.pipeline import match, register, register_subscriptions
from stentor.pipeline.matching.broadcasts import Carried
from stentor.pipeline.matching.event_batches import records_batch
from stentor.pipeline.matching.sql_functions import answers, id_lists_of
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.matching.worker import Part

NOTHING = Vocabulary(b"", b"")


def records(schema: StructType, rows: list[Row]) -> pa.StructArray:
    """What Spark would hand over for `struct(*)`."""
    kind = to_arrow_type(schema, timezone="UTC")
    return pa.array([_named(schema, row) for row in rows], kind)


def _named(schema: StructType, row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        field.name: _named(field.dataType, value)
        if isinstance(field.dataType, StructType)
        else value
        for field, value in zip(schema.fields, row, strict=True)
    }


@pytest.mark.spec("R-02.08", "R-02.11", "02/T4")
@pytest.mark.parametrize("seed", range(12))
def test_one_filter_gives_the_brokers_answer(seed: int) -> None:
    declare_event_types()
    random = Random(seed)
    schema, rows = random_table(random, 40)
    filters = [random_filter(random) for _ in range(30)]
    whole = records(schema, rows)
    columns = [
        answers(NOTHING, pa.array([str(each)] * len(rows)), whole).to_pylist() for each in filters
    ]
    found = list(zip(*columns, strict=True))
    assert disagreements(schema, rows, filters, found) == []
    assert {answer for row in found for answer in row} == {True, False}


def test_filters_of_a_column_are_each_asked_about_their_own_row() -> None:
    rows = pa.array([{"n": n} for n in (1, 2, 3, 1)])
    filters = pa.array(["n > 1", None, "n > 1", "n = 1"])
    assert answers(NOTHING, filters, rows).to_pylist() == [False, None, True, True]
    assert answers(NOTHING, pa.array([], pa.string()), rows[:0]).to_pylist() == []


def test_what_is_wrong_with_a_filter_or_a_record_is_told() -> None:
    rows = pa.array([{"n": 1, "many": [{"x": 1}]}])
    with pytest.raises(FilterSyntaxError, match=r"n >> 3\n +\^"):
        answers(NOTHING, pa.array(["n >> 3"]), rows)
    with pytest.raises(UnsupportedColumn, match="lists of records"):
        answers(NOTHING, pa.array(["many.x = 1"]), rows)
    with pytest.raises(PipelineDefinitionError, match=r"write struct\(\*\)"):
        answers(NOTHING, pa.array(["n = 1"]), pa.array([1]))
    with pytest.raises(PipelineDefinitionError, match="first the filter, then the record"):
        answers(NOTHING, rows, pa.array(["n = 1"]))
    nobody = Part("", Carried(b""))
    with pytest.raises(PipelineDefinitionError, match=r"not int64, string: write struct\(\*\)"):
        next(id_lists_of(nobody, [], [(pa.array([1]), pa.array(["x"]))]))


def test_an_attribute_in_several_fields_is_in_the_first_that_has_it() -> None:
    rows = [
        {"pos.x": "flat", "pos": {"x": 1}},
        {"pos.x": None, "pos": {"x": 2}},
        {"pos.x": None, "pos": None},
    ]
    kind = pa.struct({"pos.x": pa.string(), "pos": pa.struct({"x": pa.int64()})})
    found = records_batch(pa.array(rows, kind), ["pos.x"])
    assert found.column("pos.x").to_pylist() == ["flat", 2, None]
    same = pa.array(
        [{"pos.x": nan, "pos": {"x": 1.0}}],
        pa.struct({"pos.x": pa.float64(), "pos": pa.struct({"x": pa.float64()})}),
    )
    assert records_batch(same, ["pos.x"]).to_pydict() == {"pos.x": [1.0]}
    wide = pa.array([{"n": Decimal(2**53 + 1)}, {"n": Decimal(2**64)}])
    assert records_batch(wide, ["n"]).column("n").to_pylist() == [2**53 + 1, 2.0**64]


def test_functions_in_sql(spark: SparkSession) -> None:
    declare_event_types()
    register(spark)
    random = Random(99)
    schema, rows = random_table(random, 40)
    filters = [random_filter(random) for _ in range(8)]
    table = spark.createDataFrame(list(rows), schema, verifySchema=False)
    table.createOrReplaceTempView("drawn")
    texts = [str(each).replace("\\", "\\\\").replace("'", "\\'") for each in filters]
    chosen = ", ".join(f"stentor_match('{text}', struct(*))" for text in texts)
    found = [tuple(row) for row in spark.sql(f"select {chosen} from drawn").collect()]
    assert disagreements(schema, rows, filters, found) == []
    with pytest.raises(PythonException, match=r"n >> 3\n +\^"):
        spark.sql("select stentor_match('n >> 3', struct(*)) from drawn").collect()


def test_a_set_of_subscriptions_in_sql(spark: SparkSession) -> None:
    register(spark)
    quotes = spark.createDataFrame(
        [("IBM", 101.0), ("IBM", 90.0), ("ORCL", 120.0), ("X", None)], "symbol string, price double"
    )
    quotes.createOrReplaceTempView("quotes")
    (dear,) = spark.sql(
        "select * from quotes where stentor_match('price > 100 and symbol prefix ''I''', struct(*))"
    ).collect()
    assert (dear.symbol, dear.price) == ("IBM", 101.0)
    wanted = {"ibm": "symbol = 'IBM'", "dear": "price > 100", "all": "", "none": "price < 0"}
    query = """
        select subscription_id, q.*
        from quotes q, lateral (select explode({}(struct(q.*)))) as m(subscription_id)
    """
    for name, subscriptions in (
        ("stentor_matches", wanted),
        ("by_number", list(enumerate(wanted.values()))),
    ):
        register_subscriptions(spark, subscriptions, name)
        found = Counter(map(tuple, spark.sql(query.format(name)).collect()))
        assert found == Counter(map(tuple, match(quotes, subscriptions).collect()))
    table = spark.createDataFrame(list(wanted.items()), "who string, wants string")
    register_subscriptions(spark, table, id="who", filter="wants")
    short = spark.sql("select explode(stentor_matches(struct(*))) as id, * from quotes")
    assert short.count() == spark.sql(query.format("stentor_matches")).count() == 8
    named = "lateral explode(stentor_matches(struct(q.symbol, q.price))) as m(subscription_id)"
    assert spark.sql(f"select subscription_id, q.* from quotes q, {named}").count() == 8
    # Filters of a table, beside the rows that they are asked about.
    table.createOrReplaceTempView("desks")
    joined = spark.sql("select who from quotes q, desks where stentor_match(wants, struct(q.*))")
    assert Counter(row.who for row in joined.collect()) == {"ibm": 2, "dear": 2, "all": 4}
    with pytest.raises(PipelineDefinitionError, match="1 subscription cannot be used"):
        register_subscriptions(spark, {"a": "price >"})
    with pytest.raises(PipelineDefinitionError, match="not a name for a function"):
        register_subscriptions(spark, {"a": Filter("price > 1")}, "two words")
