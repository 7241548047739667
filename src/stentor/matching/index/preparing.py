"""Having the kernels compiled before they are needed.

A kernel is compiled when it is first called, and once more for every other type of argument. That
takes seconds, in which an event loop would stand still. `prepare` makes every call that an index
can make, on a handful of filters, so that nothing is compiled afterwards.

Numba keeps compiled kernels on disk, but it is not made for processes that compile at the same
time: two may give their code the same file name, and one then runs the other's. So they take turns
with a lock, and whoever comes later finds the work done. A process that was stopped in its turn is
not waited for for ever. Code is loaded from that directory: it must belong to this user, and nobody
else may write there. Without such a directory, or without a turn, the kernels are compiled in
memory.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Final, NamedTuple, TypeAlias

import numba
import pyarrow as pa
from numba.core import event as events
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from stentor.filters import Filter
from stentor.matching.index import kernels
from stentor.matching.index.columns import SMALL
from stentor.matching.index.index import Index
from stentor.matching.index.ragged import COMMON

#: Called with what to tell who waits.
Notice: TypeAlias = Callable[[str], object]

_COMPILING: Final = "compiling the matching code first, which takes about half a minute; {}"
_ONCE: Final = "the next start finds it in {} (the setting `kernels`)"
_EVERY_TIME: Final = (
    "this happens at every start until the setting `kernels` names a writable directory"
)
#: Seconds of waiting for another process before it is told: it may just be loading.
_QUIETLY: Final = 5.0
#: Seconds of waiting after that, several times what compiling takes.
_PATIENCE: Final = 120.0
#: The file that processes take turns by.
_LOCK: Final = "lock"


class Prepared(NamedTuple):
    """Where compiled kernels are kept; None if nowhere, and then why."""

    folder: Path | None
    problem: str | None


_turn: Final = threading.Lock()
_prepared: Prepared | None = None


def is_prepared() -> bool:
    """Whether this process has done it."""
    return _prepared is not None


def prepare(folder: Path | None = None, notice: Notice = lambda text: None) -> Prepared:
    """Compile every kernel, or load it from this directory; by default the user's own.

    That is NUMBA_CACHE_DIR if it is set, else `stentor/kernels` in the user's cache directory. Only
    the first call of a process does anything. `notice` is called with what to tell who waits, as
    soon as it is known that it takes more than loading.
    """
    global _prepared
    with _turn:
        if _prepared is None:
            try:
                folder = folder or _default_folder()
                with _own_turn(folder, notice):
                    _keep_in(folder)
                    with _noticed(_COMPILING.format(_ONCE.format(folder)), notice):
                        call_all()
                _prepared = Prepared(folder, None)
            except (OSError, RuntimeError) as error:  # not writable, not ours, no turn; or no home
                for kernel in dispatchers().values():
                    kernel._cache = NullCache()  # type: ignore[attr-defined]
                with _noticed(_COMPILING.format(_EVERY_TIME), notice):
                    call_all()
                _prepared = Prepared(None, str(error))
        return _prepared


def dispatchers() -> dict[str, Dispatcher]:
    """All kernels by name."""
    return {name: k for name, k in vars(kernels).items() if isinstance(k, Dispatcher)}


def _default_folder() -> Path:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return Path(given)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "stentor" / "kernels"


@contextmanager
def _noticed(text: str, notice: Notice) -> Iterator[None]:
    """Tell it when the first kernel is compiled rather than loaded."""

    class FirstTime(events.Listener):
        told = False

        def on_start(self, event: Any) -> None:
            if not self.told:
                self.told = True
                notice(text)

        def on_end(self, event: Any) -> None:
            pass

    with events.install_listener("numba:compile", FirstTime()):
        yield


@contextmanager
def _own_turn(folder: Path, notice: Notice) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        raise PermissionError(f"others could write to {folder}")
    with (folder / _LOCK).open("a") as lock:
        if not _taken(lock, _QUIETLY):
            notice(f"waiting for another process, which is compiling the matching code in {folder}")
            if not _taken(lock, _PATIENCE):
                raise TimeoutError(f"another process has kept {folder} for itself; was it stopped?")
        yield


def _taken(lock: IO[str], seconds: float) -> bool:
    """Whether the lock could be had in this time."""
    until = monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if monotonic() > until:
                return False
            sleep(0.05)


def _keep_in(folder: Path) -> None:
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    try:
        for kernel in dispatchers().values():
            kernel.enable_caching()  # again: now in that directory
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


#: Between them they reach every kernel: equalities of one attribute and of two, ranges, tokens,
#: checks, and a shape of its own.
_FILTERS: Final = (
    "a = 1",
    "a > 0 and b < 9",
    "s contains 'x' and s contains 'yz'",
    "t has 'x'",
    "a = 1 and t has 'x'",
    "s > 'a'",
    "s regex 'x+'",
    *(f"a = {i} and s = 'xyz'" for i in range(COMMON)),
)
_SEVERAL: Final = "a = 1 or b = 1"
_EVENT: Final[dict[str, Any]] = {"a": 1, "b": 1, "s": "xyz", "t": ["x", "y"]}


def call_all() -> None:
    """Call every kernel in every way that an index may."""
    batch = pa.RecordBatch.from_pylist([_EVENT])
    large = pa.RecordBatch.from_pylist([_EVENT | {"s": f"xyz{i}"} for i in range(2 * SMALL)])
    filters = [*map(Filter, _FILTERS)]
    # Keys that are all integers are found as such; and filters with several boxes need their slots.
    for kind, several in ((int, False), (str, False), (int, True)):
        index: Index[Any] = Index(background=False)
        for i, filter_ in enumerate([*filters, Filter(_SEVERAL)] if several else filters):
            index.add(kind(i), filter_)
        for state in ("recent", "compiled", "both"):
            if state == "both":
                index.add(kind(-1), filters[0])
            index.match(_EVENT)
            for rows in (batch, large, [_EVENT] * 5):
                index.match_batch(rows)
            index.match_by_key([_EVENT] * 5)
            if state == "recent":
                index.compact()
