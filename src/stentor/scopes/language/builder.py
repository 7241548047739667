"""From the parse tree to the values of `syntax`."""

from __future__ import annotations

from typing import Any

from lark import Token, Transformer, v_args

from stentor.errors import InvalidScopeGraph, StentorError
from stentor.filters import Filter
from stentor.filters.expression import Arithmetic, Attribute
from stentor.filters.expression import Constant as ConstantTerm
from stentor.filters.language.mistakes import TextError
from stentor.model.values import INT_MAX
from stentor.notation.units import parse_duration
from stentor.scopes import expressions
from stentor.scopes.language import syntax as s


def _tokens(children: list[Any], *kinds: str) -> list[Token]:
    return [each for each in children if isinstance(each, Token) and each.type in kinds]


def _of(children: list[Any], kind: type) -> Any:
    return next((each for each in children if isinstance(each, kind)), None)


class _Label(str):
    __slots__ = ()


class _Filters(tuple[s.WrittenFilter, ...]):
    __slots__ = ()


class _Grouped:
    """A condition in parentheses."""

    def __init__(self, predicate: s.Predicate) -> None:
        self.predicate = predicate


def _bare(part: Any) -> Any:
    return part.predicate if isinstance(part, _Grouped) else part


class Builder(Transformer[Any, Any]):
    """One method for each rule of the grammar."""

    def __init__(self) -> None:
        super().__init__()
        #: What is right and may still be meant otherwise: places and words.
        self.notes: list[tuple[int, str]] = []

    def start(self, children: list[Any]) -> s.Script:
        return s.Script(tuple(children), notes=tuple(self.notes))

    # -- statements

    @v_args(meta=True)
    def define_scope(self, meta: Any, children: list[Any]) -> s.DefineScope:
        abstract = bool(_tokens(children, "ABSTRACT"))
        (name,) = _tokens(children, "NAME")
        clauses = tuple(each for each in children if not isinstance(each, Token))
        return s.DefineScope(str(name), clauses, abstract, at=meta.start_pos)

    @v_args(meta=True)
    def define_component(self, meta: Any, children: list[Any]) -> s.DefineComponent:
        names = tuple(map(str, _tokens(children, "NAME", "STRING")))
        clauses = tuple(each for each in children if not isinstance(each, Token))
        return s.DefineComponent(names, clauses, at=meta.start_pos)

    @v_args(meta=True)
    def define_table(self, meta: Any, children: list[Any]) -> s.DefineTable:
        name, columns, *rows = children
        for row in rows:
            if len(row) != len(columns):
                raise TextError(
                    f"a row of {name} has {len(row)} values for {len(columns)} columns",
                    meta.start_pos,
                )
        keys = [row[0] for row in rows]
        if len(set(keys)) < len(keys):
            again = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise TextError(f"{name} has two rows for {again!r}", meta.start_pos)
        return s.DefineTable(str(name), columns, tuple(rows), at=meta.start_pos)

    def columns(self, children: list[Any]) -> tuple[str, ...]:
        return tuple(map(str, children))

    def row(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    @v_args(meta=True)
    def deploy(self, meta: Any, children: list[Any]) -> s.Deploy:
        reference, *rest = children
        name = _of(rest, _Label) or ""
        clauses = tuple(e for e in rest if not isinstance(e, _Label | s.Architecture))
        return s.Deploy(reference, str(name), clauses, _of(rest, s.Architecture), at=meta.start_pos)

    def instance(self, children: list[Any]) -> _Label:
        return _Label(children[0])

    @v_args(meta=True)
    def alter(self, meta: Any, children: list[Any]) -> s.Alter:
        reference, *rest = children
        modes = _tokens(rest, "ADD", "DEL")
        clauses = tuple(each for each in rest if not isinstance(each, Token))
        return s.Alter(
            reference, modes[0].type.lower() if modes else "", clauses, at=meta.start_pos
        )

    @v_args(meta=True)
    def drop(self, meta: Any, children: list[Any]) -> s.Drop:
        return s.Drop(children[-1], at=meta.start_pos)

    @v_args(meta=True)
    def import_(self, meta: Any, children: list[Any]) -> s.Import:
        return s.Import(str(children[0]), at=meta.start_pos)

    # -- selections

    @v_args(meta=True)
    def selection(self, meta: Any, children: list[Any]) -> s.Selection:
        superscopes, qualifier, base = _of(children, tuple)
        where = next((each for each in children if isinstance(each, _Where)), None)
        return s.Selection(
            superscopes,
            base,
            str(_of(children, _Label) or ""),
            qualifier,
            where.predicate if where else None,
            _of(children, s.Properties),
            at=meta.start_pos,
        )

    def label(self, children: list[Any]) -> _Label:
        return _Label(children[0])

    def every(self, children: list[Any]) -> _Label:
        return _Label("*")

    def superscopes(self, children: list[Any]) -> tuple[bool, Any, Any]:
        return True, *self._selected(children)

    def members(self, children: list[Any]) -> tuple[bool, Any, Any]:
        return False, *self._selected(children)

    def _selected(self, children: list[Any]) -> tuple[Any, Any]:
        qualifiers = [each for each in children if isinstance(each, s.All | s.Top | s.Range)]
        qualifier = qualifiers[0] if qualifiers else s.All()
        base = tuple(each for each in children if isinstance(each, s.Reference))
        return qualifier, base or None

    def all(self, children: list[Any]) -> s.All:
        return s.All()

    @v_args(meta=True)
    def top(self, meta: Any, children: list[Any]) -> s.Top:
        (rank, descending), k = children
        if int(k) < 1:
            raise TextError("TOP takes at least 1", k.start_pos)
        return s.Top(rank, _integer(k), descending)

    def rank(self, children: list[Any]) -> tuple[Any, bool]:
        rank = children[0] if isinstance(children[0], s.Call) else str(children[0])
        return rank, not _tokens(children, "ASC")

    @v_args(meta=True)
    def range(self, meta: Any, children: list[Any]) -> s.Range:
        least, most = children
        if least is not None and most is not None and least > most:
            raise TextError(f"at least {least} and at most {most} cannot be", meta.start_pos)
        return s.Range(least, most)

    def bound(self, children: list[Any]) -> int | None:
        return _integer(children[0]) if children else None

    def where(self, children: list[Any]) -> _Where:
        return _Where(children[0])

    @v_args(meta=True)
    def labelled(self, meta: Any, children: list[Any]) -> s.Labelled:
        return s.Labelled(str(children[0]), children[1], at=meta.start_pos)

    def properties(self, children: list[Any]) -> s.Properties:
        interfaces = _of(children, s.Interfaces)
        return s.Properties(interfaces, tuple(e for e in children if e is not interfaces))

    # -- features

    @v_args(meta=True)
    def interfaces(self, meta: Any, children: list[Any]) -> s.Interfaces:
        return s.Interfaces(tuple(children), at=meta.start_pos)

    @v_args(meta=True)
    def half(self, meta: Any, children: list[Any]) -> s.Half:
        direction = children[0].type.lower()
        filters = tuple(children[1]) if len(children) > 1 else ()
        if not filters:
            self.notes.append((meta.start_pos, f"{children[0].upper()}() lets nothing pass, as 0"))
        return s.Half(direction, filters)

    def filters(self, children: list[Any]) -> _Filters:
        return _Filters(children)

    def constant_filter(self, children: list[Any]) -> s.Constant:
        (value,) = children
        if value not in ("0", "1"):
            raise TextError("write 0 for nothing or 1 for everything", value.start_pos)
        return s.Constant(value == "1")

    def named_filter(self, children: list[Any]) -> s.Kind:
        return s.Kind(str(children[0]))

    def topic_filter(self, children: list[Any]) -> s.Topic:
        return s.Topic(tuple(str(each) for each in _tokens(children, "NAME", "STAR")))

    def text_filter(self, children: list[Any]) -> s.Text:
        (text,) = children
        try:
            Filter(str(text))
        except StentorError as error:
            first = str(error).partition("\n")[0]
            raise TextError(f"this filter cannot be read: {first}", text.start_pos) from None
        return s.Text(str(text), at=text.start_pos)

    @v_args(meta=True)
    def content_filter(self, meta: Any, children: list[Any]) -> s.Content:
        return s.Content(children[0], at=meta.start_pos)

    @v_args(meta=True)
    def roles(self, meta: Any, children: list[Any]) -> s.Roles:
        return s.Roles(tuple(map(str, children)), at=meta.start_pos)

    @v_args(meta=True)
    def set(self, meta: Any, children: list[Any]) -> s.Set:
        return s.Set(tuple(children), at=meta.start_pos)

    def assignment(self, children: list[Any]) -> tuple[str, Any]:
        name, _, value = children
        return str(name), s.Name(str(value)) if isinstance(value, _Attribute) else value

    @v_args(meta=True)
    def maintain(self, meta: Any, children: list[Any]) -> s.Maintain:
        when, *given = children
        value: Any = given[0] if given else 0
        if given:
            if isinstance(value, str):
                try:
                    value = parse_duration(value)
                except (StentorError, ValueError) as error:
                    raise TextError(str(error), meta.start_pos) from None
            if value <= 0:
                raise TextError(f"{when.upper()} takes a number above 0", meta.start_pos)
        return s.Maintain(when.type.lower(), value, at=meta.start_pos)

    @v_args(meta=True)
    def admit(self, meta: Any, children: list[Any]) -> s.Admit:
        return s.Admit(children[0].predicate, at=meta.start_pos)

    @v_args(meta=True)
    def duplicates(self, meta: Any, children: list[Any]) -> s.Duplicates:
        return s.Duplicates(at=meta.start_pos)

    # -- actions

    @v_args(meta=True)
    def map(self, meta: Any, children: list[Any]) -> s.Map:
        direction, *by = children
        if len(by) == 1 and isinstance(by[0], s.Call):
            return s.Map(direction.type.lower(), by[0], at=meta.start_pos)
        sets = tuple(each[1:] for each in by if each[0] == "set")
        keep = [name for each in by if each[0] == "keep" for name in each[1]]
        drop = [name for each in by if each[0] == "drop" for name in each[1]]
        names = [name for name, _ in sets]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise TextError(f"{twice} is set twice", meta.start_pos)
        kept = tuple(dict.fromkeys(keep)) if keep else None
        changes = s.Changes(sets, kept, tuple(dict.fromkeys(drop)))
        return s.Map(direction.type.lower(), changes, at=meta.start_pos)

    def becomes(self, children: list[Any]) -> tuple[str, str, Any]:
        name, _, expression = children
        return "set", str(name), expression

    def change(self, children: list[Any]) -> tuple[str, tuple[str, ...]]:
        return children[0].type.lower(), children[1]

    def names(self, children: list[Any]) -> tuple[str, ...]:
        return tuple(map(str, children))

    @v_args(meta=True)
    def policy(self, meta: Any, children: list[Any]) -> s.Policy:
        return s.Policy(children[0].type.lower(), children[1], at=meta.start_pos)

    @v_args(meta=True)
    def do(self, meta: Any, children: list[Any]) -> s.Do:
        return s.Do(children[0], at=meta.start_pos)

    def code(self, children: list[Any]) -> s.Call:
        (given,) = children
        if isinstance(given, s.Call):
            return given
        return s.Call(str(given), quoted=given.type == "STRING", at=given.start_pos)

    # -- updates

    @v_args(meta=True)
    def update(self, meta: Any, children: list[Any]) -> s.Update:
        event, *rest = children
        reactions = tuple(each for each in rest if isinstance(each, s.Alter | s.Create))
        conditions = [each for each in rest if not isinstance(each, s.Alter | s.Create)]
        return s.Update(event, reactions, conditions[0] if conditions else None, at=meta.start_pos)

    def event(self, children: list[Any]) -> s.Event:
        first = children[0]
        if isinstance(first, s.Call):
            return s.Event("call", code=first)
        kind = first.type.lower()
        if kind in ("pub", "con"):
            return s.Event(kind, str(children[1]), _event_filters(children[2]))
        if kind in ("join", "leave"):
            return s.Event(kind, ends=tuple(each.reference for each in children[1:]))
        return s.Event(kind, filters=_event_filters(children[1]))

    def end(self, children: list[Any]) -> _End:
        return _End(children[0] if isinstance(children[0], s.Reference) else None)

    def create(self, children: list[Any]) -> s.Create:
        return s.Create(bool(children), str(children[0]) if children else "")

    def include(self, children: list[Any]) -> str:
        return str(children[0]) if children else ""

    # -- architectures

    @v_args(meta=True)
    def architecture(self, meta: Any, children: list[Any]) -> s.Architecture:
        kind, *given = children
        name = kind.type.lower()
        if name == "architecture":
            name, *given = str(given[0]), *given[1:]
        hosts = [each for each in given if isinstance(each, str)]
        if len(hosts) > 1:
            raise TextError(f"{name} runs on one host", meta.start_pos)
        parameters = tuple(each for each in given if isinstance(each, tuple))
        return s.Architecture(name, hosts[0] if hosts else "", parameters)

    def parameter(self, children: list[Any]) -> tuple[str, Any]:
        return str(children[0]), children[2]

    def host(self, children: list[Any]) -> str:
        port = _tokens(children, "INT")
        name = ".".join(_tokens(children, "NAME"))
        return f"{name}:{port[0]}" if port else name

    def quoted_host(self, children: list[Any]) -> str:
        return str(children[0])

    # -- conditions

    @v_args(meta=True)
    def predicate(self, meta: Any, children: list[Any]) -> s.Predicate:
        if len(children) == 1:
            return _bare(children[0])  # type: ignore[no-any-return]
        if any(isinstance(each, s.AllOf) for each in children):
            self.notes.append(
                (meta.start_pos, "AND binds tighter than OR; parentheses would make that plain")
            )
        return s.AnyOf(tuple(map(_bare, children)))

    def conjunction(self, children: list[Any]) -> Any:
        return children[0] if len(children) == 1 else s.AllOf(tuple(map(_bare, children)))

    def negation(self, children: list[Any]) -> s.Negation:
        return s.Negation(_bare(children[-1]))

    def group(self, children: list[Any]) -> _Grouped:
        return _Grouped(children[0])

    def role_test(self, children: list[Any]) -> s.RoleTest:
        return s.RoleTest(str(children[0]))

    def interface_test(self, children: list[Any]) -> s.InterfaceTest:
        return s.InterfaceTest(children[0])

    def attribute_test(self, children: list[Any]) -> s.AttributeTest:
        name, operator, value = children
        text = _OPERATORS.get(operator.type, operator.type.lower())
        plain = str(value) if isinstance(value, Token) else value
        return s.AttributeTest(str(name), text, plain)

    # -- values

    @v_args(meta=True)
    def reference(self, meta: Any, children: list[Any]) -> s.Reference:
        last = children[-1]
        if isinstance(last, s.Reference):
            return s.Reference(last.path, last.members + 1, at=meta.start_pos)
        if last.type in (s.SELF, s.TRIGGER):
            return s.Reference((last.type,), at=meta.start_pos)
        return s.Reference(tuple(map(str, children)), at=meta.start_pos)

    def attribute(self, children: list[Any]) -> _Attribute:
        first = children[0].type if children[0].type in (s.SELF, s.TRIGGER) else str(children[0])
        return _Attribute(".".join([first, *map(str, children[1:])]))

    @v_args(meta=True)
    def call(self, meta: Any, children: list[Any]) -> s.Call:
        name, *arguments = children
        given = (s.Name(str(each)) if isinstance(each, _Attribute) else each for each in arguments)
        return s.Call(str(name), tuple(given), at=meta.start_pos)

    def number(self, children: list[Any]) -> int | float:
        value = _number(children[-1])
        return -value if len(children) == 2 else value

    def string(self, children: list[Any]) -> str:
        return str(children[0])

    def true(self, children: list[Any]) -> bool:
        return True

    def false(self, children: list[Any]) -> bool:
        return False

    # -- expressions of mappings

    def sum(self, children: list[Any]) -> Any:
        return _folded(children)

    def product(self, children: list[Any]) -> Any:
        return _folded(children)

    def constant(self, children: list[Any]) -> ConstantTerm:
        return ConstantTerm(_number(children[0]))

    def minus(self, children: list[Any]) -> Any:
        part = _term(children[-1])
        if isinstance(part, ConstantTerm) and type(part.value) in (int, float):
            return ConstantTerm(-part.value)
        return Arithmetic("-", ConstantTerm(0), part)

    @v_args(meta=True)
    def function(self, meta: Any, children: list[Any]) -> expressions.Call:
        name, *arguments = children
        try:
            return expressions.Call(str(name), tuple(map(_term, arguments)))
        except InvalidScopeGraph as error:
            raise TextError(str(error), meta.start_pos) from None


# The rule is called import, which no method can be.
setattr(Builder, "import", Builder.import_)


class _Attribute(str):
    __slots__ = ()


class _Where:
    def __init__(self, predicate: s.Predicate) -> None:
        self.predicate = predicate


class _End:
    def __init__(self, reference: s.Reference | None) -> None:
        self.reference = reference


_OPERATORS = {"EQ": "=", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_SIGNS = {"PLUS": "+", "MINUS": "-", "STAR": "*", "SLASH": "/"}


def _event_filters(filters: _Filters) -> tuple[s.WrittenFilter, ...]:
    """`pub(n: OUTPUT(F))` means `pub(n: F)`."""
    match filters:
        case (s.Content(s.InterfaceTest(half)),):
            return half.filters
    return tuple(filters)


def _term(value: Any) -> Any:
    if isinstance(value, _Attribute):
        return Attribute(str(value))
    return ConstantTerm(value) if isinstance(value, str | bool) else value


def _folded(children: list[Any]) -> Any:
    result = _term(children[0])
    for sign, operand in zip(children[1::2], children[2::2], strict=True):
        result = Arithmetic(_SIGNS[sign.type], result, _term(operand))
    return result


def _integer(token: Token) -> int:
    if len(token) > 19 or int(token) > INT_MAX:
        raise TextError("this number is too large", token.start_pos or 0)
    return int(token)


def _number(token: Token) -> int | float:
    if token.type == "INT":
        return _integer(token)
    value = float(token)
    if value == float("inf"):
        raise TextError("this number is too large", token.start_pos or 0)
    return value
