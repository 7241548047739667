"""How a command ends: exit codes, and errors as one line.

0    it did what was asked
1    it failed; a line on stderr says why, and what to do
2    it was used wrongly: an unknown option, a value or configuration that makes no sense
130  it was interrupted by Ctrl-C (SIGINT); 143 by SIGTERM

A broker and an overlay run until they are told to stop, by either signal: that is 0. So it is for
a pipeline with SIGTERM, as service managers send it.

What a command has to say beside its result goes to stderr through `report`, `fail`, `warn` and
`note`: as lines for people, or with --json as an object per line:

    {"level":"error","code":"STN-602","message":"nobody is at b1:7411; is the broker running?"}
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from stentor.errors import (
    FilterSyntaxError,
    FilterTooComplex,
    FilterTypeError,
    InvalidAddress,
    InvalidConfiguration,
    InvalidPattern,
    InvalidScopeGraph,
    InvalidTopology,
    NeverMatches,
    PipelineDefinitionError,
    ScopeSyntaxError,
    StentorError,
    UnknownScope,
    UnknownStrategy,
    UnsupportedPattern,
)

if TYPE_CHECKING:
    from click import ClickException

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
    InvalidScopeGraph,
    InvalidTopology,
    NeverMatches,
    PipelineDefinitionError,
    ScopeSyntaxError,
    UnknownScope,
    UnknownStrategy,
    UnsupportedPattern,
)


def exit_code(error: StentorError) -> int:
    """The exit code of a command that ends with this error."""
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILURE


_in_json = False


def speak_json(wanted: bool) -> None:
    """Whether what follows is told in JSON, as --json asks for."""
    global _in_json
    _in_json = wanted


def shows_progress() -> bool:
    """Whether somebody is there who can see a bar."""
    return sys.stderr.isatty() and not _in_json


def report(error: StentorError) -> None:
    """Say which error it is."""
    if _in_json:
        for problem in _problems(error):
            _write_object("error", problem, error.code)
    else:
        _write(describe(error))


def report_usage(error: ClickException) -> None:
    """Say what is wrong with the command line."""
    if _in_json:
        _write_object("error", error.format_message(), InvalidConfiguration.code)
    else:
        error.show()


def fail(text: str, *, code: str | None = None) -> None:
    """Say what is wrong where no `StentorError` was raised."""
    if _in_json:
        _write_object("error", text, code)
    else:
        _write(f"stentor: {code}: {text}" if code else f"stentor: {text}")


def warn(text: str, *, place: str = "") -> None:
    """Say something that is no error; the place is where in a file, as FILE:LINE:COLUMN."""
    if _in_json:
        _write_object("warning", text, place=place)
    else:
        _write(f"{place or 'stentor'}: warning: {text}")


def note(text: str) -> None:
    """Say how it goes."""
    if _in_json:
        _write_object("note", text)
    else:
        _write(f"stentor: {text}")


def describe(error: StentorError) -> str:
    """The error for people: one line for each problem, with what there is to read about it.

    >>> from stentor.errors import Unreachable
    >>> print(describe(Unreachable("nobody is at b1:7411; is the broker running?")))
    stentor: STN-602: nobody is at b1:7411; is the broker running? (stentor explain STN-602)
    """
    lines = [f"stentor: {error.code}: {problem}" for problem in _problems(error)]
    return "\n".join(lines) + f" (stentor explain {error.code})"


def _problems(error: StentorError) -> list[str]:
    text = str(error) or type(error).__name__
    if isinstance(error, InvalidConfiguration | InvalidTopology):
        return text.splitlines()  # each line is a problem
    return [text]


def _write_object(level: str, text: str, code: str | None = None, *, place: str = "") -> None:
    import msgspec

    told = {"level": level, "code": code, "place": place, "message": text}
    _write(msgspec.json.encode({name: each for name, each in told.items() if each}).decode())


def _write(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
