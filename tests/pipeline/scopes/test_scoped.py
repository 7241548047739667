"""An event table through a scope graph: the answer of the model, by both plans."""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from random_graphs import random_graph, random_notification
from shorthand import graph_of

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.filters.expression import Arithmetic, Attribute, Constant
from stentor.model import Notification, NotificationId
from stentor.pipeline import scoped
from stentor.pipeline.steps.registry import steps
from stentor.scopes import (
    EdgeMapping,
    FunctionMapping,
    Kind,
    ScopeGraph,
    mapping_of,
    policy_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "kind string, x long, _id string, _type string, _priority long"


def table(spark: "SparkSession", published: Iterable[tuple[str, Notification]]) -> "DataFrame":
    rows = [
        (n.get("kind"), n.get("x"), f"{publisher}:0:{number}", n.type, 7)
        for number, (publisher, n) in enumerate(published)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def told(result: "DataFrame") -> Counter[Any]:
    return Counter((row.consumer, row._id, row.kind, row.x) for row in result.collect())


def modelled(g: ScopeGraph, published: Iterable[tuple[str, Notification]]) -> Counter[Any]:
    return Counter(
        (d.consumer, f"{publisher}:0:{number}", d.notification.get("kind"), d.notification.get("x"))
        for number, (publisher, n) in enumerate(published)
        for d in g.outcome(n.replace(id=NotificationId(publisher, 0, number)), publisher).deliveries
    )


@pytest.mark.spec("05/4.7", "04/A10")
def test_both_plans_say_what_the_model_says(spark):
    r = Random(5)
    for mappings in (False, True):
        g = random_graph(r, mappings=mappings)
        components = sorted(id for id, node in g.nodes.items() if not node.is_scope)
        published = [(r.choice(components), random_notification(r)) for _ in range(30)]
        events = table(spark, published)
        expected = modelled(g, published)
        assert told(scoped(events, g, schema="kind string, x long")) == expected
        if g.is_plain:
            assert told(scoped(events, g, plan="native")) == expected
            assert told(scoped(events, g, plan="python")) == expected
        one = scoped(events, g, to=components[0])
        assert told(one) == Counter({k: v for k, v in expected.items() if k[0] == components[0]})


@pytest.mark.spec("R-04.60", "R-04.67", "05/4.7")
def test_policies_that_remember_nothing_choose_as_in_the_model(spark):
    g = graph_of("p>s a>s b>s q>t c>t d>t t>s")
    for load, id in enumerate("abcd"):
        g.set_attributes(id, {"load": load, "privilege": load})
    g.set_policy("s", Kind.INTERNAL, policy_of("key_affine", ("kind",)))
    g.set_policy("t", Kind.INTERNAL, policy_of("require_privilege", (3,)))
    g.set_policy("t", Kind.DELIVERY, policy_of("top_k", ("load", 1, "asc")))
    kinds = [Notification({"kind": kind, "x": x}) for x, kind in enumerate("uvwxyz")]
    published = [(publisher, n) for n in kinds for publisher in "pq"]
    expected = modelled(g, published)
    assert len({consumer for consumer, *_ in expected}) > 3
    assert told(scoped(table(spark, published), g)) == expected
    with pytest.raises(PipelineDefinitionError, match="policies"):
        scoped(table(spark, published), g, plan="native")


def test_columns_follow_from_the_mappings(spark):
    g = graph_of("p>s s>w c>w d>s")
    up = mapping_of(
        {"celsius": Arithmetic("/", Arithmetic("-", Attribute("x"), Constant(32)), Constant(1.8))},
        drop=["x"],
    )
    g.set_edge("s", "w", mapping=EdgeMapping(up=up))
    events = table(spark, [("p", Notification({"kind": "t", "x": 212}))])
    result = scoped(events, g)
    assert dict(result.dtypes)["celsius"] == "double"
    rows = {row.consumer: row for row in result.collect()}
    assert rows["c"].celsius == pytest.approx(100.0)
    assert rows["c"].x is None
    assert (rows["d"].x, rows["d"].celsius) == (212, None)
    assert {row._priority for row in rows.values()} == {7}, "what a mapping has no word on stays"
    assert {row._id for row in rows.values()} == {"p:0:0"}


def test_a_graph_from_a_file_in_a_pipeline(spark, tmp_path):
    (tmp_path / "market.scopes").write_text(
        "DEFINE SCOPE floor AS ALL FROM p, desk INTERFACES OUTPUT(x > 5) DUPLICATES ONCE; "
        "DEFINE SCOPE world AS ALL FROM floor, reader; DEPLOY floor; DEPLOY world"
    )
    step = steps()["scoped"]
    assert step.main == "graph"
    events = table(spark, [("p", Notification({"x": x})) for x in (3, 7)])
    rows = step.call()(events, str(tmp_path / "market.scopes"), to=["desk", "reader"]).collect()
    assert sorted((row.consumer, row.x) for row in rows) == [
        ("desk", 3),
        ("desk", 7),
        ("reader", 7),
    ]


def test_publishers_that_the_graph_does_not_know(spark):
    events = table(spark, [("stranger", Notification({"kind": "a"}))])
    assert not scoped(events, graph_of("p>s c>s")).count()
    g = ScopeGraph(default_scope="all")
    g.add_component("c")
    for plan in ("native", "python"):
        assert [row.consumer for row in scoped(events, g, plan=plan).collect()] == ["c"]
    assert "stranger" not in g


def test_a_stream_is_scoped_as_it_comes(spark, tmp_path):
    g = graph_of("p>s c>s")
    g.set_edge("c", "s", mapping=EdgeMapping(down=mapping_of({"kind": "seen"})))
    table(spark, [("p", Notification({"kind": "a"}))]).write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    query = (
        scoped(stream, g, to="c")
        .writeStream.format("memory")
        .queryName("scoped_stream")
        .option("checkpointLocation", str(tmp_path / "place"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert [(row.consumer, row.kind) for row in spark.table("scoped_stream").collect()] == [
        ("c", "seen")
    ]


def test_what_cannot_be_answered_is_refused(spark):
    events = table(spark, [("p", Notification({"kind": "a"}))])
    g = graph_of("p>s c>s")
    with pytest.raises(PipelineDefinitionError, match="choose from"):
        scoped(events, g, plan="fast")
    with pytest.raises(PipelineDefinitionError, match="is a scope"):
        scoped(events, g, to="s")
    with pytest.raises(PipelineError, match="has no column _id"):
        scoped(events.drop("_id"), g)
    with pytest.raises(PipelineError, match="already"):
        scoped(events, g, consumer="x")
    g.set_edge(
        "c",
        "s",
        mapping=EdgeMapping(down=FunctionMapping(lambda n: n.replace(attributes={"kind": "A"}))),
    )
    with pytest.raises(PipelineDefinitionError, match="schema="):
        scoped(events, g)
    assert [row.kind for row in scoped(events, g, to="c", schema="kind string").collect()] == ["A"]
    with pytest.raises(PipelineDefinitionError, match="for expressions alone"):
        scoped(events, g, plan="native")
    g.set_policy("s", Kind.INTERNAL, policy_of("round_robin", ()))
    with pytest.raises(PipelineError, match="internal policy of 's'"):
        scoped(events, g, schema="kind string")
