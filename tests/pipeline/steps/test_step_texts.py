"""Durations, rules, windows and options: everything about steps that needs no Spark."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import FilterSyntaxError, PipelineDefinitionError
from stentor.pipeline.steps.durations import interval, microseconds
from stentor.pipeline.steps.names import check_names
from stentor.pipeline.steps.options import Option
from stentor.pipeline.steps.registry import find_function, register_step, steps
from stentor.pipeline.steps.rules import (
    Aggregate,
    check_expansion,
    read_rule,
    read_window,
)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10 seconds", timedelta(seconds=10)),
        ("1 second", timedelta(seconds=1)),
        ("90s", timedelta(seconds=90)),
        ("1h 30m", timedelta(minutes=90)),
        ("1 hour, 30 minutes", timedelta(minutes=90)),
        ("2.5 MIN", timedelta(seconds=150)),
        ("250ms", timedelta(milliseconds=250)),
        ("7 days", timedelta(days=7)),
        ("5us", timedelta(microseconds=5)),
    ],
)
def test_durations_are_read(text: str, length: timedelta) -> None:
    assert microseconds(text) == microseconds(length) == length // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "ten seconds",
        "-1 s",
        "1 month",
        "1 hour,",
        "0 seconds",
        "0.1us",
        "200 years",
        "1s!",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(PipelineDefinitionError):
        microseconds(text)


@given(st.integers(1, 10**15))
def test_spark_reads_the_same_length(length: int) -> None:
    assert microseconds(interval(timedelta(microseconds=length))) == length


def test_rules_name_function_and_attribute() -> None:
    rule = {"price": "last", "high": "max price", "n": "count", "m": "count price"}
    assert read_rule(rule, ["symbol"]) == (
        Aggregate("price", "last", "price"),
        Aggregate("high", "max", "price"),
        Aggregate("n", "count", None),
        Aggregate("m", "count", "price"),
    )


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, "a rule says"),
        ({"x": "avg"}, "did you mean 'mean'"),
        ({"x": "lst"}, "did you mean 'last'"),
        ({"x": ""}, "must be a text"),
        ({"x": 3}, "must be a text"),
        ({"_x": "last"}, "reserved"),
        ({"window_start": "last"}, "reserved"),
        ({"symbol": "last"}, "part of the key"),
        ({"a..b": "last"}, "empty segment"),
    ],
)
def test_mistakes_in_rules_are_explained(rule: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineDefinitionError, match=said):
        read_rule(rule, ["symbol"])


def test_windows() -> None:
    assert read_window("5 minutes").disjoint
    sliding = read_window("10 minutes every 1 minute")
    assert (sliding.length, sliding.every, sliding.disjoint) == ("600 seconds", "60 seconds", False)
    assert read_window("session 5m").session
    assert read_window(timedelta(seconds=5)).length == "5 seconds"


@pytest.mark.parametrize("text", ["", "5", "every 1 minute", "session", "1 minute every 2 minutes"])
def test_mistakes_in_windows_are_explained(text: str) -> None:
    with pytest.raises(PipelineDefinitionError, match="window"):
        read_window(text)


@pytest.mark.parametrize(
    "rule",
    [
        {"a": "sum x", "b": "min x"},
        {"a": "mean x", "b": "count x"},
        {"a": "mean x", "b": "sum x"},
    ],
)
def test_states_without_a_history_are_refused(rule: dict[str, str]) -> None:
    with pytest.raises(PipelineDefinitionError, match="no history can be made"):
        check_expansion(read_rule(rule), None)


@pytest.mark.parametrize("window", ["10 minutes every 1 minute", "session 5 minutes"])
def test_overlapping_windows_cannot_be_expanded(window: str) -> None:
    with pytest.raises(PipelineDefinitionError, match="other windows"):
        check_expansion(read_rule({"x": "last"}), read_window(window))


def test_names_that_can_be_set() -> None:
    check_names(["price", "pos.x", "_type", "_time"])
    for name in ("_id", "_offset", "_own", "a..b", ""):
        with pytest.raises(PipelineDefinitionError):
            check_names([name])


# -- options


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("texts", "symbol", ["symbol"]),
        ("texts", ["a", "b"], ["a", "b"]),
        ("flag", False, False),
        ("count", 3, 3),
        ("keep", "none", "none"),
        ("keep", "symbol", ["symbol"]),
        ("by", "producer", "producer"),
        ("by", ["symbol"], ["symbol"]),
        ("addresses", "a:1, b:2", ["a:1", "b:2"]),
        ("offsets", {"b1": 5}, {"b1": 5}),
        ("moment", "2026-01-31T12:00:00+01:00", datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ("names", {"a": "b"}, {"a": "b"}),
    ],
)
def test_options_are_read(kind: str, value: object, read: object) -> None:
    assert Option(kind, "for a test").read(value) == read


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", ""),
        ("text", 3),
        ("texts", [1]),
        ("flag", 1),
        ("count", 0),
        ("count", True),
        ("names", {"a": 1}),
        ("names", {}),
        ("addresses", ["b1:70000"]),
        ("addresses", []),
        ("moment", "yesterday"),
        ("duration", 5),
        ("rule", "last"),
        ("keep", 3),
    ],
)
def test_wrong_values_are_refused(kind: str, value: object) -> None:
    with pytest.raises(PipelineDefinitionError):
        Option(kind, "for a test").read(value)


def test_a_filter_shows_its_mistake() -> None:
    with pytest.raises(FilterSyntaxError, match=r"\^"):
        Option("filter", "for a test").read("price >")


def test_a_choice_lists_the_others() -> None:
    option = Option("text", "for a test", choices=("inner", "left"))
    assert option.read("left") == "left"
    with pytest.raises(PipelineDefinitionError, match="inner, left"):
        option.read("outer")


# -- the registry


def test_every_step_names_a_function_that_takes_its_options() -> None:
    import inspect

    own = [kind for kind in steps().values() if isinstance(kind.function, str)]
    assert len(own) > 10
    for kind in own:  # others may have been registered by whoever ran before
        parameters = list(inspect.signature(kind.call()).parameters.values())[1:]
        assert {p.name for p in parameters} >= set(kind.options), kind.name
        needed = {p.name for p in parameters if p.default is p.empty}
        assert needed <= {key for key, option in kind.options.items() if option.required}, kind.name
        assert kind.about.endswith("."), kind.name


def test_steps_can_be_added_once() -> None:
    def twice(events: object) -> object:
        return events

    options = {"share": Option("count", "for a test")}
    register_step("test_added", twice, options, main="share")
    register_step("test_added", twice, options, main="share")
    assert steps()["test_added"].call() is twice
    with pytest.raises(PipelineDefinitionError, match="another step"):
        register_step("test_added", lambda events: events)


@pytest.mark.parametrize(
    ("name", "options", "main"),
    [
        ("from", {}, None),
        ("no name", {}, None),
        ("test_kind", {"x": Option("nothing", "")}, None),
        ("test_main", {}, "x"),
    ],
)
def test_declarations_that_make_no_sense(
    name: str, options: dict[str, Option], main: str | None
) -> None:
    with pytest.raises(PipelineDefinitionError):
        register_step(name, "math:sqrt", options, main=main)
    assert name not in steps()


@pytest.mark.parametrize("name", ["math", "math:", ":sqrt", "math:nope", "nope.nope:f", "math:pi"])
def test_functions_that_are_not_there(name: str) -> None:
    with pytest.raises(PipelineDefinitionError):
        find_function(name)
