"""What completion offers of an object: what an application may use, and nothing else."""

from __future__ import annotations

from collections.abc import Callable


def offering(*names: str) -> Callable[[object], list[str]]:
    """A `__dir__` that lists these names.

    >>> class Bell:
    ...     __dir__ = offering("ring")
    ...     def ring(self): ...
    ...     def strike(self): ...  # for the clockwork
    >>> dir(Bell())
    ['ring']
    """
    listed = sorted(names)

    def __dir__(self: object) -> list[str]:  # noqa: N807
        return listed

    return __dir__
