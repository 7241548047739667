"""Several texts made one: files that import others, and statements that know where they come from.

`IMPORT "other.scopes"` takes in another file, found beside the one that names it, at that place and
once. Two files may define the same thing in the same words; if they differ, both places are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from stentor.errors import InvalidScopeGraph, ScopeSyntaxError, StentorError, UnknownScope
from stentor.filters.language.mistakes import line_and_column
from stentor.scopes.language import syntax as s
from stentor.scopes.language.deployment import Deployment
from stentor.scopes.language.parser import mistake, parse

#: How many files may be put together.
MAX_FILES: Final = 1_000


_FIRST: Final = (s.DefineComponent, s.DefineTable)


@dataclass(frozen=True, slots=True)
class Source:
    """A text, and what it is called in messages."""

    name: str
    text: str

    def place(self, at: int) -> str:
        line, column = line_and_column(self.text, at)
        return f"{self.name}:{line}:{column}" if self.name else f"line {line}, column {column}"


@dataclass(frozen=True, slots=True)
class Located:
    statement: s.Statement
    source: Source


@dataclass(frozen=True, slots=True)
class Composition:
    """Statements of several texts in the order in which they are carried out."""

    statements: tuple[Located, ...]
    #: What is right and may still be meant otherwise: a place, and words.
    notes: tuple[tuple[str, str], ...] = ()

    def deploy(self, deployment: Deployment) -> None:
        """Carry all of them out, or none; what goes wrong is told with its place."""
        with deployment.whole():
            for each in self.statements:
                try:
                    deployment.carry_out(each.statement)
                except StentorError as error:
                    place = each.source.place(each.statement.at)
                    kind = UnknownScope if isinstance(error, UnknownScope) else InvalidScopeGraph
                    raise kind(f"{place}: {error}") from None


def compose(name: str, text: str, read: Callable[[str], str] | None = None) -> Composition:
    """The statements of a text and of all that it imports; `read` gives the text of a file.

    >>> parts = {"a": 'IMPORT "b" DEPLOY x', "b": "DEFINE SCOPE x AS ALL FROM c"}
    >>> [type(e.statement).__name__ for e in compose("a", parts["a"], parts.__getitem__).statements]
    ['DefineScope', 'Deploy']
    """
    composer = _Composer(read)
    composer.take(name, text, ())
    # Components and tables may be described after they are named: nothing depends on their order.
    first = [e for e in composer.statements if isinstance(e.statement, _FIRST)]
    rest = [e for e in composer.statements if not isinstance(e.statement, _FIRST)]
    return Composition((*first, *rest), tuple(composer.notes))


def load(path: str | Path, *, deployment: Deployment | None = None) -> Deployment:
    """What the statements of a file make: `.graph` has the scopes that are deployed."""
    found = Deployment(assume=True) if deployment is None else deployment
    compose(str(path), read_text(str(path)), read_text).deploy(found)
    return found


def read_text(name: str) -> str:
    """The text of a file."""
    try:
        return Path(name).read_text("utf-8-sig")
    except FileNotFoundError:
        raise ScopeSyntaxError(f"there is no file {name}") from None
    except (OSError, UnicodeError) as error:
        raise ScopeSyntaxError(f"{name} cannot be read: {error}") from None


class _Composer:
    def __init__(self, read: Callable[[str], str] | None) -> None:
        self._read = read
        self.statements: list[Located] = []
        self.notes: list[tuple[str, str]] = []
        self._taken: set[str] = set()
        self._defined: dict[tuple[type, str], Located] = {}

    def take(self, name: str, text: str, way: tuple[str, ...]) -> None:
        if len(self._taken) >= MAX_FILES:
            raise InvalidScopeGraph(f"more than {MAX_FILES} files import each other")
        self._taken.add(name)
        source = Source(name, text)
        script = parse(text, file=name)
        self.notes += [(source.place(at), words) for at, words in script.notes]
        for statement in script.statements:
            if isinstance(statement, s.Import):
                self._import(statement, source, (*way, name))
            elif self._is_new(Located(statement, source)):
                self.statements.append(Located(statement, source))

    def _import(self, statement: s.Import, source: Source, way: tuple[str, ...]) -> None:
        name = _beside(source.name, statement.file)
        if name in way:
            chain = " → ".join((*way[way.index(name) :], name))
            raise mistake(
                source.text, statement.at, f"files import each other: {chain}", file=source.name
            )
        if name in self._taken:
            return
        if self._read is None:
            raise mistake(
                source.text, statement.at, "there are no files to import here", file=source.name
            )
        try:
            text = self._read(name)
        except StentorError as error:
            raise mistake(source.text, statement.at, str(error), file=source.name) from None
        self.take(name, text, way)

    def _is_new(self, found: Located) -> bool:
        """Whether it says something that was not said before in the same words."""
        new = True
        for key in _defines(found.statement):
            known = self._defined.setdefault(key, found)
            if known is not found:
                if known.statement != found.statement or known.source is found.source:
                    at = found.statement.at
                    raise InvalidScopeGraph(
                        f"{found.source.place(at)}: {key[1]!r} is defined already, "
                        f"at {known.source.place(known.statement.at)}"
                    )
                new = False
        return new


def _defines(statement: s.Statement) -> Iterable[tuple[type, str]]:
    match statement:
        case s.DefineScope(name) | s.DefineTable(name):
            return [(type(statement), name)]
        case s.DefineComponent(names):
            return [(s.DefineComponent, name) for name in names]
    return ()


def _beside(name: str, other: str) -> str:
    """The name of a file that another one names."""
    parent = PurePosixPath(name).parent / other
    parts: list[str] = []
    for part in parent.parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        elif part != ".":
            parts.append(part)
    return str(PurePosixPath(*parts))
