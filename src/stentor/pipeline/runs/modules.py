"""Python files that a pipeline brings along: functions for `apply`, and steps of its own.

They are loaded when the pipeline is read, so that the steps they register are known to the checks.
A module has the name of its file. When the pipeline is run, Spark sends the files to the executors.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def load_modules(files: Sequence[Path]) -> Iterator[tuple[int, str]]:
    """Load them; yields the number and the problem of each that cannot be loaded."""
    for index, file in enumerate(files):
        if file.suffix not in (".py", ".zip"):
            yield index, f"{file.name} is neither a Python file nor a zip of such"
        elif not file.is_file():
            yield index, f"there is no file {file}"
        else:
            problem = _load(file)
            if problem is not None:
                yield index, problem


def _load(file: Path) -> str | None:
    directory = str(file if file.suffix == ".zip" else file.parent)
    if directory not in sys.path:
        sys.path.append(directory)
    if file.suffix == ".zip":
        return None
    try:
        module = importlib.import_module(file.stem)
    except Exception as error:
        return f"{file.name} cannot be loaded: {type(error).__name__}: {error}"
    loaded = getattr(module, "__file__", None)
    if loaded is None or Path(loaded).resolve() != file.resolve():
        return f"there is another module {file.stem!r}, from {loaded}; give the file another name"
    return None
