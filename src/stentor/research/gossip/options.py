"""Checks of the numbers that a gossip router is configured with."""

from __future__ import annotations

from math import inf

from stentor.errors import InvalidConfiguration


def at_least(least: int, **option: int) -> int:
    """The option's value, which must be a whole number and not too small.

    >>> at_least(1, fanout=3)
    3
    >>> at_least(1, fanout=0)
    Traceback (most recent call last):
    stentor.errors.InvalidConfiguration: fanout is 0; give a whole number of at least 1
    """
    ((name, value),) = option.items()
    if type(value) is not int or value < least:
        raise InvalidConfiguration(f"{name} is {value!r}; give a whole number of at least {least}")
    return value


def share(**option: float) -> float:
    """The option's value, which must be a share or probability.

    >>> share(tau=0.25)
    0.25
    """
    ((name, value),) = option.items()
    if not 0 <= value <= 1:  # NaN neither
        raise InvalidConfiguration(f"{name} is {value!r}; give a number from 0 to 1")
    return value


def positive(**option: float) -> float:
    """The option's value, which must be a finite span of time.

    >>> positive(period=0.5)
    0.5
    """
    ((name, value),) = option.items()
    if not 0 < value < inf:
        raise InvalidConfiguration(f"{name} is {value!r}; give a positive, finite number")
    return value
