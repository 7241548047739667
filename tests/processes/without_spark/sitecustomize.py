"""First on the path of a process, this hides Spark from it, as where it was never installed."""

import sys
from typing import Any


class _Hiding:
    """What another finder finds, but for Spark."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in ("pyspark", "py4j"):
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


sys.meta_path[:] = [_Hiding(finder) for finder in sys.meta_path]
