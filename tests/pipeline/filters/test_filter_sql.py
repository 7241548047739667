"""The SQL text that filters become, and the patterns that Java is trusted with."""

import re
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, StringType, StructType

from stentor.filters import Filter
from stentor.filters.patterns import Pattern, like, regex
from stentor.pipeline.filters.intervals import rounded_up
from stentor.pipeline.filters.regexes import java_regex
from stentor.pipeline.filters.sql import all_of, any_of, field_sql, literal_sql, negation
from stentor.pipeline.filters.to_column import alternatives_of

_SCHEMA = (
    StructType()
    .add("l", "long")
    .add("i", "integer")
    .add("d", "double")
    .add("s", "string")
    .add("b", "boolean")
    .add("at", "timestamp")
    .add("tags", ArrayType(StringType()))
    .add("_type", "string")
)


def sql_of(text: str) -> list[str | bool]:
    return [alternative.condition for alternative in alternatives_of(Filter(text), _SCHEMA)]


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("l > 5", ["(`l` IS NOT NULL AND `l` >= 6L)"]),
        ("l between 2.5 and 7.5", ["(`l` IS NOT NULL AND (`l` >= 3L AND `l` <= 7L))"]),
        ("l != 5", ["(`l` IS NOT NULL AND NOT (`l` = 5L))"]),
        ("i in (1, 2.5, 9, 3000000000)", ["(`i` IS NOT NULL AND `i` IN (1, 9))"]),
        ("i < 3000000000", ["`i` IS NOT NULL"]),
        ("i > 3000000000", []),
        ("d > 5", ["((`d` IS NOT NULL AND NOT (isnan(`d`))) AND `d` > 5.0D)"]),
        # Parquet would pass over -0.0 where 0.0 is asked for.
        (
            "d in (0, 2.5)",
            [
                "((`d` IS NOT NULL AND NOT (isnan(`d`))) AND "
                "((`d` >= -0.0D AND `d` <= 0.0D) OR `d` = 2.5D))"
            ],
        ),
        ("d >= 0", ["((`d` IS NOT NULL AND NOT (isnan(`d`))) AND `d` >= -0.0D)"]),
        ("d <= -0.0", ["((`d` IS NOT NULL AND NOT (isnan(`d`))) AND `d` <= 0.0D)"]),
        ("s prefix 'ab'", ["(`s` IS NOT NULL AND startswith(`s`, 'ab'))"]),
        ("s suffix 'ab'", ["(`s` IS NOT NULL AND endswith(`s`, 'ab'))"]),
        ("s > 5 or s is int", []),
        ("b = false", ["(`b` IS NOT NULL AND `b` = false)"]),
        ("d is missing", ["(`d` IS NULL OR isnan(`d`))"]),
        ("l is missing or l > 5", ["(`l` IS NULL OR `l` >= 6L)"]),
        ("tags has 'a'", ["(`tags` IS NOT NULL AND coalesce(array_contains(`tags`, 'a'), false))"]),
        ("tags has 1", []),
        (
            "isa sql_kind",
            [
                "(`_type` IS NOT NULL AND "
                "(`_type` = 'sql_kind' OR startswith(`_type`, 'sql_kind.')))"
            ],
        ),
        ("", [True]),
        ("l > 5 and l < 3", []),
        ("l = 1 or s = 'a'", ["(`l` IS NOT NULL AND `l` = 1L)", "(`s` IS NOT NULL AND `s` = 'a')"]),
    ],
)
def test_conditions_are_short(text: str, conditions: list[str | bool]) -> None:
    assert sql_of(text) == conditions


def test_literals_mean_the_same_under_every_setting() -> None:
    assert literal_sql("a$b", "string") == "CAST(X'612462' AS STRING)"
    assert literal_sql("a\\b", "string") == "CAST(X'615c62' AS STRING)"
    assert literal_sql("naïve 😀", "string") == "'naïve 😀'"
    assert literal_sql(-(2**63), "bigint") == "-9223372036854775808L"
    assert literal_sql(float("-inf"), "double") == "CAST('-Infinity' AS DOUBLE)"
    assert literal_sql(datetime(1, 1, 1, tzinfo=UTC), "timestamp") == (
        "timestamp_micros(-62135596800000000L)"
    )
    assert literal_sql(datetime(1, 1, 1, tzinfo=UTC), "timestamp_ntz") == (
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'"
    )
    assert field_sql("`a`", "it's") == "`a`.`it's`"


def test_logic_is_settled_where_it_can_be() -> None:
    assert all_of([]) is True
    assert any_of([]) is False
    assert all_of(["a", True, "a", "b"]) == "(a AND b)"
    assert all_of(["a", False]) is False
    assert any_of(["a", True]) is True
    assert negation("a") == "NOT (a)"
    assert negation(True) is False


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)))
def test_constants_are_rounded_up_to_what_the_column_can_hold(value: float) -> None:
    for form, width in (("double", np.float64), ("float", np.float32)):
        found = rounded_up(value, form)
        assert found >= value
        assert float(width(found)) == found
        with np.errstate(over="ignore"):
            below = float(np.nextafter(width(found), width(-np.inf)))
        assert below < value or found == -np.inf


# -- patterns for Java


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("^[A-Z]+-[0-9]+$", r"(?s)\A[A-Z]++\x{2d}[0-9]++\z"),
        ("IBM.*USD", r"(?s)IBM[^\n]*USD"),
        (r"\d{1,3}x\d{1,3}y", r"(?s)[0-9]x[0-9]{1,3}+y"),
        ("(?i)k", r"(?s)\A(?>.*?[Kk\x{212a}])"),
    ],
)
def test_patterns_are_printed_for_java(text: str, expected: str) -> None:
    pattern = regex(text)
    assert isinstance(pattern, Pattern)
    assert java_regex(pattern) == expected


@pytest.mark.parametrize(
    "text",
    [
        "^(a|b+)*c",  # a repeated group
        r"(^|\W)word(\W|$)",  # alternatives
        "^(a+)+b$",  # nested loops
        "a.*b.*c",  # cubic: three things can vary
        "^(a?){30}a{30}$",  # 2**30 ways
        "^(ab?){2,40}c",
        "x" * 600 + "(y|z)+w",  # too long
    ],
)
def test_patterns_that_are_not_for_java(text: str) -> None:
    pattern = regex(text)
    assert isinstance(pattern, Pattern)
    assert java_regex(pattern) is None


@given(
    st.text("ab%_", max_size=8).map(like).filter(lambda p: isinstance(p, Pattern)),
    st.lists(st.text("ab\nc", max_size=8), max_size=20),
)
def test_like_patterns_in_javas_words(pattern: Pattern, texts: list[str]) -> None:
    """Python reads the constructs that are printed for stretches and runs as Java does."""
    printed = java_regex(pattern)
    if printed is None:  # a suffix or substring has its own function
        assert pattern.kind in ("suffix", "contains")
        return
    for text in texts:
        found = re.search(printed.replace(r"\z", r"\Z"), text)
        assert (found is not None) is pattern.matches(text)
