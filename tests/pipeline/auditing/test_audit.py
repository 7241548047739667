"""The audit against the local checker, on traces of every kind."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from audited_traces import generated
from written_traces import vectors

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Settings
from stentor.errors import InvalidConfiguration, PipelineError
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.pipeline.auditing import (
    ORDERS,
    Audit,
    audit,
    read_traces,
    slices,
    trace_frame,
    write_trace,
)
from stentor.semantics import Condition, Notify, Report, Trace, check
from stentor.semantics.violations import SCOPED, SETTLEMENT


class Judged(NamedTuple):
    """An audit, brought to the driver, and what it was about."""

    audit: Audit
    traces: dict[str, Trace]
    violations: dict[str, list[Any]]
    sizes: dict[str, Any]


def judged(found: Audit, traces: dict[str, Trace]) -> Judged:
    violations: dict[str, list[Any]] = {name: [] for name in traces}
    for row in found.violations.collect():
        violations[row["trace"]].append(row)
    return Judged(found, traces, violations, {row["trace"]: row for row in found.traces.collect()})


def expected(report: Report) -> Counter[tuple[str, int, str, str]]:
    """Condition, position, component and notification of each violation."""
    found: Counter[tuple[str, int, str, str]] = Counter()
    for violation in report.violations:
        action = violation.action
        component = violation.whom or action.component
        if violation.condition is Condition.LOST:
            assert f", but {component} was not notified of it" in violation.why
        found[violation.condition.value, violation.position, component, str(action.id)] += 1
    return found


def explained(pairs: Iterable[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Conditions and reasons. Of cycles any may be told; ids that look the same are marked."""
    return Counter((c, why.replace("1'", "1")) for c, why in pairs if c != "TOTAL_GLOBAL")


def assert_same_verdict(
    one: Judged, *, place: Callable[[str, int], int] = lambda name, pos: pos, **mode: Any
) -> None:
    """What the local checker says of each trace, at positions that may be numbered otherwise."""
    for name, trace in one.traces.items():
        report = check(trace, **mode)
        rows = one.violations[name]
        found = Counter(
            (row["condition"], row["position"], row["component"], row["notification"])
            for row in rows
        )
        wanted = Counter(
            {(c, place(name, pos), *rest): k for (c, pos, *rest), k in expected(report).items()}
        )
        assert found == wanted, f"{name}\n{trace}\n{report}"
        if place(name, 1) == 1:
            reasons = explained((row["condition"], row["explanation"]) for row in rows)
            assert reasons == explained((v.condition.value, v.why) for v in report.violations), name
        size = one.sizes[name]
        assert (size["actions"], size["publications"]) == (report.actions, report.publications)
        assert (size["deliveries"], size["owed"]) == (report.deliveries, report.owed), name
        assert size["violations"] == len(report.violations)


def _scaled(name: str, pos: int) -> int:
    """Positions need not be indexes."""
    return pos * 1_000_003 - 5_000_000 if name.startswith("scaled") else pos


@pytest.fixture(scope="module")
def everything(spark, tmp_path_factory) -> Judged:
    """One audit of all traces: in memory and in files, in many slices."""
    folder = tmp_path_factory.mktemp("traces")
    plain = generated(1, 150)
    scaled = {f"scaled {name}": trace for name, trace in generated(3, 40).items()}
    written = {name: trace for name, (trace, _) in vectors().items()}
    for number, (name, trace) in enumerate(list(plain.items())[:3]):
        write_trace(trace, folder / f"{number}.{('jsonl', 'parquet')[number % 2]}", run=name)
    of_scaled = trace_frame(spark, scaled)
    frame = (
        trace_frame(spark, dict([*plain.items()][3:]) | written)
        .unionByName(read_traces(spark, *sorted(folder.iterdir())))
        .unionByName(of_scaled.withColumn("pos", of_scaled["pos"] * 1_000_003 - 5_000_000))
        .coalesce(2)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "SHARD", 16)
        found = audit(frame, orders=ORDERS, advertisements=True)
    return judged(found, plain | scaled | written)


@pytest.mark.spec("01/Q18", "01/A-12")
def test_the_verdict_is_that_of_the_local_checker(everything):
    assert_same_verdict(everything, place=_scaled, advertisements=True, order=ORDERS)


def test_the_traces_break_everything(everything):
    """So that agreeing means something."""
    broken = Counter(row["condition"] for rows in everything.violations.values() for row in rows)
    assert {*broken} == {
        condition.value for condition in Condition if condition not in SETTLEMENT | SCOPED
    }
    assert min(broken.values()) > 10
    assert sum(not rows for rows in everything.violations.values()) > 50


@pytest.mark.spec("01/A-12")
@pytest.mark.parametrize("name", vectors())
def test_vector(everything, name):
    assert {row["condition"] for row in everything.violations[name]} == vectors()[name][1]


def test_the_subscription_that_matters_is_named(everything):
    for rows in everything.violations.values():
        for row in rows:
            if row["condition"] == "LOST":
                assert f"its subscription {row['subscription']} (" in row["explanation"]
            elif row["condition"] == "NOT_SUBSCRIBED" and row["subscription"] is None:
                assert "had never had" in row["explanation"]
            elif row["condition"] == "NOT_SUBSCRIBED":
                assert f"subscription {row['subscription']} (" in row["explanation"]
            else:
                assert row["subscription"] is None


def test_cycles_are_real(everything):
    """What a broken total order is explained by did happen."""
    told = 0
    for name, rows in everything.violations.items():
        for row in rows:
            if row["condition"] == "TOTAL_GLOBAL":
                steps = re.findall(
                    r"(\w+) was notified of (\S+) before ([^\s,]+)", row["explanation"]
                )
                assert len(steps) > 1
                assert [b for _, _, b in steps] == [a for _, a, _ in steps[1:]] + [steps[0][1]]
                for component, before, after in steps:
                    got = _received(everything.traces[name], component)
                    assert got.index(before) < got.index(after)
                told += 1
    assert told


def _received(trace: Trace, component: str) -> list[str]:
    return [str(a.id) for a in trace if isinstance(a, Notify) and a.component == component]


@pytest.fixture(scope="module")
def example() -> Trace:
    """Something is lost, something comes twice, something is out of order."""
    trace = Trace()
    trace.sub("b", "b#1", Filter("price > 10"))
    trace.quiescent()
    one, two, three = (
        Notification({"price": 11 + i}, id=NotificationId("a", 0, i)) for i in range(3)
    )
    for n in (one, two, three):
        trace.pub("a", n)
    for n in (two, one, one):
        trace.notify("b", n)
    trace.quiescent()
    return trace


def test_what_a_client_records_is_a_trace(spark, tmp_path):
    file = tmp_path / "recorded.jsonl"

    async def happens() -> None:
        broker = Broker(Settings(listen=("127.0.0.1:0",), name="b1"))
        with stentor.Recorder(file) as recorder:
            async with (
                broker,
                stentor.connect(broker, name="n", record=recorder) as bus,
                bus.subscribe("x > 3") as wanted,
            ):
                recorder.quiescent()
                await bus.publish_many(({"x": i} for i in range(10)), ack=True)
                for _ in range(6):
                    await wanted.get()
                recorder.quiescent()
                report = audit(file, spark, orders=["fifo", "total_global"]).report()
                assert str(report) == str(check(stentor.recorded(file).trace, order=["fifo"]))
                assert (report.ok, report.owed) == (True, 6)

    asyncio.run(happens())


def test_one_trace_from_a_file(spark, tmp_path, example):
    """By default the conditions are those of `check`, and the report reads the same."""
    write_trace(example, tmp_path / "trace.jsonl")
    found = audit(tmp_path / "trace.jsonl", spark)
    report = found.report()
    assert str(report) == str(check(example))
    assert not report.ok
    assert not found.ok
    assert report.conditions == {Condition.LOST, Condition.DUPLICATE}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "trace, pos div 2 as pos, op, comp, nid, fid, filter, body",
            "position that another one has",
        ),
        (
            "trace, pos, op, comp, nid, fid, null as filter, body",
            "position 0 of trace 'run' makes no",
        ),
        ("null as trace, pos, op, comp, nid, fid, filter, body", "do not say to which trace"),
        ("trace, pos, upper(op) as op, comp, nid, fid, filter, body", "as 'SUB': op is one of sub"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused(spark, example, change, message):
    frame = trace_frame(spark, example).selectExpr(*re.split(r",\s*", change))
    frame = frame.withColumn("filter", frame["filter"].cast("string"))
    with pytest.raises(PipelineError, match=message):
        audit(frame)


def test_tables_that_are_no_traces_are_refused(spark, example):
    frame = trace_frame(spark, example)
    with pytest.raises(PipelineError, match=r"there is no fid, body, only trace"):
        audit(frame.drop("fid", "body"))
    with pytest.raises(
        PipelineError, match="column pos of a trace table is a bigint, not a string"
    ):
        audit(frame.withColumn("pos", frame["pos"].cast("string")))
    with pytest.raises(InvalidConfiguration, match="no order 'fief'; choose from fifo"):
        audit(frame, orders=["fief"])
    with pytest.raises(PipelineError, match="does not say what is in there"):
        audit("some/folder", spark)


@pytest.mark.slow
@pytest.mark.spec("01/Q18")
@pytest.mark.parametrize(
    "mode",
    [
        {"advertisements": False, "order": ORDERS},
        {"advertisements": True, "order": ()},
        {"advertisements": False, "settling": False, "order": ["causal_printed", "total_global"]},
    ],
)
@pytest.mark.parametrize("seed", [11, 12])
def test_all_modes_agree_with_the_local_checker(spark, seed, mode):
    traces = generated(seed, 400)
    options = {name: value for name, value in mode.items() if name != "order"}
    found = audit(traces, spark, orders=mode["order"], **options)
    assert_same_verdict(judged(found, traces), **mode)


@pytest.mark.slow
def test_a_total_order_may_be_asked_of_a_group(spark):
    """What components outside of the group were notified of does not count."""
    traces = generated(13, 200)
    group = {"a", "c"}
    within = {
        name: Trace(a for a in trace if not isinstance(a, Notify) or a.component in group)
        for name, trace in traces.items()
    }
    orders = ["total_pairwise", "total_global"]
    rows = audit(traces, spark, orders=orders, group=group).violations.collect()
    found = Counter(
        (r["trace"], r["condition"], r["notification"], r["component"])
        for r in rows
        if r["condition"].startswith("TOTAL")
    )
    wanted = Counter(
        (name, v.condition.value, str(v.action.id), v.action.component)
        for name, trace in within.items()
        for v in check(trace, order=orders).violations
        if v.condition.value.startswith("TOTAL")
    )
    assert found == wanted
    assert wanted
