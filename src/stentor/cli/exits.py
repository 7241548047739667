"""How a command ends: exit codes, and errors as one line.

0    it did what was asked
1    it failed; a line on stderr says why, and what to do
2    it was used wrongly: an unknown option, a value or configuration that makes no sense
130  it was interrupted by Ctrl-C (SIGINT); 143 by SIGTERM

A broker and an overlay run until they are told to stop, by either signal: that is 0. So it is for
a pipeline with SIGTERM, as service managers send it.
"""

from __future__ import annotations

import sys
from typing import Final

from stentor.errors import (
    FilterSyntaxError,
    FilterTooComplex,
    FilterTypeError,
    InvalidAddress,
    InvalidConfiguration,
    InvalidPattern,
    InvalidTopology,
    NeverMatches,
    PipelineDefinitionError,
    StentorError,
)

OK: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
TERMINATED: Final = 143

#: Errors in what the user wrote, rather than in what happened.
_USAGE_ERRORS: Final = (
    FilterSyntaxError,
    FilterTooComplex,
    FilterTypeError,
    InvalidAddress,
    InvalidConfiguration,
    InvalidPattern,
    InvalidTopology,
    NeverMatches,
    PipelineDefinitionError,
)


def exit_code(error: StentorError) -> int:
    """The exit code of a command that ends with this error."""
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILURE


def describe(error: StentorError) -> str:
    """The error for people: one line for each problem, with what there is to read about it.

    >>> from stentor.errors import Unreachable
    >>> print(describe(Unreachable("nobody is at b1:7411; is the broker running?")))
    stentor: STN-602: nobody is at b1:7411; is the broker running? (stentor explain STN-602)
    """
    lines = str(error).splitlines() or [type(error).__name__]
    if isinstance(error, InvalidConfiguration | InvalidTopology):  # one problem per line
        lines = [f"stentor: {error.code}: {line}" for line in lines]
    else:
        lines[0] = f"stentor: {error.code}: {lines[0]}"
    lines[-1] += f" (stentor explain {error.code})"
    return "\n".join(lines)


def complain(text: str) -> None:
    """Say something on stderr, where nothing else is disturbed."""
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Say something that is no error."""
    complain(f"stentor: warning: {text}")
