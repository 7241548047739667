"""Writes the table of all files into docs/architecture.md. `./dev docs` runs this."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "stentor"


def table() -> str:
    """A row for each folder of the package, with the names of its files."""
    rows = ["| Folder | Files |", "|---|---|"]
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
        if names:
            shown = "stentor" if folder == PACKAGE else folder.relative_to(PACKAGE)
            rows.append(f"| `{shown}/` | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    page = PAGE.read_text("utf-8")
    PAGE.write_text(re.sub(r"\| Folder \| Files \|\n(\|.*\n)+", lambda _: table(), page), "utf-8")


if __name__ == "__main__":
    main()
