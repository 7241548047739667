"""From text to tokens: signs, names, numbers, texts, and keywords where they can stand.

Whether a word is a keyword depends on the place: `pub` is one after `ON`, and a name everywhere
else. The lexer asks the parser, which knows what it could take next. Words that begin a statement
or a clause are reserved, so that a forgotten comma or parenthesis is told where it is missing.

A text that nests too deeply is refused here, before anything follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lark import Token
from lark.lexer import Lexer

from stentor.filters.language.mistakes import TextError

#: How deep parentheses and braces may be nested, how many `NOT` may follow each other, and how many
#: operators an expression may have.
MAX_DEPTH: Final = 40
MAX_OPERATORS: Final = 100

_PATTERN: Final = r"""(?P<skip>\s+|--[^\n]*)
    | (?P<word>WORD)
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | "(?P<string>[^"\n]*(?:""[^"\n]*)*)"
    | (?P<sign>::|\.\.|!=|<>|<=|>=|[;,:.(){}\[\]*/+\-=<>])
    | (?P<other>==|&&|\|\||.)"""
_WORD: Final = r"[^\W\d]\w*(?:-\w+)*"
_TOKEN: Final = re.compile(_PATTERN.replace("WORD", _WORD), re.VERBOSE | re.DOTALL)
#: Where things are computed, `a-1` is a difference; `a-b` is a name there, too.
_TERM: Final = re.compile(
    _PATTERN.replace("WORD", r"[^\W\d]\w*(?:-[^\W\d]\w*)*"), re.VERBOSE | re.DOTALL
)
_NAME: Final = re.compile(_WORD)

_SIGNS: Final = {
    ";": "_SEMICOLON",
    ",": "_COMMA",
    ":": "_COLON",
    "::": "_PATH",
    "..": "_DOTS",
    ".": "_DOT",
    "(": "_LPAR",
    ")": "_RPAR",
    "{": "_LBRACE",
    "}": "_RBRACE",
    "[": "_LBRACKET",
    "]": "_RBRACKET",
    "*": "STAR",
    "/": "SLASH",
    "+": "PLUS",
    "-": "MINUS",
    "=": "EQ",
    "!=": "NE",
    "<>": "NE",
    "<": "LT",
    "<=": "LE",
    ">": "GT",
    ">=": "GE",
}

#: Words that are never names.
RESERVED: Final = {
    "import": "_IMPORT",
    "define": "_DEFINE",
    "deploy": "_DEPLOY",
    "alter": "_ALTER",
    "create": "_CREATE",
    "from": "_FROM",
    "where": "_WHERE",
    "superscope": "_SUPERSCOPE",
    "superscopes": "_SUPERSCOPE",
    "interfaces": "_INTERFACES",
    "update": "_UPDATE",
    "map": "_MAP",
    "policy": "_POLICY",
    "maintain": "_MAINTAIN",
}
#: Keywords that the parse tree leaves out, and those that it keeps because they say something.
_LEFT_OUT: Final = """\
scope component table as member top role roles set on admit duplicates do if now include and or is
has"""
_KEPT: Final = """\
abstract add del drop members all asc desc self trigger input output once every change deviation
inward outward keep publishing delivery internal traverse pub con sub unsub adv unadv join leave
brokerscope integrated architecture not prefix suffix contains like true false"""
#: Words that are keywords where the grammar has a place for them.
KEYWORDS: Final = (
    RESERVED
    | {word: f"_{word.upper()}" for word in _LEFT_OUT.split()}
    | {word: word.upper() for word in _KEPT.split()}
)

#: What to write instead of what other languages have.
MISTAKES: Final = {
    "'": 'write texts in double quotes: "…"',
    '"': 'this text is never closed; end it with " on the same line (a quote inside is "")',
    "=": "write = to test for equality",
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or != for 'differs'",
    "#": "comments begin with --",
    "\u201c": 'use straight quotes: "…"',
    "\u201d": 'use straight quotes: "…"',
}


class PlaceLexer(Lexer):
    """Hands tokens to the parser; a word is a keyword if the parser has a place for it."""

    __future_interface__ = 2

    def __init__(self, _configuration: Any) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Token]:
        text: str = lexer_state.text.text
        table = parser_state.parse_conf.parse_table.states
        depth = negations = operators = at = end = 0
        kind, pattern = "", _TOKEN
        while end < len(text):
            match = pattern.match(text, end)
            assert match is not None  # the last alternative takes anything
            at, end = match.span()
            group = match.lastgroup
            if group == "skip":
                continue
            before, value = kind, match[0]
            if group == "word":
                folded = value.lower()
                kind = KEYWORDS.get(folded, "NAME")
                if folded not in RESERVED and kind not in table[parser_state.position]:
                    kind = "NAME"
                negations = negations + 1 if kind == "NOT" else 0
            elif group == "number":
                kind = "INT" if value.isdecimal() else "FLOAT"
            elif group == "string":
                kind, value = "STRING", match["string"].replace('""', '"')
            elif group == "sign":
                kind = _SIGNS[value]
                if kind == "_LBRACE" and before in ("INWARD", "OUTWARD"):
                    pattern = _TERM
                elif kind == "_RBRACE":
                    pattern = _TOKEN
                if value in "({":
                    depth += 1
                elif value in ")}":
                    depth -= 1
                    operators = 0
                elif value in ",;:":
                    operators = 0
                elif value in "+-*/":
                    operators += 1
            else:
                hint = MISTAKES.get(value[0])
                raise TextError(f"unexpected {value!r}" + (f": {hint}" if hint else ""), at)
            if depth > MAX_DEPTH or negations > MAX_DEPTH or operators > MAX_OPERATORS:
                raise TextError("this is nested too deeply; split it up", at)
            yield Token(kind, value, start_pos=at, end_pos=end)


def comments(text: str) -> list[tuple[int, str]]:
    """The comments of a text, and where each begins.

    >>> comments('SET a = "--"  -- why\\n--  more')
    [(14, 'why'), (21, 'more')]
    """
    return [
        (match.start(), match[0][2:].strip())
        for match in _TOKEN.finditer(text)
        if match.lastgroup == "skip" and match[0].startswith("--")
    ]


def is_name(text: str) -> bool:
    """Whether it can stand for a name without quotes anywhere.

    >>> is_name("acme-1"), is_name("a b"), is_name("from"), is_name("all")
    (True, False, False, False)
    """
    return _NAME.fullmatch(text) is not None and text.lower() not in KEYWORDS
