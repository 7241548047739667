"""A page of tables and pictures: HTML that holds all of it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

from stentor.errors import PipelineError

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 14px; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #eee;
         vertical-align: top; overflow-wrap: anywhere; }
th { color: #666; font-weight: 600; } td.number { text-align: right; white-space: nowrap;
     font-variant-numeric: tabular-nums; }
img { max-width: 100%; } code { font-size: 13px; }
"""


@dataclass
class Table:
    """Rows under headings; texts in `code` columns are shown as code."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    code: frozenset[str] = frozenset()


@dataclass
class Section:
    """A heading, what is to be said, and what is to be seen."""

    title: str
    text: str = ""
    table: Table | None = None
    #: A PNG, and what it shows in a sentence.
    picture: tuple[bytes, str] | None = None


@dataclass
class Page:
    title: str
    intro: str
    sections: list[Section] = field(default_factory=list)

    def write(self, path: str | Path) -> Path:
        """Write it, as HTML."""
        target = Path(path)
        if target.suffix != ".html":
            raise PipelineError(f"a page is HTML; let the name {target.name!r} end with .html")
        target.write_text(self.html(), encoding="utf-8")
        return target

    def html(self) -> str:
        parts = [
            "<!doctype html>",
            f"<html lang='en'><head><meta charset='utf-8'><title>{escape(self.title)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(self.title)}</h1><p>{escape(self.intro)}</p>",
        ]
        for section in self.sections:
            parts.append(f"<h2>{escape(section.title)}</h2>")
            if section.text:
                parts.append(f"<p>{escape(section.text)}</p>")
            if section.picture is not None:
                png, says = section.picture
                data = b64encode(png).decode()
                parts.append(f"<img alt='{escape(says)}' src='data:image/png;base64,{data}'>")
            if section.table is not None:
                parts.append(_html_table(section.table))
        return "\n".join([*parts, "</body></html>", ""])


def _html_table(table: Table) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{escape(h)}</th>" for h in table.headings) + "</tr>"]
    for row in table.rows:
        cells = []
        for heading, value in zip(table.headings, row, strict=True):
            text = escape(written(value))
            if heading in table.code and value is not None:
                text = f"<code>{text}</code>"
            number = isinstance(value, int | float) and not isinstance(value, bool)
            cells.append(f"<td class='number'>{text}</td>" if number else f"<td>{text}</td>")
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def written(value: Any) -> str:
    """A value for people.

    >>> written(1234567), written(0.12345), written(None), written(True)
    ('1,234,567', '0.123', '–', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
