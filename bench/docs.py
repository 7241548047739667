"""Writes the results into docs/benchmarks.md: each subject between two markers of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from figures import seconds
from tables import Results, Table


@dataclass(frozen=True)
class Section:
    """What one command writes: its name in the markers, and the command."""

    name: str
    arguments: str

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}: begin, written by bench/run.py{self.arguments} --write-docs -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.name}: end -->"


MATCHING: Final = Section("results", "")
ROUTING: Final = Section("routing", " routing")
LIVE: Final = Section("live", " live")
PIPELINE: Final = Section("pipeline", " pipeline")


def write_docs(results: Results, tables: list[Table], page: Path, section: Section) -> None:
    """Replaces what stands between the section's markers, and nothing else."""
    text = page.read_text(encoding="utf-8")
    begin, end = section.begin, section.end
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"{page}: needs the lines\n{begin}\n{end}\nonce each")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    written = markdown(results, tables, section)
    page.write_text(f"{before}{begin}\n\n{written}\n{end}{after}", encoding="utf-8")


def markdown(results: Results, tables: list[Table], section: Section) -> str:
    """The whole section."""
    machine = results["machine"]
    flags = {"default": ""}.get(results["profile"], f" --{results['profile']}")
    command = f"./dev bench{section.arguments}{flags}"
    parts = [
        f"Measured with `{command}` in {seconds(results['seconds'])} on "
        f"{machine['processor']}, {machine['cores']} cores ({machine['system']}), "
        f"Python {machine['python']}, Numba {machine['numba']}, NumPy {machine['numpy']}, "
        f"PyArrow {machine['pyarrow']}.\n"
    ]
    if load := results.get("load_average"):
        parts.append(f"The load average was {load:.1f}; the run itself makes one of it.\n")
    parts += [f"{note}\n" for note in results.get("notes", ())]
    return "\n".join(parts + [_table(table) for table in tables])


def _table(table: Table) -> str:
    lines = [f"### {table.title}", ""]
    if table.note:
        lines += [table.note, ""]
    lines.append("| " + " | ".join(table.header) + " |")
    left = {table.header[0], "Engine", "Load"}
    lines.append("|" + "|".join("---" if name in left else "---:" for name in table.header) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"
