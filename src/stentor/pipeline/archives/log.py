"""The log of an archive: theory of operation.

An archive is a directory:

    data/type=quote.stock/day=2026-01-01/….parquet     events
    _stentor/log/00000000000000000017.json             commit number 17
    _stentor/snapshots/00000000000000000032.json.zst   the state after commit 32
    _stentor/checkpoints/…                             of streaming queries that write here

Spark's own file sink keeps a log beside its files, too. It was not used: its log belongs to one
query, so nobody else can write, nothing can be compacted, and it knows neither schemas nor
statistics nor positions. The log here is that of a small table format. Its rules:

1. Data files are written first, under names that nobody else uses. They mean nothing yet.
2. A commit is one new file in the log, under the next number, made so that it appears whole or not
   at all and so that only one writer gets the number (`Store.put_new`). Whoever comes too late
   reads what the other has done, asks again whether its own step still makes sense (the micro-batch
   is not yet there, no type contradicts, the files to replace are still there), and tries the
   number behind. A file system may report a failure although it has done what it was asked, so who
   has lost looks whether the winner is not itself.
3. A commit names the micro-batch that it holds. A batch that is there already is not written again.
   Spark runs a batch again until it has heard that it succeeded, and always with the same rows. So
   each is in the archive exactly once, wherever a driver dies: before the commit its files mean
   nothing, after it the batch is passed over. A second driver that still runs by mistake is held
   off by the same test.
4. Readers take the newest state and keep it. A compaction that goes on meanwhile changes nothing
   for them: it adds new files and takes old ones out in one commit, and the old files themselves
   stay for a grace time.

Reading the state means reading the newest snapshot and the commits behind it. A snapshot is made by
whoever commits, from time to time; it adds no information, and if it is not made, nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import Final

import pyarrow as pa

from stentor.errors import ArchiveError
from stentor.pipeline.archives.manifests import (
    Commit,
    State,
    decoded_commit,
    decoded_state,
    encoded,
)
from stentor.pipeline.archives.stores import Store

LOG: Final = "_stentor/log"
SNAPSHOTS: Final = "_stentor/snapshots"
#: A snapshot is made after so many commits, and of large archives more seldom.
INTERVAL: Final = 32
FILES_PER_COMMIT: Final = 256
#: Each lost race means that somebody else has won one; so many in a row mean that something else is
#: wrong.
ATTEMPTS: Final = 1_000

_COMPRESSION: Final = "zstd"

_log: Final = logging.getLogger("stentor.pipeline")


class Log:
    """The log in one store. It remembers the newest state that it has seen."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._state: State | None = None
        self._snapshot = 0

    # -- reading

    def state(self) -> State:
        """The newest state; version 0 if nothing was ever committed."""
        state = self._state
        if state is None:
            state = self._newest_snapshot()
        while True:
            state = self._forward(state)
            if self._snapshots(above=state.version):
                # Others went on for so long that the commits behind ours are tidied up.
                state = self._newest_snapshot()
                continue
            self._state = state
            return state

    def existing(self) -> State:
        """The newest state; `ArchiveError` if there is no archive."""
        state = self.state()
        if not state.version:
            raise ArchiveError(
                f"there is no archive at {self.store.place.root}; is the path right? An archive is "
                "made by archive(events, path)"
            )
        return state

    def at(self, version: int) -> State:
        """The state at an earlier version, as long as it can be told."""
        known = self._state
        if known is not None and known.version == version:
            return known
        base = [number for number in self._snapshots() if number <= version]
        state = self._load(max(base)) if base else State()
        state = self._forward(state, until=version)
        if state.version != version:
            raise ArchiveError(
                f"version {version} of the archive at {self.store.place.root} is no longer known: "
                "it was tidied up by a compaction; begin anew with the newest, and keep more with "
                "a longer grace time"
            )
        return state

    def _forward(self, state: State, until: int | None = None) -> State:
        while until is None or state.version < until:
            name = _commit_name(state.version + 1)
            data = self.store.read(name)
            if data is None:
                break
            state = state.after(decoded_commit(data, name))
        return state

    def _snapshots(self, above: int = 0) -> list[int]:
        names = [entry.name.rpartition("/")[2] for entry in self.store.entries(SNAPSHOTS)]
        numbers = [int(name[:20]) for name in names if name[:20].isdigit()]
        return [number for number in numbers if number > above]

    def _newest_snapshot(self) -> State:
        numbers = self._snapshots()
        return self._load(max(numbers)) if numbers else State()

    def _load(self, version: int) -> State:
        name = _snapshot_name(version)
        data = self.store.read(name)
        if data is None:
            raise ArchiveError(f"{name} is gone while it was read; try again")
        try:
            plain = pa.CompressedInputStream(pa.BufferReader(data), _COMPRESSION).read()
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(
                f"{name} is damaged: {error}; delete it, an older one and the log will do"
            ) from error
        self._snapshot = max(self._snapshot, version)
        return decoded_state(plain, name)

    # -- writing

    def commit(self, make: Callable[[State], Commit | None]) -> State:
        """Commit what `make` makes of the newest state, which it is given, maybe several times.

        It may raise, or return None: then there is nothing to commit. Returns the newest state.
        """
        for _ in range(ATTEMPTS):
            state = self.state()
            commit = make(state)
            if commit is None:
                return state
            following = state.after(commit)
            name, data = _commit_name(following.version), encoded(commit)
            if self.store.put_new(name, data) or self.store.read(name) == data:
                self._state = following
                self._maybe_snapshot(following)
                return following
        raise ArchiveError(
            f"the archive at {self.store.place.root} takes no commit: {ATTEMPTS} times another "
            "writer was faster; are there that many?"
        )

    def _maybe_snapshot(self, state: State) -> None:
        interval = max(INTERVAL, len(state.files) // FILES_PER_COMMIT)
        if state.version - self._snapshot < interval:
            return
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, _COMPRESSION) as stream:
            stream.write(encoded(state))
        try:
            self.store.put(_snapshot_name(state.version), sink.getvalue().to_pybytes())
        except ArchiveError as error:  # the commit stands, and the next one will try again
            _log.warning("no snapshot was made: %s", error)
        else:
            self._snapshot = state.version

    # -- tidying up

    def discard(self, paths: Set[str]) -> None:
        """Delete data files that were written for nothing; none that the archive knows."""
        if not paths:
            return
        state = self.state()
        self.store.delete(paths - state.files.keys() - state.removed.keys())

    def tidy(self, before: float) -> list[str]:
        """Delete commits and snapshots that nobody needs who began after `before`; which ones."""
        entries = self.store.entries(SNAPSHOTS)
        old = sorted(e.name for e in entries if e.modified < before and e.name.endswith(".zst"))
        if not old:
            return []
        base = old[-1]  # from here on, every version can be told
        number = base.rpartition("/")[2][:20]
        gone = [
            e.name
            for e in self.store.entries(LOG)
            if e.modified < before and e.name.rpartition("/")[2][:20] <= number
        ]
        gone += old[:-1]
        self.store.delete(gone)
        return gone


def _commit_name(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def _snapshot_name(version: int) -> str:
    return f"{SNAPSHOTS}/{version:020}.json.zst"
