"""One core for everything, and a cache of compiled kernels that cannot be stale.

Numba, Arrow and the numerical libraries read how many threads to use when they are imported, so
`use_one_core` comes before all other imports. Numba keeps compiled kernels on disk, but does not
notice when a kernel changed that another file's kernel calls; so the cache is in a directory named
after a digest of the sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_THREADS: Final = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "ARROW_IO_THREADS",
)


def use_one_core() -> None:
    """Must run before Numba, NumPy and Arrow are imported. Child processes inherit it."""
    for name in _THREADS:
        os.environ[name] = "1"
    caches = ROOT / ".cache" / "numba-bench"
    cache = caches / _kernel_digest()
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    for other in caches.glob("*"):
        if other != cache:
            shutil.rmtree(other, ignore_errors=True)


def _kernel_digest() -> str:
    digest = hashlib.sha256()
    for folder in ("src", "bench"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_bytes()
            if b"numba" in source:
                digest.update(f"{path.relative_to(ROOT)} {len(source)}\n".encode())
                digest.update(source)
    return digest.hexdigest()[:16]
