"""Names of a package that are loaded when they are first asked for.

Spark takes a second to import, and much of the pipeline is of use without it: checking a pipeline,
replaying an archive, asking for help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`: for each name, the module within the package that has it.

    A module must not have the name of what it holds: whoever imports the module would hide it.
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
