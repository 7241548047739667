"""First on the path of a process, this hides modules from it, as where they were never installed.

Which ones is said by the variable HIDDEN_MODULES; without it, Spark's.
"""

import os
import sys
from typing import Any

_HIDDEN = os.environ.get("HIDDEN_MODULES", "pyspark,py4j").split(",")


class _Hiding:
    """What another finder finds, but for these."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in _HIDDEN:
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


sys.meta_path[:] = [_Hiding(finder) for finder in sys.meta_path]
