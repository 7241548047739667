"""The LALR parser that `grammar.lark` describes, over kinds of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from stentor.filters.language.mistakes import TextError


def parse_kinds(kinds: tuple[str, ...]) -> Tree[Token]:
    """The parse tree; the `start_pos` of a token in it is the token's number."""
    try:
        return _parser().parse(kinds)
    except UnexpectedToken as error:
        raise _unexpected(error, kinds) from None


class _KindLexer(Lexer):
    """Hands the kinds to the parser; each token remembers its number."""

    def __init__(self, _configuration: Any) -> None:
        pass

    def lex(self, kinds: Any) -> Iterator[Token]:  # type: ignore[override]  # lark's short form
        return (Token(kind, kind, start_pos=index) for index, kind in enumerate(kinds))


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=_KindLexer, maybe_placeholders=False)


#: What was expected, in words: a set of terminals, the words if all of them are accepted, and the
#: terminals about which nothing more needs to be said then.
Words = tuple[tuple[frozenset[str], str, frozenset[str]], ...]
_WORDS: Final[Words] = tuple(
    (frozenset(needed.split()), word, frozenset(covered.split()))
    for needed, word, covered in (
        (
            "EXISTS ISA QUOTED",
            "a condition such as x > 1",
            "NUMBER STRING TRUE NOT _LPAR _SOME NAME $END",
        ),
        ("_AND _OR", "'and' or 'or'", "EQ"),  # a comparison could go on as a chain, but rarely does
        ("$END", "the end of the filter", "EQ"),
        ("_RPAR _COMMA", "',' or ')'", ""),
        ("_RPAR", "')'", "EQ"),
        ("EQ", "a comparison such as = or <", "NAME STRING"),
        ("IN PREFIX", "a test such as in, between or prefix", "NAME HAS MISSING"),
        ("MISSING", "missing, not or the name of a type", "NAME"),
        ("QUOTED NUMBER", "a value or an attribute name", "STRING NAME TRUE _LPAR"),
        ("QUOTED STRING", "the name of an event type", "NAME"),
        ("QUOTED", "an attribute name", "NAME"),
        ("NUMBER STRING", "a value", "NAME TRUE _LPAR"),
        ("NUMBER", "a number", ""),
        ("STRING", "a string in single quotes", "NAME"),
        ("_LPAR", "'(' and a list of values", ""),
        ("_AND", "'and'", ""),
        ("NAME", "the name of a type", ""),
    )
)


def in_words(accepted: set[str], table: Words = _WORDS) -> tuple[str, ...]:
    """What the parser would have accepted, for people.

    >>> in_words({"_RPAR", "_AND", "_OR", "EQ"})
    ("'and' or 'or'", "')'")
    """
    left = set(accepted)
    words = []
    for needed, word, covered in table:
        if needed <= left:
            words.append(word)
            left -= needed | covered
    return tuple(words)


class UnexpectedTextError(TextError):
    """A token that the grammar has no place for."""

    def __init__(self, index: int, accepted: set[str]) -> None:
        super().__init__("", index, in_words(accepted))
        self.accepted = accepted


def _unexpected(error: UnexpectedToken, kinds: tuple[str, ...]) -> UnexpectedTextError:
    at_end = error.token.type == "$END"
    index = len(kinds) if at_end else error.token.start_pos
    assert index is not None
    return UnexpectedTextError(index, set(error.accepts or ()))
