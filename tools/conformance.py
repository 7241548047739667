"""Writes docs/conformance.md: every entry of the specification and the tests that hold it.

    python tools/conformance.py            write the page
    python tools/conformance.py --check    fail if the page is stale

Both fail when a test cites an entry that no sheet defines. The tests are collected by pytest in
this process but not run, so that markers on modules, classes, functions and single parameter sets
all count. A test that is skipped or expected to fail holds nothing and is left out.
"""

import argparse
import contextlib
import difflib
import io
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from spec_index import Entry, Sheet, read_sheets

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "docs" / "spec"
PAGE = ROOT / "docs" / "conformance.md"

Citations = dict[str, set[str]]
"""Specification ID -> the tests that cite it, as `tests/file.py::test`."""

PREFACE = """\
# Conformance

Every entry of the [specification](spec/README.md) and the tests that hold it. Written by
`./dev docs` from the `spec` markers of the tests; do not edit.

A sheet's own IDs carry its number: `02/P5` is property P5 of sheet 02, `02/5.4` its section 5.4.
What is *decided* has no test, for a reason that the [decisions](spec/decisions.md) give.
"""


class CollectionFailed(Exception):
    """pytest could not collect the tests; the message is what it printed."""


class _Collected:
    """A pytest plugin that keeps the items of a collection."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def collect(tests: Path, root: Path = ROOT) -> list[pytest.Item]:
    """All tests below a folder, collected but not run."""
    collected = _Collected()
    settings = ["--rootdir", str(root), "-c", str(root / "pyproject.toml")]
    quiet = ["--collect-only", "-q", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = pytest.main([*settings, *quiet, str(tests)], plugins=[collected])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise CollectionFailed(printed.getvalue())
    return collected.items


def citations(items: Iterable[pytest.Item]) -> Citations:
    """Which tests cite which entries. The cases of a parametrized test count as one test."""
    cited: Citations = defaultdict(set)
    for item in items:
        if any(item.iter_markers("skip")) or any(item.iter_markers("xfail")):
            continue
        test = item.nodeid.partition("[")[0]
        for marker in item.iter_markers("spec"):
            for entry_id in marker.args:
                cited[entry_id].add(test)
    return dict(cited)


def unknown(cited: Mapping[str, Iterable[str]], sheets: Iterable[Sheet]) -> Iterator[str]:
    """One line for each citation of an entry that does not exist."""
    known = {entry.id for sheet in sheets for entry in sheet.entries}
    for entry_id in sorted(set(cited) - known, key=str):
        near = difflib.get_close_matches(str(entry_id), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        tests = ", ".join(sorted(cited[entry_id]))
        yield f"no specification sheet defines {entry_id!r}, cited by {tests}{hint}"


def decided(text: str) -> Iterator[str]:
    """The entries that a row of the decisions begins with; "R-05.83 to R-05.85" are three.

    >>> list(decided("| R-05.83 to R-05.85, 05/8.7 to 05/8.8, 04/A1 | No | why |"))
    ['R-05.83', 'R-05.84', 'R-05.85', '05/8.7', '05/8.8', '04/A1']
    """
    for line in text.splitlines():
        for each in line.split("|")[1].split(",") if line.startswith("|") else ():
            first, _, last = each.strip().partition(" to ")
            yield first
            (head, _, begin), end = first.rpartition("."), last.rpartition(".")[2]
            for number in range(int(begin) + 1, int(end) + 1) if end else ():
                yield f"{head}.{number:0{len(begin)}}"


def render(
    sheets: Iterable[Sheet], cited: Mapping[str, Iterable[str]], known: Collection[str] = ()
) -> str:
    """The page. The same sheets and tests always give the same text."""
    summary = ["| Sheet | Entries with tests | of |", "|---|--:|--:|"]
    tables: list[str] = []
    covered_in_all = entries_in_all = 0
    for sheet in sheets:
        shown = [entry for entry in sheet.entries if entry.id in cited or not entry.container]
        covered = sum(entry.id in cited for entry in shown)
        covered_in_all += covered
        entries_in_all += len(shown)
        link = f"[{sheet.number} {sheet.title}](spec/{sheet.name})"
        summary.append(f"| {link} | {covered} | {len(shown)} |")
        tables += ["", f"## {sheet.number} {sheet.title}", ""]
        tables += ["| ID | What | Tests |", "|---|---|---|"]
        tables += [_row(entry, cited.get(entry.id, ()), known) for entry in shown]
    summary.append(f"| All | {covered_in_all} | {entries_in_all} |")
    return "\n".join([PREFACE, *summary, *tables, ""])


def _row(entry: Entry, tests: Iterable[str], known: Collection[str]) -> str:
    nothing = "[decided](spec/decisions.md)" if entry.id in known else "not yet"
    links = (f"[{test.removeprefix('tests/')}](../{test.partition('::')[0]})" for test in tests)
    return f"| {entry.id} | {entry.title} | {'<br>'.join(sorted(links)) or nothing} |"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write docs/conformance.md.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    check: bool = parser.parse_args(arguments).check

    sheets = read_sheets(SPEC)
    try:
        cited = citations(collect(ROOT / "tests"))
    except CollectionFailed as error:
        print(error, "conformance: the tests could not be collected", sep="\n", file=sys.stderr)
        return 1
    wrong = list(unknown(cited, sheets))
    if wrong:
        print(*(f"conformance: {line}" for line in wrong), sep="\n", file=sys.stderr)
        return 1

    decisions = (SPEC / "decisions.md").read_text("utf-8")
    page = render(sheets, cited, frozenset(decided(decisions)))
    name = PAGE.relative_to(ROOT)
    if not check:
        PAGE.write_text(page, "utf-8")
        print(f"wrote {name}")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != page:
        print(f"conformance: {name} is stale; run ./dev docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
