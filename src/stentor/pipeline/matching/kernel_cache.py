"""A cache of compiled kernels for each Python worker.

Numba keeps what it has compiled on disk, so that a new process need not compile for seconds. But
its cache is not made for several processes that compile at the same time: two may give their code
the same file name, and one then runs the other's. Spark starts a worker for every core, and all
meet their first batch at the same moment. So a worker claims a directory of its own for as long as
it lives; a later worker finds it free again, and warm. A directory that is new begins as a copy of
another, if there is one: each has one writer, which never gives a name to other code, so a copy is
sound at any moment, only perhaps not complete.

Directories are claimed below NUMBA_CACHE_DIR if that is set, else in the user's cache directory. A
worker that may write to neither compiles for itself. Code is loaded from these directories, so they
must not be where others can write.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Final

#: More workers than this on one machine compile for themselves.
_MOST: Final = 1_024

#: What keeps the claimed directory: a lock, or the directory itself. Until the process ends.
_claim: IO[str] | tempfile.TemporaryDirectory[str] | None = None


def claim_kernel_cache() -> None:
    """Have kernels compiled into a directory that no other process uses. Once for a process."""
    global _claim
    if _claim is not None:
        return
    try:
        _claim, folder = _claimed(_base())
    except (OSError, RuntimeError):  # not writable; or there is no home
        _claim = tempfile.TemporaryDirectory(prefix="stentor-kernels-")
        folder = Path(_claim.name)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)

    import numba
    from numba.core.dispatcher import Dispatcher

    from stentor.matching.index import kernels

    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    for kernel in vars(kernels).values():
        if isinstance(kernel, Dispatcher):
            kernel.enable_caching()  # again: now in that directory


def _base() -> Path:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return Path(given) / "workers"
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "stentor" / "kernels"


def _claimed(base: Path) -> tuple[IO[str], Path]:
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(_MOST):
        claim = (base / f"{number}.claim").open("a")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            continue
        folder = base / str(number)
        if not folder.exists():
            _seed(folder, [other for other in base.iterdir() if other.name.isdecimal()])
        return claim, folder
    raise OSError(f"{_MOST} workers hold a directory in {base}")


def _seed(folder: Path, others: list[Path]) -> None:
    """Begin a directory with what another worker has compiled."""
    for other in sorted(others)[:1]:
        begun = folder.with_name(folder.name + ".begun")
        try:
            shutil.rmtree(begun, ignore_errors=True)
            shutil.copytree(other, begun)
            begun.rename(folder)
        except OSError:  # a file has gone meanwhile: the worker compiles itself
            shutil.rmtree(begun, ignore_errors=True)
