"""JMS message selectors (R-07.23), read as expressions.

SQL's logic has three values, and a message is delivered only if its selector is *true*. Ours has
two. The bridge is to compute, for every condition, two expressions: what makes it true (`holds`)
and what makes it false (`fails`); a message that satisfies neither leaves it unknown. A comparison
with a missing attribute is unknown, and every atom of ours on a missing attribute is false, so
neither of its two expressions accepts the message. `NOT` swaps the two, `AND` joins the first with
and and the second with or, `OR` the other way around: exactly the three-valued tables. So
`NOT (x > 5)` does not deliver a message without x (07/T-17).

Further rules of JMS that are kept:

- Only like types are compared, and a comparison of unlike ones is false, not unknown: `x = 5` and
  `x <> 5` are both false of a string, so `NOT (x = 5)` is true of it. `fails` therefore accepts
  the values of the other types as well.
- Numbers are ordered; strings and booleans have only `=` and `<>`.
- `x NOT BETWEEN 1 AND 5` is `x < 1 OR x > 5`; `NOT IN` and `NOT LIKE` negate `IN` and `LIKE`.
- `IS NULL` is true of a missing attribute, and of null. It is never unknown.
- An identifier alone is a condition: it is true of TRUE.

What JMS leaves open: a computation has no value, as if it were null, if one of the attributes it
calculates with is no number, and where it divides by zero; `/` is exact, so `5 / 2` is 2.5.
Beyond JMS, identifiers may be dotted names, and of ActiveMQ's functions there are `REGEX`, `INLIST`
with `MAKELIST` or `SPLIT`, and `REPLACE`, the latter three of constants. Numbers are decimal; a
Java suffix (`10L`, `2.5f`) is read over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from lark import Lark, Token, Transformer_NonRecursive
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError
from lark.tree import Meta
from lark.visitors import v_args

from stentor.errors import FilterSyntaxError
from stentor.filters.effort import spend
from stentor.filters.expression import (
    And,
    Atom,
    Attribute,
    Compare,
    Constant,
    Expression,
    Or,
    Term,
    Truth,
)
from stentor.filters.language import literals, terms
from stentor.filters.language.grammar import in_words
from stentor.filters.language.mistakes import TextError, syntax_error
from stentor.filters.language.parser import MAX_LENGTH, check_text
from stentor.model.values import value_type_of

#: How deep operators, and parentheses, may be nested.
MAX_DEPTH: Final = 200
#: What reading takes for each token (see `stentor.filters.effort`), and roughly what one is.
STEPS_PER_TOKEN: Final = 36
_TOKENS: Final = re.compile(r"[\w.$]+|'[^']*'?|[^\w\s]")

_TYPES: Final = ("bool", "number", "string")
_ORDER: Final = frozenset({"<", "<=", ">", ">="})
_SUFFIXES: Final = "lLdDfF"


def parse_selector(text: str) -> Expression:
    """The expression that delivers what the JMS selector delivers.

    >>> parse_selector("JMSType = 'car' AND weight > 2500")  # doctest: +NORMALIZE_WHITESPACE
    And(parts=(Atom(name='JMSType', operator='=', constants=('car',)),
               Atom(name='weight', operator='>', constants=(2500,))))
    """
    if len(text) > MAX_LENGTH:
        raise FilterSyntaxError(
            f"the selector has {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    if not text.isascii():
        check_text(text)
    spend(STEPS_PER_TOKEN * len(_TOKENS.findall(text)))
    try:
        tree = _parser().parse(text)
        result: Expression = _Reader().transform(tree)
        return result
    except UnexpectedToken as mistake:
        error = _unexpected_token(text, mistake)
    except UnexpectedCharacters as mistake:
        error = _unexpected_character(text, cast(int, mistake.pos_in_stream))
    except VisitError as mistake:
        if not isinstance(mistake.orig_exc, TextError):
            raise
        place = mistake.orig_exc
        error = syntax_error(text, max(place.index, 0), place.message, place.expected)
    raise error


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("selectors.lark").read_text(encoding="utf-8")
    return Lark(
        grammar, parser="lalr", lexer="basic", propagate_positions=True, maybe_placeholders=False
    )


class Condition(NamedTuple):
    """What makes a condition true, and what makes it false."""

    holds: Expression
    fails: Expression

    def negated(self) -> Condition:
        return Condition(self.fails, self.holds)


def _all(conditions: list[Condition]) -> Condition:
    return Condition(
        And(tuple([c.holds for c in conditions])), Or(tuple([c.fails for c in conditions]))
    )


def _any(conditions: list[Condition]) -> Condition:
    return _all([c.negated() for c in conditions]).negated()


def _constant(value: bool) -> Condition:
    return Condition(Truth(value), Truth(not value))


def _test(name: str, operator: str, opposite: str, constants: tuple[Any, ...]) -> Condition:
    """A test with constants of one type: values of other types fail it."""
    fails = Atom(name, opposite, constants)
    other = Atom(name, "is not", (value_type_of(constants[0]),))
    return Condition(Atom(name, operator, constants), Or((fails, other)))


def _compare(operator: str, left: Term, right: Term) -> Condition:
    for term in (left, right):
        if operator in _ORDER and isinstance(term, Constant):
            kind = value_type_of(term.value)
            if kind != "number":
                raise TextError(f"a {kind} is only compared with = and <>, not with {operator}")
    compared = terms.compare(operator, left, right)
    if isinstance(compared, Truth):
        return _constant(compared.value)
    if isinstance(compared, Atom):
        opposite = terms.COMPLEMENT[compared.operator]
        return _test(compared.name, compared.operator, opposite, compared.constants)
    opposed = Compare(terms.COMPLEMENT[operator], left, right)
    if isinstance(left, Attribute) and isinstance(right, Attribute):
        return _compare_attributes(operator, left.name, right.name, compared, opposed)
    for attribute, computed in ((left, right), (right, left)):
        if isinstance(attribute, Attribute):
            # Whatever is no number fails, provided that there is something to compare it with: a
            # computation equals itself just if it has a value.
            unlike = Atom(attribute.name, "is not", ("number",))
            return Condition(
                compared, Or((opposed, And((unlike, Compare("=", computed, computed)))))
            )
    return Condition(compared, opposed)


def _compare_attributes(
    operator: str, left: str, right: str, compared: Expression, opposed: Expression
) -> Condition:
    if operator in _ORDER:
        numbers = (Atom(left, "is", ("number",)), Atom(right, "is", ("number",)))
        fails = Or(
            (
                And((*numbers, opposed)),
                And((Atom(left, "is not", ("number",)), Atom(right, "exists"))),
                And((Atom(right, "is not", ("number",)), Atom(left, "exists"))),
            )
        )
        return Condition(And((*numbers, compared)), fails)
    unlike = [
        And((Atom(a, "is", (kind,)), Atom(b, "is not", (kind,))))
        for kind in _TYPES
        for a, b in ((left, right), (right, left))
    ]
    return Condition(compared, Or((opposed, *unlike)))


def _between(term: Term, low: Term, high: Term) -> Condition:
    for bound in (low, high):
        if isinstance(bound, Constant) and value_type_of(bound.value) != "number":
            raise TextError("BETWEEN compares numbers", expected=("a number",))
    if (
        isinstance(term, Attribute)
        and isinstance(low, Constant)
        and isinstance(high, Constant)
        and low.value <= high.value
    ):
        return _test(term.name, "between", "not between", (low.value, high.value))
    return _all([_compare(">=", term, low), _compare("<=", term, high)])


def _not_between(term: Term, low: Term, high: Term) -> Condition:
    """`x < low OR x > high`, which is false of a string: not the negation of BETWEEN."""
    condition = _between(term, low, high)
    if isinstance(condition.holds, Atom):
        bounds = condition.holds.constants
        return _test(condition.holds.name, "not between", "between", bounds)
    return _any([_compare("<", term, low), _compare(">", term, high)])


class _Node(NamedTuple):
    """A condition or a term, with its depth and where it starts."""

    value: Condition | Term
    depth: int
    place: int
    parentheses: int = 0
    digits: str = ""  # the text of a number, read only when it is known whether a minus precedes


@v_args(meta=True)
class _Reader(Transformer_NonRecursive[Token, Any]):
    """One method per rule; lark calls them bottom up, without recursion."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)

    # Conditions

    def start(self, _meta: Meta, children: list[_Node]) -> Expression:
        return _condition(children[0]).holds if children else Truth(True)

    def group(self, meta: Meta, children: list[_Node]) -> _Node:
        (node,) = children
        if node.parentheses >= MAX_DEPTH:
            raise TextError(f"more than {MAX_DEPTH} parentheses inside each other", _place(meta))
        return node._replace(place=_place(meta), parentheses=node.parentheses + 1)

    def disjunction(self, meta: Meta, children: list[_Node]) -> _Node:
        return _node(meta, children, _any([_condition(c) for c in children]))

    def conjunction(self, meta: Meta, children: list[_Node]) -> _Node:
        return _node(meta, children, _all([_condition(c) for c in children]))

    def negation(self, meta: Meta, children: list[_Node]) -> _Node:
        return _node(meta, children, _condition(children[0]).negated())

    def comparison(self, meta: Meta, children: list[Any]) -> _Node:
        left, sign, right = children
        operator = "!=" if sign == "<>" else str(sign)
        return _computed(meta, [left, right], lambda a, b: _compare(operator, a, b), sign)

    def between(self, meta: Meta, children: list[Any]) -> _Node:
        negated, nodes = _split(children)
        return _computed(meta, nodes, _not_between if negated else _between)

    def within(self, meta: Meta, children: list[Any]) -> _Node:
        negated, (subject, items) = _split(children)
        name = _name(subject, "IN")
        texts = tuple([_text(item, "IN lists") for item in items])
        condition = _test(name, "in", "not in", texts)
        return _node(meta, [subject], condition.negated() if negated else condition)

    def like(self, meta: Meta, children: list[Any]) -> _Node:
        negated, (subject, *patterns) = _split(children)
        name = _name(subject, "LIKE")
        texts = tuple([_text(pattern, "LIKE takes") for pattern in patterns])
        if len(texts) == 2:
            _check_escape(texts[0], texts[1], patterns)
        if not texts[0] or texts[0].strip("%"):
            condition = _test(name, "like", "not like", texts)
        else:  # any string, but nothing else; a bare `like '%'` would be `exists`
            condition = _test(name, "is", "is not", ("string",))
        return _node(meta, [subject], condition.negated() if negated else condition)

    def null(self, meta: Meta, children: list[Any]) -> _Node:
        negated, (subject,) = _split(children)
        name = _name(subject, "IS NULL")
        null = Or((Atom(name, "missing"), Atom(name, "is", ("null",))))
        condition = Condition(null, Atom(name, "is not", ("null",)))
        return _node(meta, [subject], condition.negated() if negated else condition)

    def not_(self, _meta: Meta, _children: list[Any]) -> None:
        return None

    def items(self, _meta: Meta, children: list[_Node]) -> list[_Node]:
        return children

    # Terms

    def arithmetic(self, meta: Meta, children: list[Any]) -> _Node:
        left, sign, right = children
        return _computed(meta, [left, right], lambda a, b: terms.arithmetic(str(sign), a, b), sign)

    def sign(self, meta: Meta, children: list[Any]) -> _Node:
        sign, node = children
        if sign == "+":
            return _computed(meta, [node], lambda term: terms.arithmetic("+", Constant(0), term))
        if node.digits:
            return _computed(meta, [], lambda: Constant(literals.negative_number(node.digits)))
        return _computed(meta, [node], terms.negative)

    def function(self, meta: Meta, children: list[Any]) -> _Node:
        word, *arguments = children
        name = str(word).upper()
        if name not in _FUNCTIONS:
            raise TextError(f"there is no function {word}", word.start_pos, tuple(_FUNCTIONS))
        try:
            return _node(meta, arguments, _FUNCTIONS[name](arguments))
        except TextError as mistake:
            if mistake.index < 0:
                mistake.index = _place(meta)
            raise

    def identifier(self, meta: Meta, children: list[Token]) -> _Node:
        return _node(meta, [], Attribute(str(children[0])))

    def string(self, meta: Meta, children: list[Token]) -> _Node:
        return _node(meta, [], Constant(literals.string(children[0])))

    def number(self, meta: Meta, children: list[Token]) -> _Node:
        digits = str(children[0]).rstrip(_SUFFIXES)
        if digits.isdigit() and digits.startswith("0") and digits != "0":
            raise TextError(
                "numbers are decimal; write this one without leading zeros", _place(meta)
            )
        return _node(meta, [], Constant(0))._replace(digits=digits)

    def boolean(self, meta: Meta, children: list[Token]) -> _Node:
        return _node(meta, [], Constant(children[0].type == "TRUE"))


# -- the functions of ActiveMQ


def _regex(arguments: list[_Node]) -> Condition:
    pattern, subject = _arguments("REGEX", arguments, 2)
    text = _text(pattern, "REGEX takes")
    name = _name(subject, "REGEX")
    if not text:
        return _test(name, "is", "is not", ("string",))
    return _test(name, "regex", "not regex", (text,))


def _in_list(arguments: list[_Node]) -> Condition:
    listed, subject = _arguments("INLIST", arguments, 2)
    values = listed.value.value if isinstance(listed.value, Constant) else None
    if not isinstance(values, tuple):
        raise TextError("INLIST begins with a list", listed.place, ("MAKELIST(…)", "SPLIT(…)"))
    return _test(_name(subject, "INLIST"), "in", "not in", values)


def _make_list(arguments: list[_Node]) -> Term:
    return Constant(tuple([_text(argument, "MAKELIST takes") for argument in arguments]))


def _split_text(arguments: list[_Node]) -> Term:
    text, separator = [_text(a, "SPLIT takes") for a in _arguments("SPLIT", arguments, 2)]
    if not separator or re.search(r"[.*+?^$(){}|\[\]\\]", separator):
        raise TextError(
            "SPLIT takes a plain separator here, not a regular expression", arguments[1].place
        )
    return Constant(tuple(text.split(separator)))


def _replace(arguments: list[_Node]) -> Term:
    text, old, new = [_text(a, "REPLACE takes") for a in _arguments("REPLACE", arguments, 3)]
    if not old or re.search(r"[.*+?^$(){}|\[\]\\]", old):
        raise TextError(
            "REPLACE takes a plain text here, not a regular expression", arguments[1].place
        )
    return Constant(text.replace(old, new))


def _arguments(name: str, arguments: list[_Node], count: int) -> list[_Node]:
    if len(arguments) != count:
        raise TextError(f"{name} takes {count} arguments, not {len(arguments)}")
    return arguments


_FUNCTIONS: Final[dict[str, Callable[[list[_Node]], Condition | Term]]] = {
    "REGEX": _regex,
    "INLIST": _in_list,
    "MAKELIST": _make_list,
    "SPLIT": _split_text,
    "REPLACE": _replace,
}


def _place(meta: Meta) -> int:
    return 0 if meta.empty else meta.start_pos


def _node(meta: Meta, children: list[_Node], value: Condition | Term) -> _Node:
    depth = 1 + max((child.depth for child in children), default=-1)
    if depth > MAX_DEPTH:
        raise TextError(f"nested more than {MAX_DEPTH} levels deep", _place(meta))
    parentheses = max((child.parentheses for child in children), default=0)
    return _Node(value, depth, _place(meta), parentheses)


def _computed(
    meta: Meta,
    nodes: list[_Node],
    compute: Callable[..., Condition | Term],
    blamed: Token | None = None,
) -> _Node:
    """The result of a computation over terms; mistakes are shown at `blamed`, or at its start."""
    operands = [_term(node) for node in nodes]
    try:
        return _node(meta, nodes, compute(*operands))
    except TextError as mistake:
        if mistake.index < 0:
            at = None if blamed is None else blamed.start_pos
            mistake.index = _place(meta) if at is None else at
        raise


def _split(children: list[Any]) -> tuple[bool, list[Any]]:
    """Whether a NOT is among the children, and the others."""
    others = [child for child in children if child is not None]
    return len(others) < len(children), others


def _condition(node: _Node) -> Condition:
    if isinstance(node.value, Condition):
        return node.value
    if isinstance(node.value, Attribute):
        return _compare("=", node.value, Constant(True))
    if isinstance(node.value, Constant) and isinstance(node.value.value, bool):
        return _constant(node.value.value)
    raise TextError("a value alone is not a condition", node.place, ("a condition such as x > 1",))


def _term(node: _Node) -> Term:
    if isinstance(node.value, Condition):
        raise TextError("this is a condition, not a value", node.place, ("a value",))
    if not node.digits:
        return node.value
    try:
        return Constant(literals.number(node.digits))
    except TextError as mistake:
        mistake.index = node.place
        raise


def _name(node: _Node, operator: str) -> str:
    if isinstance(node.value, Attribute):
        return node.value.name
    raise TextError(f"{operator} tests an identifier", node.place, ("an identifier",))


def _text(node: _Node, use: str) -> str:
    term = _term(node)
    if isinstance(term, Constant) and isinstance(term.value, str):
        return term.value
    raise TextError(
        f"{use} strings only; compare other values with = and OR",
        node.place,
        ("a string in single quotes",),
    )


def _check_escape(pattern: str, escape: str, nodes: list[_Node]) -> None:
    if len(escape) != 1:
        raise TextError("the escape is one character", nodes[1].place, ("one character",))
    rest = iter(pattern)
    for character in rest:
        if character == escape and next(rest, "") not in ("%", "_", escape):
            raise TextError(
                f"after the escape {escape!r} comes %, _ or {escape!r} itself", nodes[0].place
            )


# Mistakes

_WORDS: Final = tuple(
    (frozenset(needed.split()), word, frozenset(covered.split()))
    for needed, word, covered in (
        ("_NOT IDENTIFIER", "a condition such as x > 1", "STRING NUMBER TRUE FALSE _LPAR $END"),
        ("IDENTIFIER", "a value or an identifier", "STRING NUMBER TRUE FALSE _LPAR"),
        ("COMPARISON", "a comparison such as = or <>", "_NOT"),
        ("_BETWEEN _IN", "BETWEEN, IN, LIKE or IS", "_LIKE _IS _AND _OR $END _RPAR"),
        ("_AND _OR", "AND or OR", ""),
        ("_AND", "AND", ""),
        ("_RPAR _COMMA", "',' or ')'", ""),
        ("_RPAR", "')'", ""),
        ("STRING NUMBER", "a value", ""),
        ("STRING", "a string in single quotes", ""),
        ("_NULL", "NULL or NOT NULL", "_NOT"),
        ("_LPAR", "'(' and a list of strings", ""),
        ("$END", "the end of the selector", ""),
    )
)
_HINTS: Final = (
    ("==", "write = to test for equality"),
    ("!=", "write <> for 'differs'"),
    ("&&", "write AND"),
    ("||", "write OR"),
    ("!", "write NOT, or <> for 'differs'"),
    ("'", "this string is never closed; end it with ' (a quote inside is written '')"),
    ('"', "strings are written in single quotes"),
)


def _unexpected_token(text: str, mistake: UnexpectedToken) -> FilterSyntaxError:
    expected = in_words(set(mistake.accepts or ()), _WORDS)
    token = mistake.token
    if token.type == "$END":
        return syntax_error(text, len(text.rstrip()), "the selector ends too early", expected)
    place = token.start_pos or 0
    message = f"unexpected {str(token)[:40]!r}"
    hint = "write = to test for equality" if text.startswith("==", place - 1) else None
    if token.type == "_NULL":
        hint = "null equals nothing; write x IS NULL"
    return syntax_error(text, place, f"{message}: {hint}" if hint else message, expected)


def _unexpected_character(text: str, place: int) -> FilterSyntaxError:
    message = f"unexpected {text[place]!r}"
    for sign, hint in _HINTS:
        if text.startswith(sign, place):
            return syntax_error(text, place, f"{message}: {hint}")
    return syntax_error(text, place, message)
