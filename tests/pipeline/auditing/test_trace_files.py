"""What recorders write, without Spark."""

import json
from base64 import b64decode

import pyarrow.parquet as pq
import pytest
from audited_traces import generated

from stentor.errors import PipelineError
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, decode
from stentor.pipeline.auditing import AuditReport, Fault, write_trace
from stentor.pipeline.auditing.slices import INDEXED, finder
from stentor.pipeline.auditing.table import ARROW_SCHEMA, record_batches
from stentor.semantics import Condition, Trace


def test_a_line_is_an_action(tmp_path):
    trace = Trace()
    n = Notification({"price": 12}, id=NotificationId("a:b", 3, 7))
    trace.sub("b", ("b", 1), Filter("price > 10"))
    trace.quiescent()
    trace.pub("a", n)
    trace.unsub("b", ("b", 1))
    write_trace(trace, tmp_path / "trace.jsonl", run="monday")
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    body = lines[2].pop("body")
    assert decode(b64decode(body)) == n
    assert lines == [
        {
            "trace": "monday",
            "pos": 0,
            "op": "sub",
            "comp": "b",
            "fid": "('b', 1)",
            "filter": "price > 10",
        },
        {"trace": "monday", "pos": 1, "op": "quiescent"},
        {
            "trace": "monday",
            "pos": 2,
            "op": "pub",
            "comp": "a",
            "nid": "a:b:3:7",
            "producer": "a:b",
            "seq": 7,
        },
        {"trace": "monday", "pos": 3, "op": "unsub", "comp": "b", "fid": "('b', 1)"},
    ]


def test_both_forms_hold_the_same(tmp_path):
    trace = generated(5, 1)["chaos 0"]
    write_trace(iter(trace), tmp_path / "trace.parquet")
    write_trace(iter(trace), tmp_path / "trace.jsonl")
    table = pq.read_table(tmp_path / "trace.parquet")
    assert table.schema.equals(ARROW_SCHEMA)
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    for row, line in zip(table.to_pylist(), lines, strict=True):
        if row["body"] is not None:
            line["body"] = b64decode(line["body"])
        assert {name: value for name, value in row.items() if value is not None} == line


def test_a_name_has_to_say_the_form(tmp_path):
    with pytest.raises(PipelineError, match=r"end it with .jsonl or .parquet"):
        write_trace(Trace(), tmp_path / "trace.csv")


def test_ids_that_look_the_same_stay_apart():
    trace = Trace()
    for id in (1, "1", 1.0, ("1",)):
        trace.sub("b", id, Filter())
    trace.sub("c", "1", Filter())
    (batch,) = record_batches(trace)
    # 1 and 1.0 are one id, as they are for a dictionary.
    assert batch.column("fid").to_pylist() == ["1", "1'", "1", "('1',)", "1"]


def test_many_filters_are_found_by_the_index():
    filters = [Filter(f"x > {x} and y = {x % 7}") for x in range(INDEXED)]
    found = finder(filters)
    for x in (-1, 3, 250.5, 600):
        n = Notification({"x": x, "y": 3})
        assert found.of(n) == [place for place, each in enumerate(filters) if each.matches(n)]


def test_a_report_in_words():
    fault = Fault("monday", Condition.DUPLICATE, 4, "b", "a:0:1", None, "b was notified twice")
    sizes = {"actions": 9, "publications": 2, "deliveries": 3, "owed": 1}
    good = AuditReport(traces=2, flawed=0, **sizes, faults={}, first=())
    assert good.ok
    assert str(good) == "conforms (2 traces, 9 actions, 2 publications, 3 deliveries, 1 owed)"
    bad = AuditReport(
        traces=2, flawed=1, **sizes, faults={Condition.DUPLICATE: 3}, first=(fault, fault)
    )
    assert not bad.ok
    assert bad.conditions == {Condition.DUPLICATE}
    assert str(bad).splitlines() == [
        "3 violations in 1 of 2 traces (9 actions, 2 publications, 3 deliveries, 1 owed)",
        "  monday: DUPLICATE at action 4: b was notified twice",
        "  monday: DUPLICATE at action 4: b was notified twice",
        "  and 1 more",
    ]
