"""From text to expression, or to an error that shows the place.

The text is cut by one regular expression; the kinds of the tokens go through the LALR grammar of
`grammar.lark`, and the tree that comes out is turned into an expression. A text has at most
`MAX_LENGTH` characters and `MAX_NODES` events and operators, so every later pass is small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from stentor.composite import conditions as c
from stentor.composite import expressions as e
from stentor.composite.intervals import micros_of, microseconds
from stentor.errors import InvalidPattern, PatternSyntaxError, StentorError
from stentor.filters.language.grammar import Words, in_words
from stentor.filters.language.literals import number, quoted_name, string, typed
from stentor.filters.language.mistakes import TextError, shown, syntax_error

MAX_LENGTH: Final = 65_536
#: Events and operators of a pattern, those of conditions included.
MAX_NODES: Final = 200
TOO_LONG: Final = f"the pattern has more than {MAX_NODES} events and operators"
#: The most times that `{n}` may ask for.
MAX_COUNT: Final = 4_000

_UNIT: Final = (
    r"(?:weeks?|w|days?|d|hours?|h|minutes?|mins?|m|seconds?|secs?|s"
    r"|milliseconds?|ms|microseconds?|us)"
)
_AMOUNT: Final = rf"\d+(?:\.\d*)?\s*{_UNIT}(?![\w])"
_TOKEN: Final = re.compile(
    rf"""[^\W\d][\w$]*(?:\.[\w$]+)*
    | '[^']*(?:''[^']*)*' | "[^"]*(?:""[^"]*)*"
    | {_AMOUNT}(?:\s*,?\s*{_AMOUNT})*
    | \.?\d(?:[eE][+-]|[\w.])*
    | \|\| | <[=>]? | >=? | !=? | ==?
    | \S""",
    re.VERBOSE | re.IGNORECASE,
)
_WORDS_OF_THE_LANGUAGE: Final = (
    "and or not in by within where distinct partition followed loosely repeated times at least "
    "sequence"
)
_KEYWORDS: Final = {word: f"_{word.upper()}" for word in _WORDS_OF_THE_LANGUAGE.split()} | {
    "true": "TRUE",
    "false": "FALSE",
    "consuming": "CONSUMING",
}
_NAME: Final = re.compile(r"[^\W\d_]\w*")
_WORDS_THAT_ARE_TAKEN: Final = {*_KEYWORDS, "followed_by"}
_SIGNS: Final = {
    "*": "STAR",
    "+": "PLUS",
    "-": "MINUS",
    "/": "SLASH",
    "?": "QUESTION",
    ",": "COMMA",
    "=": "EQ",
    "!=": "NE",
    "<>": "NE",
    "<": "LT",
    "<=": "LE",
    ">": "GT",
    ">=": "GE",
    "|": "_BAR",
    "||": "_BARS",
    ";": "_SEMICOLON",
    "(": "_LPAR",
    ")": "_RPAR",
    "[": "_LSQUARE",
    "]": "_RSQUARE",
    "{": "_LBRACE",
    "}": "_RBRACE",
    ".": "_DOT",
}
_HINTS: Final = {
    "==": "write = to test for equality",
    "&": "write || for events in any order, and between conditions",
    "!": "write not, as in [not A in S]",
    "'": "this string is never closed",
    '"': "this quoted name is never closed",
    "->": "write ; for 'followed by'",
}
_WORDS: Final[Words] = tuple(
    (frozenset(needed.split()), word, frozenset(covered.split()))
    for needed, word, covered in (
        ("NAME _LSQUARE _LPAR", "an event such as A or [A in {A, B}]", "_SEQUENCE STAR PLUS"),
        ("NUMBER STRING", "a value or an attribute such as A.price", "NAME DOTTED _LPAR MINUS"),
        ("NAME QUOTED", "the name of an attribute", "DOTTED"),
        ("EQ NE", "a comparison such as = or <", "PLUS STAR MINUS SLASH"),
        ("DURATION", "a duration such as 10s or 1 hour", "NUMBER _AT"),
        ("_SEMICOLON", "an operator such as ; or |", "_BAR _BARS _AND _OR _FOLLOWED _NOT PLUS"),
        ("_WITHIN", "a clause such as within 10s", "_WHERE _DISTINCT _PARTITION"),
        ("COMMA", "','", ""),
        ("_RPAR", "')'", ""),
        ("_RSQUARE", "']'", ""),
        ("_RBRACE", "'}'", ""),
        ("NAME", "the name of an event", ""),
        ("NUMBER", "a number", ""),
        ("_BY", "'by'", ""),
        ("$END", "the end of the pattern", ""),
    )
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text says: an expression, and by which attributes events are parted."""

    expression: e.Expression
    partition: tuple[str, ...]


@lru_cache(maxsize=1_024)
def _read(text: str) -> Parsed:
    tokens = list(_tokens(text))
    if len(tokens) > 20 * MAX_NODES:
        raise PatternSyntaxError(f"the pattern has {len(tokens)} words and signs; that is too long")
    _check_depth(text, tokens)
    try:
        tree = _parser().parse(cast(Any, tokens))
        return _Builder().build(tree)
    except UnexpectedToken as error:
        raise _explained(text, tokens, error) from None
    except _PlaceError as error:
        raise pattern_error(text, error.place, error.message) from None


def parse_pattern(text: str) -> Parsed:
    """The expression that a text stands for.

    >>> parse_pattern("A ; B partition by host").partition
    ('host',)
    """
    if not isinstance(text, str):
        raise InvalidPattern(f"a pattern is written as a string, not as a {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise PatternSyntaxError(
            f"the pattern has {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    return _read(text)


def pattern_error(
    text: str, place: int, message: str, expected: tuple[str, ...] = ()
) -> PatternSyntaxError:
    """The error for a mistake at that place of a pattern."""
    found = syntax_error(text, place, message, expected)
    return PatternSyntaxError(
        str(found), line=found.line, column=found.column, expected=found.expected
    )


def is_event_name(text: str) -> bool:
    """Whether a pattern can speak of an event by this name.

    >>> is_event_name("Ω2"), is_event_name("a.b"), is_event_name("Within")
    (True, False, False)
    """
    return _NAME.fullmatch(text) is not None and text.lower() not in _WORDS_THAT_ARE_TAKEN


class _PlaceError(Exception):
    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place, self.message = place, message


def _tokens(text: str) -> Iterator[Token]:
    conditions = False
    for match in _TOKEN.finditer(text):
        word, place = match[0], match.start()
        kind = _KEYWORDS.get(word.lower()) or _SIGNS.get(word)
        if word.lower() == "followed_by":
            yield Token("_FOLLOWED", word, start_pos=place)
            kind = "_BY"
        elif kind is None:
            kind = _kind(word)
        conditions = conditions or kind == "_WHERE"
        if conditions and word.lower() in c.AGGREGATES and text[match.end() :].lstrip()[:1] == "(":
            kind = "AGGREGATE"
        yield Token(kind, word, start_pos=place)


def _kind(word: str) -> str:
    first = word[0]
    if first in "'\"" and len(word) > 1:
        return "STRING" if first == "'" else "QUOTED"
    if first.isdigit() or (first == "." and len(word) > 1):
        return "DURATION" if re.fullmatch(rf".*{_UNIT}", word, re.I | re.S) else "NUMBER"
    if first.isalpha() or first == "_":
        return "DOTTED" if "." in word else "NAME"
    return "UNKNOWN"


def _check_depth(text: str, tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        depth += token.type == "_LPAR"
        depth -= token.type == "_RPAR"
        if depth > 50:
            raise pattern_error(text, token.start_pos or 0, "more than 50 parentheses are open")


class _Tokens(Lexer):
    """Hands the tokens to the parser."""

    def __init__(self, _configuration: Any) -> None:
        pass

    def lex(self, tokens: Any) -> Iterator[Token]:  # type: ignore[override]
        return iter(tokens)


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=_Tokens, maybe_placeholders=False)


def _explained(text: str, tokens: list[Token], error: UnexpectedToken) -> PatternSyntaxError:
    accepted = set(error.accepts or ())
    token = error.token
    if token.type == "$END":
        place = (tokens[-1].start_pos or 0) + len(tokens[-1]) if tokens else 0
        message = "the pattern ends too early"
    else:
        place = token.start_pos
        message = f"unexpected '{shown(str(token))}'"
        hint = _HINTS.get(str(token))
        if hint is None and token.lower() in _KEYWORDS and "NAME" in accepted:
            hint = f"{token} is a keyword; give the event another name"
        elif token.type == "_PARTITION":
            hint = "partition by stands at the end of the whole pattern"
        elif token.type == "DOTTED" and "NAME" in accepted:
            hint = "the name of an event has no dots"
        message += f": {hint}" if hint else ""
    return pattern_error(text, place, message, in_words(accepted, _WORDS))


class _Builder:
    """Turns the tree of the grammar into an expression."""

    def __init__(self) -> None:
        self._nodes = 0

    def build(self, tree: Tree[Token]) -> Parsed:
        partition: tuple[str, ...] = ()
        if len(tree.children) > 1:
            names = _subtrees(cast(Any, tree.children[1]))
            partition = tuple(_attribute(name) for name in names)
            if len(set(partition)) < len(partition):
                raise _PlaceError(_place(names[-1]), "an attribute is named twice")
        return Parsed(self._expression(cast(Any, tree.children[0])), partition)

    def _count(self, tree: Tree[Token]) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _PlaceError(_place(tree), TOO_LONG)

    def _expression(self, tree: Tree[Token]) -> e.Expression:
        self._count(tree)
        made: e.Expression = getattr(self, f"_{tree.data}")(tree.children)
        return made

    def _event(self, children: list[Any]) -> e.Expression:
        name = _name(children[0])
        return e.Atom((name,), (name,))

    def _listed(self, children: list[Any]) -> e.Expression:
        names = _names(children[0])
        return e.Atom(names, names)

    def _atom(self, children: list[Any]) -> e.Expression:
        labels = _names(children[0])
        domain = _domain(children[1])
        outside = [name for name in labels if name not in domain]
        # `[A in P]` names a part of P: what is accepted belongs to the domain in any case.
        return e.Atom(labels, tuple(sorted({*domain, *outside})))

    def _negated(self, children: list[Any]) -> e.Expression:
        labels, domain = _names(children[0]), _domain(children[1])
        if set(domain) <= set(labels):
            raise _PlaceError(_place(children[0]), "nothing of the domain is left to be accepted")
        return e.Atom(labels, domain, negated=True)

    def _two(self, children: list[Any]) -> tuple[e.Expression, e.Expression]:
        return self._expression(children[0]), self._expression(children[1])

    def _alternation(self, children: list[Any]) -> e.Expression:
        return e.Alternation(*self._two(children))

    def _parallel(self, children: list[Any]) -> e.Expression:
        return e.Parallel(*self._two(children))

    def _sequence(self, children: list[Any]) -> e.Expression:
        return e.Sequence(*self._two(children))

    def _concatenation(self, children: list[Any]) -> e.Expression:
        return e.Concatenation(*self._two(children))

    def _deadline(self, children: list[Any]) -> e.Expression:
        return e.Deadline(*self._two(children), _duration(children[2]))

    def _absence(self, children: list[Any]) -> e.Expression:
        first, second = self._two(children)
        if not isinstance(second, e.Atom) or second.negated:
            raise _PlaceError(
                _place(children[1]), "only a single event can be absent; name it, as in `not "
                "followed by B within 1h`"
            )  # fmt: skip
        return absence(first, second, _duration(children[2]))

    def _iteration(self, children: list[Any]) -> e.Expression:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[str(children[1])]
        return e.Iteration(self._expression(children[0]), least, most)

    def _counted(self, children: list[Any]) -> e.Expression:
        least = _count(children[1])
        if len(children) == 2:
            most: int | None = least
        else:
            most = _count(children[3]) if len(children) > 3 else None
        if most is not None and (most < least or most == 0):
            raise _PlaceError(children[1].start_pos, "counts are written {3}, {2,} or {2,5}")
        return e.Iteration(self._expression(children[0]), least, most)

    def _at_least(self, children: list[Any]) -> e.Expression:
        return e.Iteration(self._expression(children[0]), _count(children[1]), None)

    def _timing(self, children: list[Any]) -> e.Expression:
        first, _, second, name, _, spec = children
        return e.Timing(self._expression(first), self._expression(second), _name(name), _spec(spec))

    def _within(self, children: list[Any]) -> e.Expression:
        return e.Within(self._expression(children[0]), _duration(children[1]))

    def _distinct(self, children: list[Any]) -> e.Expression:
        return e.Distinct(self._expression(children[0]), _attribute(children[1]))

    def _where(self, children: list[Any]) -> e.Expression:
        return e.Where(self._expression(children[0]), self._condition(children[1]))

    def _window(self, children: list[Any]) -> e.Expression:
        labels = tuple(_name(name) for name in _subtrees(children[0]))
        return e.Window(labels, consuming=len(children) > 1)

    def _condition(self, tree: Tree[Token]) -> c.Condition:
        children = cast("list[Any]", tree.children)
        self._count(tree)
        match tree.data:
            case "either":
                return c.Either(tuple(self._condition(each) for each in children))
            case "both":
                return c.Both(tuple(self._condition(each) for each in children))
            case "opposite":
                return c.Negation(self._condition(children[0]))
        operator = "!=" if str(children[1]) == "<>" else str(children[1])
        return c.Comparison(operator, self._term(children[0]), self._term(children[2]))

    def _term(self, tree: Tree[Token]) -> c.Term:
        children = cast("list[Any]", tree.children)
        self._count(tree)
        match tree.data:
            case "number":
                return c.Value(_literal(children[0], number))
            case "string":
                return c.Value(string(str(children[0])))
            case "typed":
                kind = str(children[0])
                return c.Value(_literal(children[1], lambda text: typed(kind, text)))
            case "truth":
                return c.Value(str(children[0]).lower() == "true")
            case "minus":
                inner = self._term(children[1])
                if isinstance(inner, c.Value) and type(inner.value) in (int, float):
                    return c.Value(-inner.value)
                return c.Calculation("-", c.Value(0), inner)
            case "field":
                name, _, attribute = str(children[0]).partition(".")
                return c.Field(name, attribute)
            case "quoted_field":
                return c.Field(_name(children[0]), _literal(children[1], quoted_name))
            case "aggregate":
                return _aggregate(children[0], children[1])
        return c.Calculation(str(children[1]), self._term(children[0]), self._term(children[2]))


def absence(first: e.Expression, second: e.Atom, micros: int) -> e.Timing:
    """First, and then none of these events in that time: the timer is what comes next."""
    taken = {name for node in e.walk(first) if isinstance(node, e.Atom) for name in node.domain}
    timer = "T"
    while timer in taken or timer in second.domain:
        timer += "T"
    domain = tuple(sorted({*second.domain, timer}))
    return e.Timing(first, e.Atom((timer,), domain), timer, e.After(micros))


def _aggregate(function: Token, inside: Tree[Token]) -> c.Aggregate:
    children = cast("list[Any]", inside.children)
    called = function.lower()
    if isinstance(children[0], Token):  # DOTTED
        name, _, attribute = str(children[0]).partition(".")
    else:
        name = _name(children[0])
        attribute = _literal(children[1], quoted_name) if len(children) > 1 else ""
    if bool(attribute) == (called == "count"):
        form = f"count({name})" if called == "count" else f"{called}({name}.attribute)"
        raise _PlaceError(function.start_pos or 0, f"this is written {form}")
    return c.Aggregate(called, name, attribute)


def _subtrees(tree: Tree[Token]) -> list[Any]:
    return [child for child in tree.children if isinstance(child, Tree)]


def _place(tree: Tree[Token] | Token) -> int:
    """Where it begins; without recursion, as a tree may be as deep as the text is long."""
    while isinstance(tree, Tree):
        tree = tree.children[0]
    return tree.start_pos or 0


def _name(tree: Tree[Token]) -> str:
    return str(tree.children[0])


def _names(tree: Tree[Token]) -> tuple[str, ...]:
    return tuple(sorted({_name(name) for name in _subtrees(tree)}))


def _domain(tree: Tree[Token]) -> tuple[str, ...]:
    return _names(tree) if tree.data == "names" else (_name(tree),)


def _attribute(tree: Any) -> str:
    token = tree.children[0]
    found: str = _literal(token, quoted_name) if token.type == "QUOTED" else str(token)
    return found


def _count(token: Token) -> int:
    if not token.isdigit() or int(token) > MAX_COUNT:
        raise _PlaceError(token.start_pos or 0, f"a count is a whole number, at most {MAX_COUNT}")
    return int(token)


def _duration(tree: Any) -> int:
    token = tree.children[0]
    return int(_literal(token, micros_of))


def _literal(token: Any, read: Callable[[str], Any]) -> Any:
    try:
        return read(str(token))
    except TextError as error:
        raise _PlaceError(token.start_pos, error.message) from None
    except StentorError as error:
        raise _PlaceError(token.start_pos, str(error)) from None


def _spec(tree: Any) -> e.Spec:
    if tree.data != "moment":
        return e.After(_duration(tree.children[0]))
    token = tree.children[0]
    text = string(str(token))
    try:
        if ":" in text and "-" not in text.split("T")[0]:
            clock = time.fromisoformat(text)
            if clock.tzinfo is not None:
                raise ValueError
            day = datetime.combine(datetime(1970, 1, 1), clock, tzinfo=UTC)
            return e.At(microseconds(day), daily=True)
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError
        return e.At(microseconds(moment))
    except ValueError:
        raise _PlaceError(
            token.start_pos,
            "write a time of the day in UTC such as '19:00', or a moment such as "
            "'2026-01-01T19:00:00Z'",
        ) from None
