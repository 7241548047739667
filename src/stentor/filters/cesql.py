"""CloudEvents SQL, version 1, read as expressions: what a filter can say of it.

An expression of CESQL has a value and perhaps errors, and as a filter it lets pass what makes it
true without an error. So every condition is kept as two expressions, what makes it true and what
makes it false (`Condition`, as for JMS selectors); whatever satisfies neither is an error, and does
not pass. A missing attribute is one, except for `EXISTS`. `AND` and `OR` look at their right side
only if the left one leaves it open, so `a AND b` is false where a is false, or a is true and b is
false: an error on the left is never made good on the right.

Values have types here, and attributes are not cast: 10 and '10' differ, and to compare them is the
error that a cast that fails would be. Constants are cast and computed when the expression is read;
division truncates, integers have 32 bits.

Functions of constants are computed as well. Of an attribute, `LENGTH`, `LOWER`, `UPPER`, `TRIM`,
`LEFT`, `RIGHT`, `SUBSTRING` and `ABS` can be compared with a constant: as patterns and intervals,
which brokers relate to each other like all others. Everything else (`CONCAT` and casts of
attributes, their division) is refused, and the message says why.

In CESQL `NOT` binds more tightly than a comparison, and `AND`, `OR` and `XOR` have one precedence.
Nobody who knows SQL expects that, so where it would matter parentheses are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, cast

from lark import Lark, Token, Transformer_NonRecursive
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError
from lark.tree import Meta
from lark.visitors import v_args

from stentor.errors import FilterSyntaxError
from stentor.filters.effort import spend
from stentor.filters.expression import (
    And,
    Arithmetic,
    Atom,
    Attribute,
    Compare,
    Constant,
    Expression,
    Or,
    Term,
    Truth,
)
from stentor.filters.language import terms
from stentor.filters.language.grammar import in_words
from stentor.filters.language.mistakes import TextError, syntax_error
from stentor.filters.language.parser import MAX_LENGTH, check_text
from stentor.filters.selectors import STEPS_PER_TOKEN, Condition
from stentor.model.values import value_type_of

#: How deep an expression may be nested.
MAX_DEPTH: Final = 200
#: The longest text whose length a filter can ask for.
MAX_COUNTED: Final = 1_000
_LEAST, _MOST = -(2**31), 2**31 - 1
_TOKENS: Final = re.compile(r"[\w.$]+|'[^']*'?|[^\w\s]")
_ORDER: Final = frozenset({"<", "<=", ">", ">="})


def parse_cesql(text: str) -> Expression:
    """The expression that lets pass what the CESQL expression lets pass.

    >>> print(parse_cesql("firstname = 'Ann'"))
    Atom(name='firstname', operator='=', constants=('Ann',))
    """
    if len(text) > MAX_LENGTH:
        raise FilterSyntaxError(
            f"the expression has {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    if not text.isascii():
        check_text(text)
    spend(STEPS_PER_TOKEN * len(_TOKENS.findall(text)))
    try:
        result: Expression = _Reader().transform(_parser().parse(text))
        return result
    except UnexpectedToken as mistake:
        error = _unexpected(text, mistake)
    except UnexpectedCharacters as mistake:
        place = cast(int, mistake.pos_in_stream)
        error = syntax_error(text, place, f"unexpected {text[place]!r}")
    except VisitError as mistake:
        if not isinstance(mistake.orig_exc, TextError):
            raise
        found = mistake.orig_exc
        error = syntax_error(text, max(found.index, 0), found.message, found.expected)
    raise error


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("cesql.lark").read_text(encoding="utf-8")
    return Lark(
        grammar, parser="lalr", lexer="basic", propagate_positions=True, maybe_placeholders=False
    )


# -- conditions


def _constant(value: bool) -> Condition:
    return Condition(Truth(value), Truth(not value))


def _and(left: Condition, right: Condition) -> Condition:
    return Condition(
        And((left.holds, right.holds)), Or((left.fails, And((left.holds, right.fails))))
    )


def _or(left: Condition, right: Condition) -> Condition:
    return _and(left.negated(), right.negated()).negated()


def _xor(left: Condition, right: Condition) -> Condition:
    return Condition(
        Or((And((left.holds, right.fails)), And((left.fails, right.holds)))),
        Or((And((left.holds, right.holds)), And((left.fails, right.fails)))),
    )


_LOGIC: Final = {"AND": _and, "OR": _or, "XOR": _xor}


class Function(NamedTuple):
    """A function of an attribute, to be compared with a constant."""

    name: str
    attribute: str
    constants: tuple[Any, ...]


Value = Condition | Term | Function


def _compare(operator: str, left: Value, right: Value) -> Condition:
    if isinstance(left, Condition) or isinstance(right, Condition):
        if operator in _ORDER:
            raise TextError(f"{operator} compares integers, and this is a condition")
        same = _xor(_condition(left), _condition(right)).negated()
        return same if operator == "=" else same.negated()
    if isinstance(right, Function):
        if isinstance(left, Function):
            _refuse(
                f"{left.name} and {right.name} of attributes cannot be compared with each other"
            )
        return _compare(terms.MIRRORED[operator], right, left)
    if isinstance(left, Function):
        if not isinstance(right, Constant):
            _refuse(f"{left.name} of an attribute is compared with a constant only")
        return _compare_function(operator, left, right.value)
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _constant(_compare_constants(operator, left.value, right.value))
    for term in (left, right):
        if isinstance(term, Constant) and operator in _ORDER:
            _integer(term.value)
    compared = terms.compare(operator, left, right)
    if isinstance(compared, Atom):
        opposite = terms.COMPLEMENT[compared.operator]
        return Condition(compared, Atom(compared.name, opposite, compared.constants))
    opposed = Compare(terms.COMPLEMENT[operator], left, right)
    if operator in _ORDER and isinstance(left, Attribute) and isinstance(right, Attribute):
        numbers = And((Atom(left.name, "is", ("number",)), Atom(right.name, "is", ("number",))))
        return Condition(And((numbers, compared)), And((numbers, opposed)))
    return Condition(compared, opposed)


def _compare_constants(operator: str, left: Any, right: Any) -> bool:
    """The left one is cast to the type of the right one, both to integers for an order."""
    if operator in _ORDER:
        left, right = _integer(left), _integer(right)
    elif isinstance(right, bool):
        left = _boolean(left)
    elif isinstance(right, int):
        left = _integer(left)
    else:
        left = _string(left)
    return terms.compare_values(operator, left, right)


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]+", value):
            _refuse(f"'{value}' is not an integer")
        value = int(value)
    if not _LEAST <= value <= _MOST:
        _refuse(f"{value} does not fit a 32-bit integer")
    return int(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            _refuse(f"'{value}' is neither true nor false")
        return value.lower() == "true"
    return bool(value)


def _string(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- functions of an attribute


def _compare_function(operator: str, function: Function, value: Any) -> Condition:
    if function.name in ("LENGTH", "ABS"):
        number = _integer(value)
        return (_length if function.name == "LENGTH" else _absolute)(
            operator, function.attribute, number
        )
    if operator in _ORDER:
        _refuse(f"{function.name} gives a string, and {operator} compares integers")
    condition = _TEXTS[function.name](function.attribute, _string(value), *function.constants)
    return condition if operator == "=" else condition.negated()


def _regex(name: str, regex: str) -> Condition:
    return Condition(Atom(name, "regex", (regex,)), Atom(name, "not regex", (regex,)))


def _never(name: str) -> Condition:
    return Condition(Truth(False), Atom(name, "is", ("string",)))


def _equal(name: str, text: str) -> Condition:
    return Condition(Atom(name, "=", (text,)), Atom(name, "!=", (text,)))


def _lower(name: str, text: str) -> Condition:
    return _regex(name, f"(?i)^{re.escape(text)}$") if text == text.lower() else _never(name)


def _upper(name: str, text: str) -> Condition:
    return _regex(name, f"(?i)^{re.escape(text)}$") if text == text.upper() else _never(name)


def _trim(name: str, text: str) -> Condition:
    return _regex(name, rf"^\s*{re.escape(text)}\s*$") if text == text.strip() else _never(name)


def _left(name: str, text: str, count: int) -> Condition:
    return _end(name, "prefix", text, count)


def _right(name: str, text: str, count: int) -> Condition:
    return _end(name, "suffix", text, count)


def _end(name: str, operator: str, text: str, count: int) -> Condition:
    if count < 0:
        _refuse("so many characters there cannot be")
    if len(text) != count:  # a shorter string is given whole
        return _equal(name, text) if len(text) < count else _never(name)
    if not count:
        return Condition(Atom(name, "is", ("string",)), Truth(False))
    return Condition(Atom(name, operator, (text,)), Atom(name, "not " + operator, (text,)))


def _substring(name: str, text: str, start: int, count: int | None = None) -> Condition:
    if start < 1:
        _refuse("of an attribute, SUBSTRING counts from 1 on")
    if count is not None and count < 0:
        _refuse("so many characters there cannot be")
    if start > MAX_COUNTED:
        _refuse(f"a filter counts up to {MAX_COUNTED} characters")
    reaches = Atom(name, "regex", (f"(?s)^.{{{start}}}",))  # or else it is an error
    if count == 0:
        return Condition(reaches, Truth(False)) if not text else Condition(Truth(False), reaches)
    if not text or (count is not None and len(text) > count):
        return Condition(Truth(False), reaches)
    end = "" if len(text) == count else "$"
    found = _regex(name, f"(?s)^.{{{start - 1}}}{re.escape(text)}{end}")
    return Condition(found.holds, And((reaches, found.fails)))


_TEXTS: Final[dict[str, Callable[..., Condition]]] = {
    "LOWER": _lower,
    "UPPER": _upper,
    "TRIM": _trim,
    "LEFT": _left,
    "RIGHT": _right,
    "SUBSTRING": _substring,
}


def _length(operator: str, name: str, number: int) -> Condition:
    if operator in ("!=", ">", ">="):
        return _length(terms.COMPLEMENT[operator], name, number).negated()
    most = number - (operator == "<")
    if most < 0:
        return _never(name)
    if most > MAX_COUNTED:
        _refuse(f"a filter counts up to {MAX_COUNTED} characters")
    return _regex(name, f"(?s)^.{{{most if operator == '=' else 0},{most}}}$")


def _absolute(operator: str, name: str, number: int) -> Condition:
    if operator in ("!=", ">", ">="):
        return _absolute(terms.COMPLEMENT[operator], name, number).negated()
    if operator == "=" and number >= 0:
        both = (number, -number)
        return Condition(Atom(name, "in", both), Atom(name, "not in", both))
    ends = "()" if operator == "<" else "[]"
    if number < 0 or operator == "=" or (not number and operator == "<"):
        return Condition(Truth(False), Atom(name, "is", ("number",)))
    around = (-number, number, ends)
    return Condition(Atom(name, "within", around), Atom(name, "not within", around))


def _of_constants(name: str, values: list[Any]) -> Any:
    """The value of a function whose arguments are all known."""
    if name in ("CONCAT_WS", "CONCAT"):
        texts = [_string(value) for value in values]
        return texts[0].join(texts[1:]) if name == "CONCAT_WS" else "".join(texts)
    if name in ("INT", "BOOL", "STRING"):
        return {"INT": _integer, "BOOL": _boolean, "STRING": _string}[name](values[0])
    if name == "IS_INT":
        return not isinstance(values[0], str) or bool(re.fullmatch(r"[+-]?[0-9]+", values[0]))
    if name == "IS_BOOL":
        return not isinstance(values[0], str) or values[0].lower() in ("true", "false")
    if name == "ABS":
        return abs(_integer(values[0]))
    text = _string(values[0])
    if name == "LENGTH":
        return len(text)
    if name in ("LOWER", "UPPER", "TRIM"):
        return {"LOWER": text.lower, "UPPER": text.upper, "TRIM": text.strip}[name]()
    numbers = [_integer(value) for value in values[1:]]
    if name in ("LEFT", "RIGHT"):
        if numbers[0] < 0:
            _refuse("so many characters there cannot be")
        return text[: numbers[0]] if name == "LEFT" else text[max(0, len(text) - numbers[0]) :]
    start = numbers[0] if numbers[0] >= 0 else len(text) + numbers[0] + 1
    if not start:
        return ""
    if not 0 < start <= len(text) or (len(numbers) > 1 and numbers[1] < 0):
        _refuse("the text has no such part")
    return text[start - 1 :][: numbers[1] if len(numbers) > 1 else None]


#: The functions, and how many arguments each takes.
_FUNCTIONS: Final = {
    "LENGTH": (1, 1),
    "CONCAT": (0, MAX_LENGTH),
    "CONCAT_WS": (1, MAX_LENGTH),
    "LOWER": (1, 1),
    "UPPER": (1, 1),
    "TRIM": (1, 1),
    "LEFT": (2, 2),
    "RIGHT": (2, 2),
    "SUBSTRING": (2, 3),
    "ABS": (1, 1),
    "INT": (1, 1),
    "BOOL": (1, 1),
    "STRING": (1, 1),
    "IS_INT": (1, 1),
    "IS_BOOL": (1, 1),
}
_WHY: Final = {
    "CONCAT": "what is put together from attributes has no index; compare them one by one",
    "CONCAT_WS": "what is put together from attributes has no index; compare them one by one",
    "INT": "an attribute has a type of its own; compare it as it is",
    "BOOL": "an attribute has a type of its own; compare it as it is",
    "STRING": "an attribute has a type of its own; compare it as it is",
    "IS_INT": "an attribute has a type of its own, and is not cast",
    "IS_BOOL": "an attribute has a type of its own, and is not cast",
}


def _call(name: str, arguments: list[Value]) -> Value:
    if name not in _FUNCTIONS:
        raise TextError(f"there is no function {name}", expected=tuple(sorted(_FUNCTIONS)))
    least, most = _FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        raise TextError(f"{name} takes {least if least == most else f'{least} or more'} arguments")
    if all(isinstance(argument, Constant) for argument in arguments):
        return Constant(_of_constants(name, [cast(Constant, a).value for a in arguments]))
    first, *others = arguments
    if name in _WHY or not isinstance(first, Attribute):
        why = _WHY.get(name, "its first argument is an attribute or a constant")
        _refuse(f"a filter has no {name} of this: {why}")
    if not all(isinstance(other, Constant) for other in others):
        _refuse(f"the further arguments of {name} are constants")
    return Function(name, first.name, tuple([_integer(cast(Constant, o).value) for o in others]))


# -- reading


class _Node(NamedTuple):
    value: Value
    depth: int
    place: int
    #: The word of a chain of AND, OR or XOR that is not in parentheses, or NOT.
    bare: str = ""


@v_args(meta=True)
class _Reader(Transformer_NonRecursive[Token, Any]):
    """One method per rule; lark calls them bottom up, without recursion."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)

    def start(self, _meta: Meta, children: list[_Node]) -> Expression:
        return _condition(children[0].value, children[0].place).holds

    def group(self, meta: Meta, children: list[_Node]) -> _Node:
        return _node(meta, children, children[0].value)

    def logic(self, meta: Meta, children: list[Any]) -> _Node:
        words = {str(word).upper() for word in children[1::2]}
        if len(words) > 1:
            raise TextError(
                "AND, OR and XOR have the same precedence in CESQL; say with parentheses what "
                "belongs together",
                children[3].start_pos,
            )
        (word,) = words
        conditions = [_condition(node.value, node.place) for node in children[::2]]
        joined = conditions[-1]
        for condition in reversed(conditions[:-1]):
            joined = _LOGIC[word](condition, joined)
        return _node(meta, children[::2], joined)

    def negation(self, meta: Meta, children: list[_Node]) -> _Node:
        (node,) = children
        negated = _condition(node.value, node.place).negated()
        return _node(meta, children, negated)._replace(bare="NOT")

    def compared(self, meta: Meta, children: list[Any]) -> _Node:
        left, sign, right = children
        for node in (left, right):
            if node.bare:
                raise TextError(
                    "in CESQL, NOT takes only what stands right behind it; write NOT (x = 1), or "
                    "(NOT x) = y",
                    node.place,
                )
        operator = "!=" if sign == "<>" else str(sign)
        return _computed(meta, [left, right], lambda a, b: _compare(operator, a, b))

    def like(self, meta: Meta, children: list[Any]) -> _Node:
        negated, (subject, pattern) = _split(children)
        return _computed(meta, [subject, pattern], lambda a, b: _like(a, b, negated))

    def within(self, meta: Meta, children: list[Any]) -> _Node:
        negated, (subject, items) = _split(children)
        return _computed(meta, [subject, *items], lambda a, *b: _within(a, list(b), negated))

    def exists(self, meta: Meta, children: list[Token]) -> _Node:
        name = str(children[0])
        return _node(meta, [], Condition(Atom(name, "exists"), Atom(name, "missing")))

    def function(self, meta: Meta, children: list[Any]) -> _Node:
        name, *arguments = children
        return _computed(meta, arguments, lambda *values: _call(str(name).upper(), list(values)))

    def items(self, _meta: Meta, children: list[_Node]) -> list[_Node]:
        return children

    def not_(self, _meta: Meta, _children: list[Any]) -> None:
        return None

    def arithmetic(self, meta: Meta, children: list[Any]) -> _Node:
        left, sign, right = children
        return _computed(meta, [left, right], lambda a, b: _arithmetic(str(sign), a, b))

    def minus(self, meta: Meta, children: list[Any]) -> _Node:
        return _computed(meta, children[1:], lambda term: _arithmetic("-", Constant(0), term))

    def identifier(self, meta: Meta, children: list[Token]) -> _Node:
        return _node(meta, [], Attribute(str(children[0])))

    def string(self, meta: Meta, children: list[Token]) -> _Node:
        quote, text = children[0][0], str(children[0])[1:-1]
        return _node(meta, [], Constant(text.replace("\\" + quote, quote)))

    def number(self, meta: Meta, children: list[Token]) -> _Node:
        digits = str(children[0])
        if len(digits) > 12 or int(digits) > -_LEAST:
            raise TextError(f"{digits[:20]} does not fit a 32-bit integer", _place(meta))
        return _node(meta, [], Constant(int(digits)))

    def boolean(self, meta: Meta, children: list[Token]) -> _Node:
        return _node(meta, [], Constant(children[0].type == "TRUE"))


def _like(subject: Value, pattern: Value, negated: bool) -> Condition:
    assert isinstance(pattern, Constant)
    text = str(pattern.value)
    escaped = re.search(r"\\[%_]", text) is not None
    if isinstance(subject, Constant):
        regex = re.sub(r"\\?[%_]|[^%_]", _like_piece, text, flags=re.S)
        found = _constant(re.fullmatch(regex, _string(subject.value), re.S) is not None)
    elif not isinstance(subject, Attribute):
        _refuse("LIKE tests an attribute or a constant")
    elif text and not text.strip("%"):
        found = Condition(Atom(subject.name, "is", ("string",)), Truth(False))
    else:
        # Only before % and _ is a backslash special; the language's own escape is so everywhere.
        constants = (re.sub(r"\\(?![%_])", r"\\\\", text), "\\") if escaped else (text,)
        found = Condition(
            Atom(subject.name, "like", constants), Atom(subject.name, "not like", constants)
        )
    return found.negated() if negated else found


def _like_piece(match: re.Match[str]) -> str:
    piece = match[0]
    return {"%": ".*", "_": "."}.get(piece) or re.escape(piece[-1])


def _within(subject: Value, items: list[Value], negated: bool) -> Condition:
    if isinstance(subject, Attribute) and all(isinstance(item, Constant) for item in items):
        groups: dict[str, list[Any]] = {}
        for item in items:
            value = cast(Constant, item).value
            groups.setdefault(value_type_of(value), []).append(value)
        found = Condition(
            Or(tuple([Atom(subject.name, "in", tuple(values)) for values in groups.values()])),
            Or(tuple([Atom(subject.name, "not in", tuple(v)) for v in groups.values()])),
        )
    elif isinstance(subject, Constant) and all(isinstance(item, Constant) for item in items):
        same = [_compare_constants("=", cast(Constant, i).value, subject.value) for i in items]
        found = _constant(any(same))
    else:
        found = _compare("=", subject, items[-1])
        for item in reversed(items[:-1]):
            found = _or(_compare("=", subject, item), found)
    return found.negated() if negated else found


def _arithmetic(operator: str, left: Value, right: Value) -> Term:
    for value in (left, right):
        if isinstance(value, Condition | Function):
            _refuse("of an attribute, a filter calculates with the value itself only")
    assert not isinstance(left, Condition | Function)
    assert not isinstance(right, Condition | Function)
    if not (isinstance(left, Constant) and isinstance(right, Constant)):
        if operator in "/%":
            _refuse(f"a filter does not truncate, so {operator} takes constants only")
        constants = [v for v in (left, right) if isinstance(v, Constant)]
        for constant in constants:
            _integer(constant.value)
        return Arithmetic(operator, left, right)
    a = left.value if isinstance(left.value, int) else _integer(left.value)
    b = right.value if isinstance(right.value, int) else _integer(right.value)
    if operator in "/%":
        if not b:
            _refuse("a division by zero has no value")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return Constant(_integer(quotient if operator == "/" else a - b * quotient))
    return Constant(_integer({"+": a + b, "-": a - b, "*": a * b}[operator]))


def _condition(value: Value, place: int = -1) -> Condition:
    if isinstance(value, Condition):
        return value
    if isinstance(value, Attribute):
        return Condition(Atom(value.name, "=", (True,)), Atom(value.name, "=", (False,)))
    if isinstance(value, Constant) and not isinstance(value.value, int | float):
        return _constant(_boolean(value.value))
    if isinstance(value, Constant) and isinstance(value.value, bool):
        return _constant(value.value)
    raise TextError(
        "this is not a condition: it is neither true nor false", place, ("a condition",)
    )


def _refuse(message: str) -> NoReturn:
    raise TextError(message)


def _place(meta: Meta) -> int:
    return 0 if meta.empty else meta.start_pos


def _node(meta: Meta, children: list[_Node], value: Value) -> _Node:
    depth = 1 + max((child.depth for child in children), default=-1)
    if depth > MAX_DEPTH:
        raise TextError(f"nested more than {MAX_DEPTH} levels deep", _place(meta))
    return _Node(value, depth, _place(meta))


def _computed(meta: Meta, nodes: list[_Node], compute: Callable[..., Value]) -> _Node:
    try:
        return _node(meta, nodes, compute(*[node.value for node in nodes]))
    except TextError as mistake:
        if mistake.index < 0:
            mistake.index = _place(meta)
        raise


def _split(children: list[Any]) -> tuple[bool, list[Any]]:
    """Whether a NOT is among the children, and the others."""
    others = [child for child in children if child is not None]
    return len(others) < len(children), others


_WORDS: Final = tuple(
    (frozenset(needed.split()), word, frozenset(covered.split()))
    for needed, word, covered in (
        ("IDENTIFIER NUMBER", "a value, an attribute or a function", "STRING TRUE FALSE _LPAR"),
        ("IDENTIFIER", "an attribute", ""),
        ("COMPARISON LOGIC", "a comparison, AND, OR or XOR", "_NOT _LIKE _IN $END _RPAR"),
        ("_RPAR _COMMA", "',' or ')'", ""),
        ("_RPAR", "')'", ""),
        ("STRING", "a string", ""),
        ("_LPAR", "'(' and a list", ""),
        ("LOGIC", "AND, OR or XOR", ""),
        ("$END", "the end of the expression", ""),
    )
)


def _unexpected(text: str, mistake: UnexpectedToken) -> FilterSyntaxError:
    expected = in_words(set(mistake.accepts or ()), _WORDS)
    token = mistake.token
    if token.type == "$END":
        return syntax_error(text, len(text.rstrip()), "the expression ends too early", expected)
    return syntax_error(text, token.start_pos or 0, f"unexpected {str(token)[:40]!r}", expected)
