"""What could stand at a place in a filter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stentor.cli.app import run
from stentor.filters.completion import completions, unknown_names
from stentor.model import EventTypes


@pytest.fixture
def types() -> EventTypes:
    found = EventTypes()
    found.declare("quote", attributes={"price": "number", "symbol": "string"})
    found.declare("quote.stock", attributes={"exchange": "string", "odd name": "string"})
    found.declare("alarm", attributes={"level": "number"})
    return found


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("", "attribute", ['"odd name"', "exchange", "level", "price", "symbol"]),
        ("pr", "attribute", ["price"]),
        ("price > 5 and s", "attribute", ["symbol"]),
        ("isa alarm and ", "attribute", ["level"]),
        ("isa quote and e", "attribute", ["exchange"]),
        ("price > ", "attribute", ['"odd name"', "exchange", "level", "price", "symbol"]),
        ("price ", "attribute", []),
        ("isa qu", "event type", ["quote", "quote.stock"]),
        ("x is nu", "type", ["null", "number"]),
        ("x is not bo", "type", ["bool"]),
        ("price pre", "keyword", ["prefix"]),
        ("price > 5 a", "keyword", ["and"]),
        ("price == 5 a", "keyword", []),
    ],
)
def test_words_that_could_follow(
    types: EventTypes, text: str, kind: str, expected: list[str]
) -> None:
    found = completions(text, types=types)
    assert sorted(each.text for each in found if each.kind == kind) == expected


def test_the_cursor_may_be_anywhere(types: EventTypes) -> None:
    assert [each.text for each in completions("pr > 5", 2, types)] == ["price"]


def test_names_that_nobody_declares(types: EventTypes) -> None:
    (found,) = unknown_names("price > 1 and\n prise > 5", frozenset(["price", "prise"]), types)
    assert (found.name, found.line, found.column, found.near) == ("prise", 2, 2, "price")
    assert unknown_names("anything = 1", frozenset(["anything"]), EventTypes()) == []


FILTERS = """# of the desk
price > 100
price == 5
isa quote and
  prise > 5
x > 5 and x < 3
"""
TYPES = '[quote]\nprice = "number"\nx = "number"\n[quote.stock]\nexchange = "string"\n'


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        run(["filter", *arguments])
    return int(ended.value.code or 0), capsys.readouterr().out


def test_checking_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, types = tmp_path / "filters.txt", tmp_path / "types.toml"
    file.write_text(FILTERS)
    types.write_text(TYPES)
    code, said = _run(capsys, "check", str(file), "--types", str(types))
    assert code == 1
    assert said.splitlines() == [
        f"{file}:3:7: error: unexpected '==': write = to test for equality",
        f"{file}:5:3: warning: no declared event type has an attribute prise; did you mean price?",
        f"{file}:6:1: warning: nothing can match this filter: x > 5 contradicts x < 3",
    ]
    code, said = _run(capsys, "check", "--json", str(file))
    assert [(each["line"], each["column"]) for each in json.loads(said)] == [(3, 7), (6, 1)]


@pytest.mark.parametrize(
    ("language", "good", "bad", "place"),
    [
        ("selector", "a = 1 AND b LIKE 'x%'", "a == 1", "1:4"),
        ("cesql", "a = 1 AND EXISTS b", "a = 1 AND INT(b) = 2", "1:11"),
        ("pattern", '{"a": [1]}', '{"a": 1}', "1:1"),
    ],
)
def test_checking_other_languages(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    language: str,
    good: str,
    bad: str,
    place: str,
) -> None:
    file = tmp_path / "filters"
    file.write_text(good)
    assert _run(capsys, "check", "--language", language, str(file)) == (0, "")
    file.write_text(bad)
    code, said = _run(capsys, "check", "--language", language, str(file))
    assert code == 1
    assert said.startswith(f"{file}:{place}: error: ")


def test_completing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    types = tmp_path / "types.toml"
    types.write_text(TYPES)
    arguments = ("complete", "--types", str(types), "isa quote and pr")
    assert _run(capsys, *arguments) == (0, "price  attribute (number)\n")
    assert _run(capsys, "complete", "--types", str(tmp_path / "gone"), "pr")[0] == 2
