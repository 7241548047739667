"""From text to tokens, and from tokens to their kinds.

One regular expression cuts the text; its last alternative takes any single character, so nothing
is skipped but white space. A token is its own text. Its *kind* is a terminal of the grammar: a
keyword or a sign is found by its whole text, a name or a literal by its first character. Keywords
stand in the table in every mixture of upper and lower case, so that no token has to be folded.

A kind that the grammar does not declare marks a mistake: `UNKNOWN`, or one of the signs and words
of other languages, which `MISTAKES` answers with what to write instead.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Final

from stentor.filters.language.literals import listed
from stentor.filters.language.mistakes import TextError

_NAME = r"[A-Za-z_$][\w$]*(?:\.[\w$]+)*|[^\W\d][\w$]*(?:\.[\w$]+)*"
_TOKEN = re.compile(
    rf"""[A-Za-z_$][\w$]*(?:\.[\w$]+)*    # a name or keyword (most start with an ASCII letter)
    | '[^']*(?:''[^']*)*'                 # a string
    | \.?[0-9](?:[eE][+-]|[0-9A-Za-z_.])* # a number, or what was meant to be one
    | "[^"]*(?:""[^"]*)*"                 # a quoted name
    | <[=>]? | >=? | =[=<>]? | !=? | && | \|\|
    | {_NAME}
    | \S""",
    re.VERBOSE,
)
_PLAIN_NAME = re.compile(_NAME)

#: Cuts a text into its tokens.
scan = _TOKEN.findall

KEYWORDS: Final = {
    "and": "_AND",
    "or": "_OR",
    "not": "NOT",
    "true": "TRUE",
    "false": "FALSE",
    "exists": "EXISTS",
    "is": "IS",
    "missing": "MISSING",
    "isa": "ISA",
    "some": "_SOME",
    "between": "BETWEEN",
    "in": "IN",
    "prefix": "PREFIX",
    "suffix": "SUFFIX",
    "contains": "CONTAINS",
    "regex": "REGEX",
    "like": "LIKE",
    "escape": "_ESCAPE",
    "has": "HAS",
    "lacks": "LACKS",
    "overlaps": "OVERLAPS",
    "disjoint": "DISJOINT",
    "from": "_FROM",
    "superset": "SUPERSET",
    "subset": "SUBSET",
    "of": "_OF",
    # Words that would silently read as attribute names; MISTAKES says what to write.
    "null": "NULL",
    "nan": "NAN",
    "inf": "INFINITY",
    "infinity": "INFINITY",
}

SIGNS: Final = {
    "=": "EQ",
    "!=": "NE",
    "<>": "NE",
    "<": "LT",
    "<=": "LE",
    ">": "GT",
    ">=": "GE",
    "+": "PLUS",
    "-": "MINUS",
    "*": "STAR",
    "/": "SLASH",
    "(": "_LPAR",
    ")": "_RPAR",
    ",": "_COMMA",
    ":": "COLON",
}

_MISTAKEN_SIGNS = {
    "==": "DOUBLE_EQUALS",
    "=>": "ARROW",
    "=<": "REVERSED",
    "&&": "AMPERSANDS",
    "&": "AMPERSANDS",
    "||": "BARS",
    "|": "BARS",
    "!": "BANG",
    "'": "OPEN_STRING",
    '"': "OPEN_NAME",
    ".": "UNKNOWN",
    "\u2018": "CURLY",
    "\u2019": "CURLY",
    "\u201c": "CURLY",
    "\u201d": "CURLY",
}

#: What to do about a kind of token that the grammar knows nothing of.
MISTAKES: Final = {
    "DOUBLE_EQUALS": "write = to test for equality",
    "ARROW": "write >= for 'at least'",
    "REVERSED": "write <= for 'at most'",
    "AMPERSANDS": "write and",
    "BARS": "write or",
    "BANG": "write not, or != for 'differs'",
    "OPEN_STRING": "this string is never closed; end it with ' (a quote inside is written '')",
    "OPEN_NAME": 'this quoted name is never closed; end it with "',
    "CURLY": "use straight quotes: ' for strings, \" for attribute names",
    "NULL": "nothing equals null; write x is null, x is missing or exists x (or quote the name)",
    "NAN": "no attribute ever holds NaN; to ask for numbers write x is number",
    "INFINITY": "write number 'inf' or number '-inf'",
}


def _spellings(word: str) -> list[str]:
    return ["".join(s) for s in itertools.product(*({c, c.upper()} for c in word))]


class _FirstCharacters(dict[str, str]):
    """The kind of a name or literal by its first character.

    Letters beyond ASCII are not stored but looked up, so that the table stays small.
    """

    def __missing__(self, character: str) -> str:
        return "NAME" if _PLAIN_NAME.match(character) else "UNKNOWN"


_by_text: dict[str, str] = {**SIGNS, **_MISTAKEN_SIGNS}
for _word, _kind in KEYWORDS.items():
    _by_text.update(dict.fromkeys(_spellings(_word), _kind))

_by_first = _FirstCharacters(dict.fromkeys("0123456789.", "NUMBER"))
_by_first.update({"'": "STRING", '"': "QUOTED"})
_by_first.update(dict.fromkeys("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$", "NAME"))


def kinds(tokens: list[str]) -> tuple[str, ...]:
    """The kind of each token.

    >>> kinds(scan("price >= 1.5 AND symbol = 'IBM'"))
    ('NAME', 'GE', 'NUMBER', '_AND', 'NAME', 'EQ', 'STRING')
    """
    by_text = _by_text.get
    by_first = _by_first
    found = [by_text(token) or by_first[token[0]] for token in tokens]
    if ":" in tokens:
        _mark_quantifiers(tokens, found)
    return tuple(found)


#: Words that begin a filter over a list. They are names everywhere else.
QUANTIFIERS: Final = {"any": "ANY", "all": "ALL"}


def _mark_quantifiers(tokens: list[str], found: list[str]) -> None:
    """`any` and `all` are keywords only where `NAME in NAME:` follows."""
    for i in range(4, len(found)):
        if (
            found[i] == "COLON"
            and found[i - 2] == "IN"
            and found[i - 3] == "NAME"
            and found[i - 4] == "NAME"
        ):
            found[i - 4] = QUANTIFIERS.get(tokens[i - 4].lower(), "NAME")


#: A list of at least so many constants is taken together.
_LONG: Final = 8
_LIST: Final = re.compile(rf"\((?:M?N|S|T)(?:,(?:M?N|S|T)){{{_LONG - 1},}}\)")
_CODES: Final = {
    "NUMBER": "N",
    "STRING": "S",
    "TRUE": "T",
    "FALSE": "T",
    "MINUS": "M",
    "_COMMA": ",",
    "_LPAR": "(",
    "_RPAR": ")",
}


class Listed(str):
    """A long list of constants as one token, so that its length costs no parsing."""

    __slots__ = ("first", "kinds", "tokens")

    first: int
    tokens: list[str]
    kinds: tuple[str, ...]

    def values(self) -> tuple[Any, ...]:
        """The constants; a `TextError` knows which of all the tokens is to blame."""
        try:
            return listed(self.tokens, self.kinds)
        except TextError:
            for i, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True)):
                try:
                    listed((token,), (kind,))
                except TextError as problem:
                    raise ListedError(problem.message, self.first + i, problem.expected) from None
            raise


class ListedError(TextError):
    """A mistake in a long list; the index counts all tokens of the text."""


Shape = tuple[str, ...]


def without_lists(tokens: list[str], shape: Shape) -> tuple[list[str], Shape, list[int]]:
    """The tokens and kinds with each long list as one; for each the number that it had before."""
    codes = "".join([_CODES.get(kind, ".") for kind in shape])
    kept: list[str] = []
    kept_shape: list[str] = []
    places: list[int] = []
    end = 0
    for match in _LIST.finditer(codes):
        start = match.start()
        kept += tokens[end:start]
        kept_shape += shape[end:start]
        places += range(end, start)
        end = match.end()
        token = Listed("(")
        token.first = start + 1
        token.tokens, token.kinds = tokens[start + 1 : end - 1], shape[start + 1 : end - 1]
        kept.append(token)
        kept_shape.append("LISTED")
        places.append(start)
    kept += tokens[end:]
    kept_shape += shape[end:]
    places += range(end, len(tokens))
    return kept, tuple(kept_shape), places


def alternatives(shape: Shape) -> list[tuple[int, int]]:
    """Where the parts between each `or` outside of parentheses begin and end.

    >>> alternatives(kinds(scan("a = 1 or (b = 2 or c = 3)")))
    [(0, 3), (4, 13)]
    >>> alternatives(kinds(scan("a = 1 or any x in xs: x.b = 2 or x.c = 3")))
    [(0, 3), (4, 16)]
    """
    pieces: list[tuple[int, int]] = []
    depth = start = 0
    for i, kind in enumerate(shape):
        if kind == "_LPAR":
            depth += 1
        elif kind == "_RPAR":
            depth -= 1
        elif kind == "COLON" and not depth:
            break  # what follows belongs to it
        elif kind == "_OR" and not depth:
            pieces.append((start, i))
            start = i + 1
    pieces.append((start, len(shape)))
    return pieces


def offsets(text: str) -> list[int]:
    """Where each token of the text starts."""
    return [match.start() for match in _TOKEN.finditer(text)]


def is_plain_name(name: str) -> bool:
    """Can this name be written without quotes?

    >>> is_plain_name("Position.x"), is_plain_name("odd name"), is_plain_name("and")
    (True, False, False)
    """
    return _PLAIN_NAME.fullmatch(name) is not None and name not in _by_text
