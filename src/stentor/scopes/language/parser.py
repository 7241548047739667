"""From text to the values of `syntax`; what is wrong is told with its place."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from lark import Lark, Token
from lark.exceptions import UnexpectedToken, VisitError

from stentor.errors import ScopeSyntaxError
from stentor.filters.language.grammar import Words, in_words
from stentor.filters.language.mistakes import TextError, shown, syntax_error
from stentor.scopes.language.builder import Builder
from stentor.scopes.language.syntax import Alter, DefineScope, Deploy, Script, Statement
from stentor.scopes.language.tokens import KEYWORDS, RESERVED, PlaceLexer, comments

#: The longest text that is read, in characters.
MAX_LENGTH: Final = 1 << 20


def parse(text: str, *, file: str = "") -> Script:
    """The statements of a text of the scope graph language.

    >>> parse("DEFINE SCOPE market AS ALL FROM ticker, desk").statements[0].name
    'market'
    >>> parse("DEFINE SCOPE market AS ALL ticker")
    Traceback (most recent call last):
        ...
    stentor.errors.ScopeSyntaxError: line 1, column 28: unexpected 'ticker'
        DEFINE SCOPE market AS ALL ticker
                                   ^
    expected FROM
    """
    if len(text) > MAX_LENGTH:
        raise ScopeSyntaxError(
            f"the text has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed"
        )
    builder = Builder()
    try:
        script = builder.transform(_parser().parse(text))
    except UnexpectedToken as error:
        raise _unexpected(text, error, file) from None
    except TextError as problem:
        raise mistake(text, problem.index, problem.message, file=file) from None
    except VisitError as error:
        cause = error.orig_exc
        if not isinstance(cause, TextError):
            raise
        raise mistake(text, cause.index, cause.message, file=file) from None
    assert isinstance(script, Script)
    return _with_comments(script, text)


def mistake(
    text: str, at: int, message: str, expected: tuple[str, ...] = (), *, file: str = ""
) -> ScopeSyntaxError:
    """The error for a mistake at that place of a text."""
    return syntax_error(text, at, message, expected, error=ScopeSyntaxError, file=file)


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer=PlaceLexer,
        maybe_placeholders=False,
        propagate_positions=True,
    )


# -- mistakes

_STATEMENT = "_DEFINE _DEPLOY _ALTER DROP _IMPORT $END _SEMICOLON"
_CLAUSE = (
    "_INTERFACES _UPDATE _MAP _POLICY _DO _SET _ROLES _MAINTAIN _ADMIT _DUPLICATES _SUPERSCOPE "
    "_FROM _MEMBER ALL _TOP _LBRACKET NAME STAR ADD DEL"
)
_WORDS: Final[Words] = tuple(
    (frozenset(needed.split()), word, frozenset(covered.split()))
    for needed, word, covered in (
        ("_DEFINE _DEPLOY", "a statement: DEFINE, DEPLOY, ALTER, DROP or IMPORT", _STATEMENT),
        ("_INTERFACES _UPDATE", "a clause such as ALL FROM, SUPERSCOPE or INTERFACES",
         f"{_CLAUSE} {_STATEMENT}"),
        ("_FROM ALL", "ALL FROM, or another qualifier and FROM", "_TOP _LBRACKET"),
        ("_FROM", "FROM", ""),
        ("_SCOPE _COMPONENT", "SCOPE, COMPONENT or TABLE, and a name", "_TABLE ABSTRACT"),
        ("EQ PREFIX", "a comparison such as =, < or PREFIX",
         "NE LT LE GT GE SUFFIX CONTAINS LIKE _DOT"),
        ("_IS NOT", "a condition such as x = 1, IS ROLE(x) or HAS INPUT(x)",
         "_HAS INPUT OUTPUT NAME _LPAR SELF TRIGGER"),
        ("_AND _OR", "AND or OR", ""),
        ("INPUT OUTPUT", "INPUT(…) or OUTPUT(…)", "_HAS"),
        ("INWARD OUTWARD", "INWARD or OUTWARD", ""),
        ("PUBLISHING DELIVERY", "PUBLISHING, DELIVERY, INTERNAL or TRAVERSE", "INTERNAL TRAVERSE"),
        ("PUB CON", "an event such as pub(n: …), con(n: …), join(…)",
         "SUB UNSUB ADV UNADV JOIN LEAVE NAME"),
        ("_ALTER _CREATE", "ALTER SCOPE or CREATE NOW", "_LPAR"),
        ("ONCE EVERY", "ONCE, EVERY, ON CHANGE or ON DEVIATION", "_ON"),
        ("CHANGE DEVIATION", "CHANGE or DEVIATION", ""),
        ("MEMBERS STAR", "names, MEMBERS(…) or *", "NAME SELF TRIGGER"),
        ("MEMBERS", "the name of a scope, or MEMBERS(…)", "NAME SELF TRIGGER"),
        ("DROP KEEP", "attribute = value, DROP or KEEP", "NAME SELF TRIGGER"),
        ("INT STRING TRUE", "a value", "FLOAT FALSE MINUS NAME SELF TRIGGER _LPAR"),
        ("STRING NAME", "the name of code, or its address in double quotes", ""),
        ("_RPAR _COMMA", "',' or ')'", ""),
        ("_RPAR", "')'", ""),
        ("_RBRACE", "'}'", "_COMMA"),
        ("_RBRACKET", "']'", ""),
        ("_LPAR", "'('", ""),
        ("_LBRACE", "'{'", ""),
        ("_DOTS", "'..'", ""),
        ("_AS", "AS", ""),
        ("_COLON", "':' after a label", ""),
        ("EQ", "'='", ""),
        ("INT", "a number", "FLOAT MINUS"),
        ("STRING", "a text in double quotes", ""),
        ("NAME", "a name", "SELF TRIGGER"),
        ("$END", "the end", ""),
    )
)  # fmt: skip


def _unexpected(text: str, error: UnexpectedToken, file: str) -> ScopeSyntaxError:
    token = error.token
    accepted = set(error.accepts or ())
    at_end = token.type == "$END"
    at = len(text.rstrip()) if at_end else (token.start_pos or 0)
    message = (
        "the text ends too early" if at_end else f"unexpected {shown(text[at : token.end_pos])!r}"
    )
    hint = _hint(token, accepted, text)
    return mistake(
        text, at, f"{message}: {hint}" if hint else message, in_words(accepted, _WORDS), file=file
    )


def _hint(token: Token, accepted: set[str], text: str) -> str:
    word = str(token).lower()
    if token.type == "_INTERFACES" and "_COLON" in accepted:
        return "to put it on the edges of this selection, write : { INTERFACES … }"
    if token.type == "_CREATE" or (token.type == "_ALTER" and "NAME" in accepted):
        return "put the reaction before the comma in parentheses"
    if word in RESERVED and "NAME" in accepted:
        return f"{word.upper()} is a reserved word, and no name"
    if word in ("and", "or") and not accepted & {"_AND", "_OR"}:
        return "a condition is missing before it"
    if token.type == "NAME":
        near = [each for each in _expected_words(accepted) if _alike(word, each)]
        if near:
            return f"did you mean {near[0].upper()}?"
    if accepted == {"_COLON"}:
        last = text[: token.start_pos].split()[-1]
        near = [each for each in RESERVED if _alike(last.lower(), each)]
        if near:
            return f"did you mean {near[0].upper()} instead of {last}?"
    if token.type == "MINUS" and "_DOT" in accepted:
        return "a name cannot end with -"
    return ""


def _expected_words(accepted: set[str]) -> list[str]:
    return [word for word, kind in KEYWORDS.items() if kind in accepted]


def _alike(word: str, known: str) -> bool:
    from difflib import SequenceMatcher

    return len(word) > 2 and SequenceMatcher(None, word, known).ratio() >= 0.75


# -- comments


def _with_comments(script: Script, text: str) -> Script:
    """Each comment at the statement or clause on whose line it stands, or else at the next one."""
    found = comments(text)
    if not found:
        return script
    starts = sorted(_starts(script))
    at_node: dict[int, list[str]] = {}
    rest: list[str] = []
    for at, comment in found:
        line = text.rfind("\n", 0, at) + 1
        behind = bool(text[line:at].strip())
        following = bisect_right(starts, at)
        if behind and following:
            at_node.setdefault(starts[following - 1], []).append(comment)
        elif following < len(starts):
            at_node.setdefault(starts[following], []).append(comment)
        else:
            rest.append(comment)

    def told(node: Any) -> Any:
        changes: dict[str, Any] = {}
        if node.at in at_node:
            changes["comments"] = tuple(at_node.pop(node.at))
        if isinstance(node, DefineScope | Deploy | Alter):
            changes["clauses"] = tuple(told(each) for each in node.clauses)
        return replace(node, **changes) if changes else node

    statements: tuple[Statement, ...] = tuple(told(each) for each in script.statements)
    return Script(statements, tuple(rest), script.notes)


def _starts(script: Script) -> list[int]:
    found = []
    for each in script.statements:
        found.append(each.at)
        if isinstance(each, DefineScope | Deploy | Alter):
            found += [clause.at for clause in each.clauses]
    return found
