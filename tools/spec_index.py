"""Finds every entry that the specification sheets define.

A sheet is `docs/spec/NN-name.md`. It defines an entry in one of these forms, and nowhere else;
an ID in running text is a citation.

    | R-02.07 | Nested records | ...        a row of a table whose first column is headed ID or #
    **R-08.75 Trace** (§5.3.1): ...         bold text that opens with an R-ID
    **A-2 Reference machine**               a line that opens with a bold ID
    ### A3 Root-based ...                   a heading that opens with an ID
    ### 5.4 Patterns, **5.4 Patterns**      a numbered section, as heading or bold
    5. History independence ...             a numbered item of section 6 (properties) or 8 (traps)

R-IDs name their sheet themselves. All others repeat from sheet to sheet and are therefore written
with the sheet's number first: `02/P5`, `02/5.4`; item 5 of section 6 is `08/6.5`.

A section that holds entries of its own is a container: it may be cited, but the entries inside it
are what has to be covered. So are the sections outside chapters 3 to 5 (capabilities, algorithms,
examples), which only comment.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Kind = Literal["chapter", "section", "entry"]

TITLE_LENGTH = 72

_LABEL = r"[A-Z]{1,2}-?\d+(?:\.\w+)?"
_ROW_ID = re.compile(rf"(R-\d\d\.\d+|{_LABEL})(?:\s+(.*))?$")
_BOLD_R = re.compile(r"\*\*(R-\d\d\.\d+)\b\.?\s*([^*]*)\*\*(?=\s*([^|]*))")
_BOLD_LABEL = re.compile(rf"\*\*({_LABEL})(?![\w⊒])[ .]*([^*]*)\*\*\s*(.*)")
_HEADING_LABEL = re.compile(rf"#+ ({_LABEL})\s+(.*)")
_SECTION = re.compile(r"(?:#+ |\*\*)(\d+\.\d+)\.?\s+([^*]+)")
_CHAPTER = re.compile(r"## (\d+)\.?\s")
_ITEM = re.compile(r"(\d+)\.\s+(.*)")
_ITEM_CHAPTERS = ("6", "8")


@dataclass(frozen=True)
class Entry:
    """One entry of a sheet: the ID that a test cites, and a few words that say what it is."""

    id: str
    title: str
    container: bool = False


@dataclass
class Sheet:
    """A specification sheet and its entries in the order of the text."""

    number: str
    name: str
    title: str
    entries: list[Entry] = field(default_factory=list)


def read_sheets(folder: Path) -> list[Sheet]:
    """All sheets of a folder, by number."""
    return [
        read_sheet(path.name, path.read_text("utf-8"))
        for path in sorted(folder.glob("[0-9][0-9]-*.md"))
    ]


def read_sheet(name: str, text: str) -> Sheet:
    """The entries of one sheet; the first definition of an ID counts.

    >>> text = "# 09 Queues\\n**5.1 Limits**: none\\n| # | Property |\\n|---|---|\\n| P1 | Fair |"
    >>> sheet = read_sheet("09-queues.md", text)
    >>> [(entry.id, entry.title, entry.container) for entry in sheet.entries]
    [('09/5.1', 'Limits', True), ('09/P1', 'Fair', False)]
    """
    number = name[:2]
    lines = text.splitlines()
    sheet = Sheet(number, name, _sheet_title(lines, name))
    seen: set[str] = set()
    section: int | None = None  # where in `entries` the section stands that we are in
    for kind, label, title in _definitions(lines):
        if kind == "chapter":
            section = None
            continue
        entry_id = label if label.startswith("R-") else f"{number}/{label}"
        if entry_id in seen:
            continue
        if kind == "section":
            section = len(sheet.entries)
        elif section is not None:
            sheet.entries[section] = replace(sheet.entries[section], container=True)
        seen.add(entry_id)
        sheet.entries.append(Entry(entry_id, title, kind == "section" and label[0] not in "345"))
    return sheet


def _definitions(lines: Iterable[str]) -> Iterator[tuple[Kind, str, str]]:
    """Kind, label and title of each definition, and of the chapters that hold them."""
    chapter = ""
    id_table = in_table = fenced = False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        if not line.startswith("|"):
            in_table = False
        elif not in_table:
            in_table = True
            id_table = re.match(r"\|\s*(ID|Id|#)\b|\|\s*#", line) is not None
        elif id_table:
            yield from _row(line)
            continue
        if found := _CHAPTER.match(line):
            chapter = found[1]
            yield "chapter", chapter, line
        elif found := _SECTION.match(line):
            yield "section", found[1], shorten(found[2])
        elif found := _HEADING_LABEL.match(line):
            yield "entry", found[1], shorten(found[2])
        elif (found := _ITEM.match(line)) and chapter in _ITEM_CHAPTERS:
            yield "entry", f"{chapter}.{found[1]}", _lead(found[2])
        elif bold := list(_BOLD_R.finditer(line)):
            for each in bold:
                yield "entry", each[1], shorten(each[2] or each[3])
        elif found := _BOLD_LABEL.match(line):
            yield "entry", found[1], shorten(found[2] or found[3])


def _row(line: str) -> Iterator[tuple[Kind, str, str]]:
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    if cells and (found := _ROW_ID.match(cells[0].replace("**", ""))):
        named = found[2] and not found[2].startswith("(")
        yield "entry", found[1], shorten(found[2]) if named else _lead(cells[1])


def _lead(text: str) -> str:
    """The bold words that a text opens with, or else its first words."""
    bold = re.match(r"\*\*(.+?)\*\*", text)
    return shorten(bold[1] if bold else text)


def shorten(text: str) -> str:
    """Plain first words of a text, safe in a Markdown table.

    >>> shorten("**Exact** `a|b` merging. " + "more " * 30)
    'Exact a\\\\|b merging. more more more more more more more more more more …'
    """
    plain = re.sub(r"\*\*|`|\\(?=\|)", "", text).strip().rstrip(".:").rstrip()
    if len(plain) > TITLE_LENGTH:
        plain = plain[:TITLE_LENGTH].rsplit(" ", 1)[0].rstrip(" ,;:.(") + " …"
    return re.sub(r"([|*_<>\[\]])", r"\\\1", plain)


def _sheet_title(lines: list[str], name: str) -> str:
    heading = next((line for line in lines if line.startswith("# ")), f"# {name}")
    return re.sub(r"^(Spec sheet )?\d\d[\s—·-]*", "", heading[2:]).strip()
