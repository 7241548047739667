"""What happens in histories, each in one line: whatever goes into a channel or comes out of one.

Run as a program it prints, for each seed that it is given, a digest of all that. A history depends
on its seed alone, so the digests are the same in every process.

    python tests/node/live/traced_histories.py 1147 2014:rendezvous 5000:hangs 7:settling 7:chain
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import chain_histories
import live_histories
import settling_histories

from stentor.node.agenda import Append, Persist
from stentor.simulation.schedule import Schedule


def digest_of(seed: int, kind: str) -> str:
    found = hashlib.sha256()
    put, take = Schedule.put, Schedule.next

    def noted_put(self: Schedule, channel: Any, what: Any) -> None:
        found.update(f"{_named(channel)} {_said(what)}\n".encode())
        put(self, channel, what)

    def noted_take(self: Schedule, channel: Any = None) -> Any:
        taken = take(self, channel)
        found.update(f"{taken and _named(taken[0])}\n".encode())
        return taken

    Schedule.put, Schedule.next = noted_put, noted_take  # type: ignore[method-assign]
    try:
        if kind == "settling":
            settling_histories.run_history(seed)
        elif kind == "chain":
            chain_histories.run_history(seed)
        else:
            shape = kind if kind and kind != "hangs" else None
            live_histories.run_history(seed, shape=shape, hangs=kind == "hangs")
    finally:
        Schedule.put, Schedule.next = put, take  # type: ignore[method-assign]
    return found.hexdigest()


def _named(channel: Any) -> Any:
    return tuple(getattr(part, "id", part) for part in channel)


def _said(what: Any) -> Any:
    match what:
        case Append():
            return [bytes(item) for item in what.items], what.marks
        case Persist():
            return what.name, what.data
        case tuple():
            return [_said(part) for part in what]
        case bytes() | bytearray() | int() | None:
            return what
    return type(what).__name__


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        seed, _, kind = argument.partition(":")
        print(argument, digest_of(int(seed), kind))
