"""Names of a package that are loaded when they are first asked for.

Spark takes a second to import, and much of the pipeline is of use without it: checking a pipeline,
replaying an archive, asking for help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

#: What is installed with Spark.
_SPARK: Final = frozenset({"numba", "numpy", "pandas", "pyarrow", "pyspark"})


def lazily(package: str, **modules: str) -> Callable[[str], Any]:
    """A package's `__getattr__`: for each module within the package, the names that it has.

    A module must not have the name of what it holds: whoever imports the module would hide it.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            found = getattr(import_module(f"{package}.{home}"), name)
        except ModuleNotFoundError as error:
            if error.name not in _SPARK:
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs {error.name}, which is not installed: "
                "pip install 'stentor[spark]'",
                name=error.name,
            ) from error
        setattr(sys.modules[package], name, found)
        return found

    return find
