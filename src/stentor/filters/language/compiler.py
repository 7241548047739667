"""From the parse tree to the straight-line program of a template.

Each rule of the grammar appends one step, which reads the texts of numbered tokens and the results
of earlier steps (their *registers*). `Part` is what the compiler knows about such a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from lark import Token, Transformer_NonRecursive

from stentor.filters.expression import (
    And,
    Atom,
    Attribute,
    Constant,
    Expression,
    Not,
    Or,
    Quantified,
    Truth,
)
from stentor.filters.language import literals, scopes, terms
from stentor.filters.language.mistakes import TextError
from stentor.filters.language.tokens import SIGNS, Listed

#: How deep operators, and parentheses, may be nested.
MAX_DEPTH: Final = 200

Tokens = list[str]
Step = Callable[[Tokens, list[Any]], Any]
Read = Callable[[str], Any]
#: name token, operator, literal token, how to read the literal
Row = tuple[int, str, int, Read]

_SIGN_OF: Final = {kind: sign for sign, kind in SIGNS.items() if sign != "<>"}
_TYPES_ATTRIBUTE: Final = "_types"


class Part(NamedTuple):
    """What is known at compile time about the result of a step."""

    register: int
    place: int  # the token that it starts with
    depth: int = 0
    parentheses: int = 0
    name: int | None = None  # the token of an unquoted attribute name
    is_attribute: bool = False
    is_quoted: bool = False
    is_isa: bool = False
    literal: tuple[int, Read] | None = None
    is_list: bool = False  # of constants, in one register
    rows: list[Row] | None = None


class Test(NamedTuple):
    """The right-hand side of a test: `in (1, 2)`, `not prefix 'a'`, `is int`."""

    operator: str
    constants: list[Part]
    place: int
    word: int | None = None  # the token that completes the operator, or names a type
    is_range: bool = False
    is_custom: bool = False
    row: tuple[int, Read] | None = None


_EVENT_TYPE_READERS: Final[dict[str, Read]] = {
    "NAME": str,
    "QUOTED": literals.quoted_name,
    "STRING": literals.string,
}

_OPPOSITE: Final = {
    "has": "lacks",
    "lacks": "has",
    "overlaps": "disjoint",
    "disjoint": "overlaps",
    "superset": "not superset",
    "subset": "not subset",
}


class Compiler(Transformer_NonRecursive[Token, Any]):
    """One method per rule of the grammar; each appends its step and returns a `Part`."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self.steps: list[Step] = []
        self.blame: list[int] = []

    def _emit(self, step: Step, place: int, parts: list[Part], **known: Any) -> Part:
        depth = 1 + max((part.depth for part in parts), default=-1)
        parentheses = max((part.parentheses for part in parts), default=0)
        if depth > MAX_DEPTH:
            raise TextError(f"nested more than {MAX_DEPTH} levels deep; split the filter", place)
        self.steps.append(step)
        self.blame.append(place)
        return Part(len(self.steps) - 1, place, depth, parentheses, **known)

    # Boolean structure

    def start(self, children: list[Part]) -> Part:
        return children[0] if children else self._emit(lambda _t, _r: Truth(True), 0, [])

    def group(self, children: list[Part]) -> Part:
        (part,) = children
        if part.parentheses >= MAX_DEPTH:
            raise TextError(
                f"more than {MAX_DEPTH} parentheses inside each other; split the filter", part.place
            )
        # What is in parentheses is the same thing, except that it was not written bare.
        return part._replace(parentheses=part.parentheses + 1, is_quoted=False, is_isa=False)

    def disjunction(self, children: list[Part]) -> Part:
        registers = [part.register for part in children]
        return self._emit(
            lambda _t, r: Or(tuple([r[i] for i in registers])), children[0].place, children
        )

    def conjunction(self, children: list[Part]) -> Part:
        registers = [part.register for part in children]
        rows: list[Row] | None = []
        for part in children:
            if rows is not None and part.rows is not None and len(part.rows) == 1:
                rows.append(part.rows[0])
            else:
                rows = None
        return self._emit(
            lambda _t, r: And(tuple([r[i] for i in registers])),
            children[0].place,
            children,
            rows=rows,
        )

    def negated(self, children: list[Any]) -> Part:
        token, part = children
        i = part.register
        if part.is_isa:
            return self._emit(
                lambda _t, r: Atom(_TYPES_ATTRIBUTE, "not isa", r[i].constants), _at(token), [part]
            )
        return self._emit(lambda _t, r: Not(r[i]), _at(token), [part])

    def truth(self, children: list[Part]) -> Part:
        (part,) = children
        i = part.register
        return self._emit(lambda _t, r: Truth(r[i].value), part.place, [part])

    def quantified(self, children: list[Any]) -> Part:
        """`any x in xs: …`: the names inside are those of the element and its fields."""
        word, variable, _, subject, _, part = children
        i, j = subject.register, part.register
        name, place = _at(variable), _at(word)
        quantifier = word.type.lower()

        def step(tokens: Tokens, r: list[Any]) -> Expression:
            if "." in tokens[name]:
                raise TextError(f"{tokens[name]} names an element, so it has no dot", name)
            inside = scopes.inside(tokens[name], r[j], tokens, place)
            return Quantified(quantifier, r[i].name, inside)

        return self._emit(step, place, [subject, part])

    # Comparisons

    def comparison(self, children: list[Any]) -> Part:
        """`a < b <= c`: a and b, b and c are compared."""
        compared = []
        for left, token, right in zip(children[::2], children[1::2], children[2::2], strict=False):
            if right.is_quoted:
                raise TextError(
                    "double quotes name attributes; write a string in single quotes, or the name "
                    "of an attribute to compare with in parentheses",
                    right.place,
                    ("a value",),
                )
            bare = right.name is not None and not right.parentheses
            if bare and left.is_attribute and token.type in ("EQ", "NE"):
                raise TextError(
                    "this is read as the name of an attribute; write a string in single quotes, "
                    "or put the attribute to compare with in parentheses",
                    right.place,
                    ("a value",),
                )
            compared.append(self._compare(left, _SIGN_OF[token.type], right, _at(token)))
        if len(compared) == 1:
            return compared[0]
        return self.conjunction(compared)

    def _compare(self, left: Part, sign: str, right: Part, place: int) -> Part:
        i, j = left.register, right.register
        rows = None
        if left.name is not None and right.literal is not None:
            rows = [(left.name, sign, *right.literal)]
        elif left.literal is not None and right.name is not None:
            rows = [(right.name, terms.MIRRORED[sign], *left.literal)]
        return self._emit(
            lambda _t, r: terms.compare(sign, r[i], r[j]), place, [left, right], rows=rows
        )

    def some_compared(self, children: list[Any]) -> Part:
        subject, token, value = children
        i, j = subject.register, value.register
        operator = "some " + _SIGN_OF[token.type]
        return self._emit(
            lambda _t, r: Atom(r[i].name, operator, (r[j].value,)), subject.place, [subject, value]
        )

    # Tests

    def tested(self, children: list[Any]) -> Part:
        subject, test = children
        if test.is_range:
            i, (low, high) = subject.register, [part.register for part in test.constants]
            inside = not test.operator.startswith("not ")
            return self._emit(
                lambda _t, r: terms.between(r[i], r[low], r[high], inside),
                test.place,
                [subject, *test.constants],
            )
        if not subject.is_attribute:
            raise TextError(
                "only an attribute can be tested here, not a value or a computation",
                subject.place,
                ("an attribute name",),
            )
        return self._test(subject, test, test.operator)

    def some_tested(self, children: list[Any]) -> Part:
        subject, test = children
        return self._test(subject, test, "some " + test.operator)

    def _test(self, subject: Part, test: Test, operator: str) -> Part:
        i = subject.register
        registers = [part.register for part in test.constants]
        word = test.word
        whole = registers[0] if registers and test.constants[0].is_list else None

        def step(tokens: Tokens, r: list[Any]) -> Atom:
            if whole is not None:
                return Atom(r[i].name, operator, r[whole])
            constants = tuple([r[j].value for j in registers])
            return Atom(r[i].name, operator, constants)

        def custom_step(tokens: Tokens, r: list[Any]) -> Expression:
            return replace(step(tokens, r), operator=operator + tokens[word or 0])

        def type_step(tokens: Tokens, r: list[Any]) -> Expression:
            return Atom(r[i].name, operator, (literals.tested_type(tokens[word or 0]),))

        def range_step(tokens: Tokens, r: list[Any]) -> Expression:
            if not all(isinstance(r[j], Constant) for j in registers):
                raise TextError("the elements of a collection are compared with constants only")
            return step(tokens, r)

        chosen: Step = step
        if test.is_range:
            chosen = range_step
        elif word is not None:
            chosen = custom_step if test.is_custom else type_step
        rows = None
        if subject.name is not None and test.row is not None:
            rows = [(subject.name, operator, *test.row)]
        return self._emit(chosen, test.place, [subject, *test.constants], rows=rows)

    def range_test(self, children: list[Any]) -> Test:
        operator, constants, place = _read_test(children)
        return Test(operator, constants, place, is_range=True)

    def list_test(self, children: list[Any]) -> Test:
        operator, (values,), place = _read_test(children)
        return Test(operator, values, place)

    def text_test(self, children: list[Any]) -> Test:
        operator, constants, place = _read_test(children)
        return Test(operator, constants, place, row=constants[0].literal)

    def like_test(self, children: list[Any]) -> Test:
        operator, constants, place = _read_test(children)
        if len(constants) == 1:
            return Test(operator, constants, place, row=constants[0].literal)
        i = constants[1].register

        def check(_t: Tokens, r: list[Any]) -> Any:
            if not isinstance(r[i].value, str) or len(r[i].value) != 1:
                raise TextError("the escape is one character", expected=("one character",))
            return r[i]

        escape = self._emit(check, constants[1].place, [])
        return Test(operator, [constants[0], escape], place)

    def type_test(self, children: list[Token]) -> Test:
        operator = "is" if len(children) == 2 else "is not"
        return Test(operator, [], _at(children[-1]), word=_at(children[-1]))

    def custom_test(self, children: list[Any]) -> Test:
        *before, word, constants = children
        if isinstance(constants, Part):
            constants = [constants]
        return Test("not " if before else "", constants, _at(word), word=_at(word), is_custom=True)

    def member_test(self, children: list[Any]) -> Test:
        return self._collection_test(*_read_test(children))

    def set_test(self, children: list[Any]) -> Test:
        operator, (values,), place = _read_test(children)
        return self._collection_test(operator, values, place)

    def _collection_test(self, operator: str, constants: list[Part], place: int) -> Test:
        if operator.startswith("not "):
            operator = _OPPOSITE[operator.removeprefix("not ")]
        return Test(operator, constants, place)

    def presence_test(self, children: list[Token]) -> Test:
        operator = "missing" if len(children) == 2 else "exists"
        return Test(operator, [], _at(children[0]))

    def exists(self, children: list[Any]) -> Part:
        _, subject = children
        i = subject.register
        return self._emit(lambda _t, r: Atom(r[i].name, "exists"), subject.place, [subject])

    def some_exists(self, children: list[Any]) -> Part:
        subject, _ = children
        i = subject.register
        return self._emit(lambda _t, r: Atom(r[i].name, "some exists"), subject.place, [subject])

    def isa(self, children: list[Any]) -> Part:
        _, event_type = children
        i = event_type.register
        return self._emit(
            lambda _t, r: Atom(_TYPES_ATTRIBUTE, "isa", (r[i],)),
            event_type.place,
            [event_type],
            is_isa=True,
        )

    def event_type(self, children: list[Token]) -> Part:
        (token,) = children
        i = _at(token)
        read = _EVENT_TYPE_READERS[token.type]
        return self._emit(lambda t, _r: read(t[i]), i, [])

    # Terms

    def attribute(self, children: list[Token]) -> Part:
        (token,) = children
        i = _at(token)
        if token.type == "NAME":
            return self._emit(lambda t, _r: Attribute(t[i]), i, [], name=i, is_attribute=True)
        return self._emit(
            lambda t, _r: Attribute(literals.quoted_name(t[i])),
            i,
            [],
            is_attribute=True,
            is_quoted=True,
        )

    def arithmetic(self, children: list[Any]) -> Part:
        left, token, right = children
        i, j, sign = left.register, right.register, _SIGN_OF[token.type]
        return self._emit(
            lambda _t, r: terms.arithmetic(sign, r[i], r[j]), _at(token), [left, right]
        )

    def minus(self, children: list[Any]) -> Part:
        token, part = children
        if part.literal is not None and part.literal[1] is literals.number:
            # The step of the number is the last one. It is taken back, because the least integer
            # has no positive counterpart that it could read.
            self.steps.pop()
            self.blame.pop()
            return self._literal(part.literal[0], literals.negative_number)
        i = part.register
        return self._emit(lambda _t, r: terms.negative(r[i]), _at(token), [part])

    def plus(self, children: list[Any]) -> Part:
        token, part = children
        if part.literal is not None and part.literal[1] is literals.number:
            return part  # type: ignore[no-any-return]
        i = part.register
        return self._emit(
            lambda _t, r: terms.arithmetic("+", Constant(0), r[i]), _at(token), [part]
        )

    # Literals

    def _literal(self, i: int, read: Read) -> Part:
        return self._emit(lambda t, _r: Constant(read(t[i])), i, [], literal=(i, read))

    def number(self, children: list[Token]) -> Part:
        return self._literal(_at(children[0]), literals.number)

    def string(self, children: list[Token]) -> Part:
        return self._literal(_at(children[0]), literals.string)

    def typed(self, children: list[Token]) -> Part:
        i, j = map(_at, children)
        return self._emit(lambda t, _r: Constant(literals.typed(t[i], t[j])), i, [])

    def boolean(self, children: list[Token]) -> Part:
        value = children[0].type == "TRUE"
        return self._emit(lambda _t, _r: Constant(value), _at(children[0]), [])

    def values(self, children: list[Any]) -> list[Part]:
        if isinstance(children[0], Part):
            return children
        i = _at(children[0])
        return [self._emit(lambda t, _r: cast(Listed, t[i]).values(), i, [], is_list=True)]

    def no_values(self, _children: list[Part]) -> list[Part]:
        return []


def _at(token: Token) -> int:
    place = token.start_pos
    assert place is not None
    return place


def _read_test(children: list[Any]) -> tuple[str, list[Any], int]:
    """The operator, what follows it, and the token of the operator."""
    negated = children[0].type == "NOT"
    word = children[1] if negated else children[0]
    constants = children[2:] if negated else children[1:]
    operator = word.type.lower()
    return ("not " + operator if negated else operator), constants, _at(word)
