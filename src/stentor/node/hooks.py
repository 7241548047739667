"""Hooks: code of an application that changes what happens below the API (R-01.72).

At eight points somebody may look at what passes. A hook is a plain function of one value. It lets
the value pass by returning None (or the value itself), puts another in its place by returning that,
or stops it by returning `VETO` or raising an error. Hooks run in the order in which they were
added, each on what the one before it returned. A hook that raises counts as a veto and is logged: a
mistake in a hook stops one notification, never the service.

    point       runs in   value
    advertise   client    the `Filter` that is about to be advertised
    publish     client    the `Notification` that is about to be published; it has no id yet
    subscribe   client    the `Filter` that is about to be subscribed
    admin_in    broker    a message about filters from a neighbor, before it takes effect
    route       broker    an encoded notification that is about to be matched
    forward     broker    an encoded notification that is about to go to a neighbor
    deliver     client    the `Notification` that is about to be handed to the application
    drop        both      a `Dropped`, after the fact; the answer is ignored

Hooks run where the value is, in the middle of everything: they have to be quick and must not block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from stentor.errors import InvalidConfiguration

Point: TypeAlias = Literal[
    "advertise", "publish", "subscribe", "admin_in", "route", "forward", "deliver", "drop"
]
Hook: TypeAlias = Callable[[Any], Any]

POINTS: Final[tuple[Point, ...]] = get_args(Point)

_log: Final = logging.getLogger("stentor.hooks")


class _Veto:
    """The answer of a hook that stops what passes."""

    def __repr__(self) -> str:
        return "VETO"


VETO: Final = _Veto()


class Dropped(NamedTuple):
    """Something that will not be delivered, and why."""

    value: Any
    reason: str


class Hooks:
    """The hooks of one client or broker.

    >>> hooks = Hooks()
    >>> hooks.add("publish", lambda n: n.upper())
    >>> hooks.add("publish", lambda n: VETO if n == "SECRET" else None)
    >>> hooks.run("publish", "quote"), hooks.run("publish", "secret")
    ('QUOTE', VETO)
    >>> hooks.vetoed["publish"]
    1
    """

    __slots__ = ("_hooks", "vetoed")

    def __init__(self) -> None:
        self._hooks: dict[Point, tuple[Hook, ...]] = {}
        #: How much was stopped at each point.
        self.vetoed: dict[Point, int] = dict.fromkeys(POINTS, 0)

    def add(self, point: Point, hook: Hook) -> None:
        """From now on the hook sees what passes the point, after those added before."""
        _check_point(point)
        given: object = hook
        if not callable(given) or iscoroutinefunction(given):
            raise InvalidConfiguration(
                f"{hook!r} cannot be a hook; give a plain function of one value, "
                "which returns at once"
            )
        self._hooks[point] = (*self._hooks.get(point, ()), hook)

    def remove(self, point: Point, hook: Hook) -> None:
        """No longer; the earliest one if it was added several times."""
        _check_point(point)
        hooks = list(self._hooks.get(point, ()))
        if hook not in hooks:
            raise InvalidConfiguration(f"{hook!r} is not a hook at {point!r}; nothing to remove")
        hooks.remove(hook)
        self._hooks[point] = tuple(hooks)

    def watches(self, point: Point) -> bool:
        """Whether there is a hook at all, so that nothing has to be prepared for none."""
        return bool(self._hooks.get(point))

    def run(self, point: Point, value: Any) -> Any:
        """The value as the hooks leave it, or `VETO`."""
        for hook in self._hooks.get(point, ()):
            try:
                answer = hook(value)
            except Exception:
                _log.exception("the hook %r at %s failed, which counts as a veto", hook, point)
                answer = VETO
            if answer is VETO:
                self.vetoed[point] += 1
                return VETO
            if answer is not None:
                value = answer
        return value

    def tell(self, point: Point, value: Any) -> None:
        """Let all hooks see what has already happened; nothing can be changed about it."""
        for hook in self._hooks.get(point, ()):
            try:
                hook(value)
            except Exception:
                _log.exception("the hook %r at %s failed", hook, point)


def _check_point(point: object) -> None:
    if point not in POINTS:
        raise InvalidConfiguration(
            f"there is no point {point!r} for hooks; choose one of {', '.join(POINTS)}"
        )
