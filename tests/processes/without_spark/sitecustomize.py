"""First on the path of a process, this hides Spark from it, as where it was never installed."""

import sys
from typing import Any


class _Hidden:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Hidden())  # type: ignore[arg-type]
