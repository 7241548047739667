"""From what is written to what the model works with: filters, interfaces, mappings, policies.

Conditions follow the rules of filters: an attribute that is missing satisfies no comparison, and no
negation of one either. Where a condition is about attributes and roles alone it *is* a filter, so
that brokers can keep it as a membership rule; tests of interfaces and registered tests are asked of
a node when a selection is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from stentor.errors import InvalidScopeGraph
from stentor.filters import Filter
from stentor.filters.addressing import channel, subject
from stentor.filters.expression import And, Atom, Expression, Not, Or
from stentor.scopes.interfaces import EVERYTHING, NOTHING, Half, Interface, typed
from stentor.scopes.language import syntax as s
from stentor.scopes.mappings import ContentMapping, FunctionMapping, NotificationMapping
from stentor.scopes.nodes import Node
from stentor.scopes.policies import Custom, Policy, policy_of

#: What a name alone stands for in an interface: a scope chooses by its attribute `filter-model`.
FILTER_MODELS: Final[dict[str, Callable[[str], Filter]]] = {
    "types": typed,
    "channels": channel,
    "subjects": subject,
}
MODEL: Final = "filter-model"

#: Conditions of one's own: what a node says of itself, and the arguments.
Test: TypeAlias = Callable[..., Any]
_tests: Final[dict[str, Test]] = {}


def register_test(name: str, test: Test) -> None:
    """Make a condition known: `WHERE near("A3")`, or a measure: `TOP(near("A3"), 2)`.

    >>> register_test("doc-tall", lambda facts, least: facts.get("height", 0) >= least)
    """
    _tests[name] = test


def register_filter_model(name: str, meaning: Callable[[str], Filter]) -> None:
    """Make another reading of names in interfaces known: `SET filter-model = "…"`."""
    FILTER_MODELS[name] = meaning


def called(call: s.Call) -> Callable[[Mapping[str, Any]], Any]:
    """A registered function of what a node says of itself, with its arguments."""
    test = _tests.get(call.name)
    if test is None:
        raise InvalidScopeGraph(
            f"there is no condition {call.name!r}; there are {', '.join(_tests) or 'none'}; "
            "add it with register_test"
        )
    given = arguments_of(call)
    return lambda facts: test(facts, *given)


def arguments_of(call: s.Call) -> tuple[Any, ...]:
    return tuple(each.name if isinstance(each, s.Name) else each for each in call.arguments)


# -- conditions


def content_filter(predicate: s.Predicate) -> Filter:
    """A condition about the content of notifications, as a filter.

    >>> from stentor.scopes.language.syntax import AttributeTest
    >>> content_filter(AttributeTest("price", ">", 5))
    Filter('price > 5')
    """
    expression = _expression(predicate)
    if expression is None or _has_roles(predicate):
        raise InvalidScopeGraph(
            "a filter is about the content of notifications; tests of roles and interfaces, and "
            "registered ones, belong into WHERE"
        )
    return Filter.of_expression(expression)


def facts_filter(predicate: s.Predicate) -> Filter | None:
    """A condition about components, as a filter on their facts; None if it asks for more."""
    expression = _expression(predicate)
    return None if expression is None else Filter.of_expression(expression)


def condition(predicate: s.Predicate | None) -> Callable[[Node], bool]:
    """Whether a node satisfies a condition, as a function."""
    if predicate is None:
        return lambda node: True
    plain = facts_filter(predicate)
    if plain is not None:
        return lambda node: plain.matches(node.facts)
    match predicate:
        case s.AllOf(parts):
            each_part = [condition(each) for each in parts]
            return lambda node: all(part(node) for part in each_part)
        case s.AnyOf(parts):
            some_part = [condition(each) for each in parts]
            return lambda node: any(part(node) for part in some_part)
        case s.Negation(part):
            inner = condition(part)
            return lambda node: not inner(node)
        case s.InterfaceTest(half):
            return lambda node: _provides(node, half)
        case s.Call():
            test = called(predicate)
            return lambda node: bool(test(node.facts))
    raise AssertionError(predicate)


def _provides(node: Node, asked: s.Half) -> bool:
    """Whether the interface of a node covers all that is asked for."""
    own = node.interface.input if asked.direction == "input" else node.interface.output
    if not own:
        return False
    union = own[0]
    for each in own[1:]:
        union = union | each
    wanted = half_of(asked.filters, str(node.attributes.get(MODEL, "types")))
    return all(union.covers(each) for each in wanted or ())


def _expression(predicate: s.Predicate) -> Expression | None:
    match predicate:
        case s.AttributeTest(name, operator, value):
            return Atom(name, operator, (value,))
        case s.RoleTest(role):
            return Atom("roles", "has", (role,))
        case s.Negation(part):
            inner = _expression(part)
            return None if inner is None else Not(inner)
        case s.AllOf(parts) | s.AnyOf(parts):
            found = [_expression(each) for each in parts]
            known = tuple(each for each in found if each is not None)
            if len(known) < len(found):
                return None
            return And(known) if isinstance(predicate, s.AllOf) else Or(known)
    return None


def _has_roles(predicate: s.Predicate) -> bool:
    match predicate:
        case s.RoleTest():
            return True
        case s.Negation(part):
            return _has_roles(part)
        case s.AllOf(parts) | s.AnyOf(parts):
            return any(map(_has_roles, parts))
    return False


# -- interfaces


def half_of(filters: Iterable[s.WrittenFilter], model: str = "types") -> Half:
    """The filters of one half; no filter lets nothing pass, `1` makes all others superfluous."""
    found: dict[Filter, None] = {}
    for each in filters:
        match each:
            case s.Constant(True):
                return EVERYTHING
            case s.Constant():
                continue
            case s.Kind(name):
                found[_model(model)(name)] = None
            case s.Topic(path):
                found[subject(".".join(path))] = None
            case s.Text(text):
                found[Filter(text)] = None
            case s.Content(predicate):
                found[content_filter(predicate)] = None
    return tuple(found) or NOTHING


def interface_of(halves: Mapping[str, tuple[s.WrittenFilter, ...]], model: str) -> Interface:
    """An interface; a direction that is not there is omitted."""
    given = {direction: half_of(filters, model) for direction, filters in halves.items()}
    return Interface(given.get("input"), given.get("output"))


def halves_of(interfaces: s.Interfaces | None) -> dict[str, tuple[s.WrittenFilter, ...]]:
    """What an INTERFACES clause says, by direction."""
    found: dict[str, tuple[s.WrittenFilter, ...]] = {}
    for half in () if interfaces is None else interfaces.halves:
        found[half.direction] = (*found.get(half.direction, ()), *half.filters)
    return found


def _model(name: str) -> Callable[[str], Filter]:
    if name not in FILTER_MODELS:
        raise InvalidScopeGraph(
            f"there is no filter model {name!r}; there are {', '.join(FILTER_MODELS)}"
        )
    return FILTER_MODELS[name]


# -- mappings and policies


def notification_mapping(by: s.Changes | s.Call) -> NotificationMapping:
    """What a MAP clause does to a notification."""
    if isinstance(by, s.Changes):
        return ContentMapping(by.set, by.keep, by.drop)
    if by.arguments:
        raise InvalidScopeGraph(f"the mapping {by.name} takes no arguments")
    mapping = FunctionMapping(by.name)
    _ = mapping.call  # an error now rather than with the first notification
    return mapping


def policy(code: s.Call) -> Policy | Custom:
    """The policy that a POLICY clause names."""
    return policy_of(code.name, arguments_of(code))
