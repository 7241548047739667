"""From the values of `syntax` back to text, in one form for all.

Reading what is printed gives the same values again, and printing those the same text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stentor.filters.expression import Arithmetic, Attribute
from stentor.filters.expression import Constant as ConstantTerm
from stentor.scopes import expressions
from stentor.scopes.language import syntax as s
from stentor.scopes.language.tokens import is_name


def format_script(script: s.Script) -> str:
    """The text of a script.

    >>> from stentor.scopes.language import parse
    >>> print(format_script(parse('define scope a as all from b,c interfaces output(Quote);')))
    DEFINE SCOPE a AS
        ALL FROM b, c
        INTERFACES OUTPUT(Quote);
    <BLANKLINE>
    """
    blocks: list[str] = []
    previous: type | None = None
    for statement in script.statements:
        text = _comments(statement.comments, "") + format_statement(statement) + ";"
        short = "\n" not in text and type(statement) is previous
        blocks.append(("" if short or not blocks else "\n") + text)
        previous = None if "\n" in text else type(statement)
    if script.comments:
        blocks.append(("\n" if blocks else "") + _comments(script.comments, "").rstrip("\n"))
    return "\n".join(blocks) + ("\n" if blocks else "")


def format_statement(statement: s.Statement) -> str:
    match statement:
        case s.Import(file):
            return f"IMPORT {_string(file)}"
        case s.DefineScope(name, clauses, abstract):
            kind = "ABSTRACT SCOPE" if abstract else "SCOPE"
            return f"DEFINE {kind} {name}" + (" AS" if clauses else "") + _clauses(clauses)
        case s.DefineComponent(names, clauses):
            kinds = " ".join(map(format_clause, clauses))
            return f"DEFINE COMPONENT {', '.join(map(_name, names))}" + (
                f" {kinds}" if kinds else ""
            )
        case s.DefineTable(name, columns, rows):
            lines = (f"\n    ({', '.join(map(_literal, row))})" for row in rows)
            return f"DEFINE TABLE {name} ({', '.join(columns)}) AS" + ",".join(lines)
        case s.Deploy(definition, name, clauses, architecture):
            head = f"DEPLOY {_reference(definition)}" + (f" AS {name}" if name else "")
            last = [] if architecture is None else [_architecture(architecture)]
            return head + _clauses(clauses, last)
        case s.Alter(target, mode, clauses):
            head = f"ALTER SCOPE {_reference(target)}" + (f" {mode.upper()}" if mode else "")
            return head + _clauses(clauses)
        case s.Drop(target):
            return f"DROP SCOPE {_reference(target)}"


def _clauses(clauses: Iterable[s.Clause], last: Iterable[str] = ()) -> str:
    lines = [_comments(each.comments, "    ") + f"    {format_clause(each)}" for each in clauses]
    lines += [f"    {each}" for each in last]
    return "".join(f"\n{line}" for line in lines)


def _comments(comments: tuple[str, ...], indent: str) -> str:
    return "".join(f"{indent}-- {each}".rstrip() + "\n" for each in comments)


def format_clause(clause: s.Clause) -> str:
    match clause:
        case s.Selection():
            return _selection(clause)
        case s.Labelled(label, properties):
            return f"{label}: {_properties(properties)}"
        case s.Interfaces(halves):
            return "INTERFACES " + ", ".join(map(_half, halves))
        case s.Roles(names):
            return "ROLES " + ", ".join(names)
        case s.Set(assignments):
            return "SET " + ", ".join(f"{name} = {_value(value)}" for name, value in assignments)
        case s.Maintain(when, value):
            return f"MAINTAIN {_WHEN[when]}" + (f" {value!r}" if value else "")
        case s.Admit(where):
            return f"ADMIT WHERE {_predicate(where)}"
        case s.Duplicates():
            return "DUPLICATES ONCE"
        case s.Map() | s.Policy() | s.Do():
            return _action(clause)
        case s.Update(event, reactions, condition):
            test = "" if condition is None else f" IF {_predicate(condition)}"
            return f"UPDATE ON {_event(event)}{test} DO " + ", ".join(map(_reaction, reactions))


_WHEN = {"once": "ONCE", "every": "EVERY", "change": "ON CHANGE", "deviation": "ON DEVIATION"}


def _selection(selection: s.Selection) -> str:
    words = [f"{selection.label}:"] if selection.label else []
    if selection.superscopes:
        words.append("SUPERSCOPE")
    match selection.qualifier:
        case s.All():
            words.append("ALL")
        case s.Top(rank, k, descending):
            by = rank if isinstance(rank, str) else _call(rank)
            words.append(f"TOP({by}{'' if descending else ' ASC'}, {k})")
        case s.Range(least, most):
            low, high = ("" if each is None else each for each in (least, most))
            words.append(f"[{low}..{high}]")
    base = selection.base
    words.append("FROM " + ("*" if base is None else ", ".join(map(_reference, base))))
    if selection.where is not None:
        words.append(f"WHERE {_predicate(selection.where)}")
    text = " ".join(words)
    return text if selection.properties is None else f"{text} : {_properties(selection.properties)}"


def _properties(properties: s.Properties) -> str:
    parts = [] if properties.interfaces is None else [format_clause(properties.interfaces)]
    parts += map(_action, properties.actions)
    return "{ " + " ".join(parts) + " }" if parts else "{}"


def _half(half: s.Half) -> str:
    return f"{half.direction.upper()}({', '.join(map(_filter, half.filters))})"


def _filter(written: s.WrittenFilter) -> str:
    match written:
        case s.Constant(everything):
            return "1" if everything else "0"
        case s.Kind(name):
            return name
        case s.Topic(path):
            return "".join(f"/{each}" for each in path)
        case s.Text(text):
            return _string(text)
        case s.Content(predicate):
            return _predicate(predicate)


def _action(action: s.Action) -> str:
    match action:
        case s.Map(direction, s.Changes(sets, keep, drop)):
            parts = [f"{name} = {_expression(value)}" for name, value in sets]
            parts += [] if keep is None else [f"KEEP ({', '.join(keep)})"]
            parts += [f"DROP ({', '.join(drop)})"] if drop else []
            return f"MAP {direction.upper()} {{ {', '.join(parts)} }}"
        case s.Map(direction, s.Call() as code):
            return f"MAP {direction.upper()} {_code(code)}"
        case s.Policy(kind, code):
            return f"POLICY {kind.upper()} {_code(code)}"
        case s.Do(code):
            return f"DO {_code(code)}"
    raise AssertionError(action)


def _event(event: s.Event) -> str:
    if event.code is not None:
        return _call(event.code)
    filters = ", ".join(map(_filter, event.filters))
    if event.ends:
        filters = ", ".join("*" if each is None else _reference(each) for each in event.ends)
    return f"{event.kind}({f'{event.binds}: ' if event.binds else ''}{filters})"


def _reaction(reaction: s.Alter | s.Create) -> str:
    if isinstance(reaction, s.Create):
        include = f" INCLUDE COMPONENT {reaction.label}".rstrip() if reaction.include else ""
        return f"(CREATE NOW{include})" if reaction.label else f"CREATE NOW{include}"
    mode = f" {reaction.mode.upper()}" if reaction.mode else ""
    parts = "".join(f" {format_clause(each)}" for each in reaction.clauses)
    return f"(ALTER SCOPE {_reference(reaction.target)}{mode}{parts})"


def _architecture(architecture: s.Architecture) -> str:
    given = [_string(architecture.host)] if architecture.host else []
    given += [f"{name} = {_literal(value)}" for name, value in architecture.parameters]
    known = architecture.name in ("brokerscope", "integrated")
    name = architecture.name.upper() if known else f"ARCHITECTURE {architecture.name}"
    return f"{name}({', '.join(given)})"


def _predicate(predicate: s.Predicate) -> str:
    match predicate:
        case s.AllOf(parts):
            return " AND ".join(map(_part, parts))
        case s.AnyOf(parts):
            return " OR ".join(map(_part, parts))
        case s.Negation(part):
            return f"NOT {_part(part)}"
        case s.RoleTest(role):
            return f"IS ROLE({role})"
        case s.InterfaceTest(half):
            return f"HAS {_half(half)}"
        case s.AttributeTest(name, operator, value):
            return f"{name} {operator.upper()} {_literal(value)}"
        case s.Call():
            return _call(predicate)


def _part(predicate: s.Predicate) -> str:
    text = _predicate(predicate)
    return f"({text})" if isinstance(predicate, s.AllOf | s.AnyOf) else text


def _reference(reference: s.Reference) -> str:
    special = reference.path in ((s.SELF,), (s.TRIGGER,))
    name = reference.name if special else "::".join(map(_name, reference.path))
    return "MEMBERS(" * reference.members + name + ")" * reference.members


def _name(name: str) -> str:
    return name if is_name(name) else _string(name)


def _code(code: s.Call) -> str:
    if code.quoted:
        return _string(code.name)
    return _call(code) if code.arguments else code.name


def _call(call: s.Call) -> str:
    return f"{call.name}({', '.join(map(_value, call.arguments))})"


def _value(value: Any) -> str:
    return value.name if isinstance(value, s.Name) else _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return _string(value) if isinstance(value, str) else repr(value)


def _string(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


_TIGHTNESS = {"+": 1, "-": 1, "*": 2, "/": 2}


def _expression(expression: expressions.Expression, tightness: int = 0) -> str:
    match expression:
        case Attribute(name):
            return name
        case ConstantTerm(value):
            return _literal(value)
        case Arithmetic(sign, left, right):
            own = _TIGHTNESS[sign]
            text = f"{_expression(left, own)} {sign} {_expression(right, own + 1)}"
            return f"({text})" if own < tightness else text
        case expressions.Call(function, arguments):
            return f"{function}({', '.join(map(_expression, arguments))})"
    raise AssertionError(expression)
