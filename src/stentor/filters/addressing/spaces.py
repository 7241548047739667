"""Namespaces of subjects, each with the one dialect that its subjects and patterns are read in.

The dialects share symbols and disagree on their meaning, so a deployment that serves several binds
each to a part of the subject tree and never passes dialects around (R-07.05). All names and
patterns of a `SubjectSpace` are relative to its prefix; no pattern reaches out of the space, not
even to the ancestors that SwiftMQ's dialect includes.
"""

from __future__ import annotations

from dataclasses import dataclass

from stentor.errors import FilterTypeError
from stentor.filters.addressing.content import Content, check_text, with_content
from stentor.filters.addressing.subjects import (
    DIALECTS,
    below,
    check_name,
    checked_separator,
    compiled,
    compiled_like,
    dialect_named,
)
from stentor.filters.filter import Filter
from stentor.model.names import MAX_SUBJECT_BYTES


@dataclass(frozen=True, slots=True)
class SubjectSpace:
    """The subjects below a prefix, in one dialect. An empty prefix stands for the whole tree.

    >>> from stentor import Notification
    >>> stocks = SubjectSpace("stocks", dialect="rendezvous")
    >>> ibm = Notification({"price": 120}, subject=stocks.name("nyse.IBM"))
    >>> ibm.subject
    'stocks.nyse.IBM'
    >>> stocks.filter("*.IBM", "price > 100").matches(ibm)
    True
    """

    prefix: str
    dialect: str = "stentor"
    separator: str | None = None
    star: str = "segment"

    def __post_init__(self) -> None:
        dialect = dialect_named(self.dialect, self.star)
        object.__setattr__(self, "separator", checked_separator(dialect, self.separator))
        if self.prefix:
            check_name(dialect, self.prefix, self._separator, rooted=True)

    @property
    def _separator(self) -> str:
        assert self.separator is not None
        return self.separator

    @property
    def _under(self) -> str:
        return self.prefix + self._separator if self.prefix else ""

    def name(self, path: str) -> str:
        """The subject to publish under: the prefix and the path, which must hold no wildcard."""
        check_name(DIALECTS[self.dialect], path, self._separator, rooted=not self.prefix)
        full = self._under + path
        check_text("a subject", full, MAX_SUBJECT_BYTES)
        return full

    def filter(self, pattern: str, content: Content = None) -> Filter:
        """The notifications of this space whose path the pattern accepts."""
        expression = compiled(
            DIALECTS[self.dialect], pattern, self._under, self._separator, self.star
        )
        return with_content(Filter.of_expression(expression), content)

    def like(
        self,
        pattern: str,
        content: Content = None,
        *,
        whole: bool = False,
        escape: str | None = None,
    ) -> Filter:
        """By an SQL LIKE pattern; only in SwiftMQ's dialect. See `subject_like`."""
        if self.dialect != "swiftmq":
            raise FilterTypeError(
                "SQL LIKE patterns belong to the dialect 'swiftmq', "
                f"but this space has {self.dialect!r}; use filter()"
            )
        expression = compiled_like(pattern, self._under, self._separator, whole, escape)
        return with_content(Filter.of_expression(expression), content)

    def everything(self, content: Content = None) -> Filter:
        """All notifications of this space.

        >>> SubjectSpace("a").everything().covers(SubjectSpace("a.b").filter("*"))
        True
        """
        return with_content(Filter.of_expression(below(self._under)), content)
