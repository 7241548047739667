"""Writes the results into docs/benchmarks.md, between the two markers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from figures import seconds
from tables import Results, Table, tables_of

BEGIN: Final = "<!-- results: begin, written by bench/run.py --write-docs -->"
END: Final = "<!-- results: end -->"


def write_docs(results: Results, page: Path) -> None:
    """Replaces what stands between the markers."""
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{page}: needs the lines\n{BEGIN}\n{END}\nonce each")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n{END}{after}", encoding="utf-8")


def markdown(results: Results) -> str:
    """The whole section."""
    machine = results["machine"]
    flags = {"default": ""}.get(results["profile"], f" --{results['profile']}")
    parts = [
        f"Measured with `./dev bench{flags}` in {seconds(results['seconds'])} on "
        f"{machine['processor']}, {machine['cores']} cores ({machine['system']}), "
        f"Python {machine['python']}, Numba {machine['numba']}, NumPy {machine['numpy']}, "
        f"PyArrow {machine['pyarrow']}.\n"
    ]
    return "\n".join(parts + [_table(table) for table in tables_of(results)])


def _table(table: Table) -> str:
    lines = [f"### {table.title}", ""]
    if table.note:
        lines += [table.note, ""]
    lines.append("| " + " | ".join(table.header) + " |")
    left = {table.header[0], "Engine"}
    lines.append("|" + "|".join("---" if name in left else "---:" for name in table.header) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"
