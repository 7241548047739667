"""When which filter was active: the sets S and A of the model, with their past.

Each component has a set of filters that is keyed by filter id: beginning one that is active and
ending one that is not change nothing, and nothing is counted (R-01.07, R-01.08).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from stentor.filters import Filter

_EVERYTHING: Final = Filter()
#: Before all actions, however they are numbered.
ALWAYS: Final = -(2**63)


class Interval(Struct, frozen=True):
    """A filter that was active after the action `since` and, if withdrawn, up to `until`."""

    component: str
    id: Hashable
    filter: Filter
    since: int
    until: int | None = None

    def __str__(self) -> str:
        return f"{self.id} ({self.filter})"


class Intervals:
    """The subscriptions, or the advertisements, of all components.

    With `everything`, each component has had a filter that matches everything from the beginning
    and cannot withdraw it: a service without advertisements (R-01.36).
    """

    __slots__ = ("_active", "_ended", "_everything")

    def __init__(self, *, everything: bool = False) -> None:
        self._active: dict[str, dict[Hashable, Interval]] = {}
        self._ended: dict[str, list[Interval]] = {}
        self._everything = everything

    def begin(self, component: str, id: Hashable, filter: Filter, position: int) -> None:
        active = self._active.setdefault(component, {})
        if id not in active:
            active[id] = Interval(component, id, filter, position)

    def end(self, component: str, id: Hashable, position: int) -> None:
        interval = self._active.get(component, {}).pop(id, None)
        if interval is not None:
            ended = Interval(component, id, interval.filter, interval.since, position)
            self._ended.setdefault(component, []).append(ended)

    def components(self) -> Iterator[str]:
        """Those that ever had a filter, in order of their first."""
        return iter(self._active)

    def active(self, component: str) -> Collection[Interval]:
        if self._everything:
            return (Interval(component, "everything", _EVERYTHING, since=ALWAYS),)
        return self._active.get(component, {}).values()

    def ended(self, component: str) -> Sequence[Interval]:
        """Those withdrawn, in the order of their withdrawal."""
        return self._ended.get(component, ())
