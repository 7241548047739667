"""A scope graph as data: records that can be sent, stored, compared and put together again.

A graph is a set of records, each under a key of its own: scopes, components that it names, edges
that somebody has drawn, rules, and tables that mappings look things up in. A *change* puts some
records, in place of those with the same keys, and drops others. So the difference between two
graphs is a change, several changes after one another are one graph, and what a change costs is what
it touches. `apply` carries one out on a `ScopeGraph`.

Filters are texts, mappings and policies plain values. A function in Python is known by the name
under which it is registered with whoever carries the change out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, field

from stentor.errors import InvalidScopeGraph
from stentor.filters import Filter
from stentor.filters.expression import Arithmetic, Attribute, Constant
from stentor.scopes.expressions import Call, Expression
from stentor.scopes.graph import BY_DEFAULT, BY_HAND, ScopeGraph
from stentor.scopes.interfaces import EVERYTHING, Half, Interface
from stentor.scopes.mappings import (
    ContentMapping,
    EdgeMapping,
    FunctionMapping,
    NotificationMapping,
)
from stentor.scopes.membership import MembershipRule
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.policies import Custom, Kind, Policy

#: One half of an interface: texts of filters, or nil for omitted.
HalfData: TypeAlias = list[str] | None


class InterfaceData(Struct, array_like=True, frozen=True):
    """Both halves of an interface."""

    input: HalfData = None
    output: HalfData = None


class Terms(Struct, array_like=True, frozen=True):
    """What the two ends of an edge have put on it."""

    selective: InterfaceData = InterfaceData()
    imposed: InterfaceData = InterfaceData()
    up: list[Any] | None = None
    down: list[Any] | None = None


class _Record(Struct, array_like=True, frozen=True):
    pass


class ScopeData(_Record, tag="scope", frozen=True):
    """A scope, without its members."""

    id: str
    name: str = ""
    abstract: bool = False
    interface: InterfaceData = InterfaceData()
    everyone: InterfaceData = InterfaceData()
    attributes: dict[str, Any] = field(default_factory=dict)
    roles: list[str] = field(default_factory=list)
    policies: dict[str, list[Any]] = field(default_factory=dict)
    once: bool = False
    admits: str | None = None
    definition: str | None = None
    #: Whether a rule has made it.
    begun: bool = False

    @property
    def key(self) -> str:
        return f"scope {self.id}"


class ComponentData(_Record, tag="component", frozen=True):
    """A component that the graph names, and what is said of it."""

    id: str
    name: str = ""
    interface: InterfaceData = InterfaceData()
    attributes: dict[str, Any] = field(default_factory=dict)
    roles: list[str] = field(default_factory=list)
    policies: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"component {self.id}"


class EdgeData(_Record, tag="edge", frozen=True):
    """A membership that somebody has drawn; those that rules bring about are not among these."""

    child: str
    parent: str
    terms: Terms = Terms()

    @property
    def key(self) -> str:
        return f"edge {len(self.child)}:{self.child} {self.parent}"


class RuleData(_Record, tag="rule", frozen=True):
    """Who becomes a member by what they say of themselves."""

    scope: str
    label: str
    where: str
    terms: Terms = Terms()
    among: list[str] = field(default_factory=list)
    maintained: bool = True

    @property
    def key(self) -> str:
        return f"rule {len(self.scope)}:{self.scope} {self.label}"


class TableData(_Record, tag="table", frozen=True):
    """What mappings look up: rows by their keys."""

    name: str
    rows: list[tuple[Any, dict[str, Any]]]

    @property
    def key(self) -> str:
        return f"table {self.name}"


class UpdateData(_Record, tag="update", frozen=True):
    """A definition whose UPDATE rules brokers carry out; see `stentor.scopes.happenings`."""

    definition: str
    #: What defines it, and has changed that since: statements, one after the other.
    statements: list[str]
    #: The scopes in which rules that create another one are armed; None for all.
    scopes: list[str] | None = None
    #: For which publications something is to be done, and at which scopes.
    watches: list[WatchData] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"update {self.definition}"


class WatchData(Struct, array_like=True, frozen=True):
    """What one rule waits for."""

    #: Whether it is about who consumes a publication, rather than about the publication itself.
    consumed: bool
    #: Whether it creates a scope; else it is armed in those that there are.
    creates: bool
    #: Whether all that it does is to take in whoever has triggered it.
    joins: bool
    filters: list[str] = field(default_factory=list)
    #: What the publication is called in the condition, and that, as far as it says nothing of the
    #: scope itself.
    binds: str = ""
    condition: str = ""


class HandledData(_Record, tag="handled", frozen=True):
    """Up to which numbers it is known what brokers have said to rules, by their streams.

    Under "" is the number of the first moment at which there were any rules.
    """

    numbers: dict[str, int]

    @property
    def key(self) -> str:
        return HANDLED


class GraphData(_Record, tag="graph", frozen=True):
    """What holds for the whole graph."""

    open_by_default: bool = False
    default_scope: str | None = None
    duplicates: str = "version"
    self_delivery: bool = True
    leaf_only: bool = False

    @property
    def key(self) -> str:
        return "graph"


#: The key of what is known of that.
HANDLED: Final = "handled"
Record: TypeAlias = (
    ScopeData
    | ComponentData
    | EdgeData
    | RuleData
    | TableData
    | UpdateData
    | HandledData
    | GraphData
)


class Change(Struct, array_like=True, frozen=True):
    """Records that come or take the place of others, and keys of those that go."""

    put: list[Record] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.put or self.drop)


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Change)
#: In which order records are put, so that each finds what it names; they are dropped in reverse.
_ORDER: Final = (
    *(GraphData, TableData, ScopeData, ComponentData, EdgeData, RuleData),
    *(UpdateData, HandledData),
)


def encode(change: Change) -> bytes:
    return _encoder.encode(change)


def decode(data: bytes) -> Change:
    """The change that was encoded; `InvalidScopeGraph` if these bytes are none.

    >>> decode(encode(Change([ScopeData("market")], ["scope old"]))).drop
    ['scope old']
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
        raise InvalidScopeGraph(f"this is not a change of a scope graph: {error}") from None


# -- from a graph


def records_of(graph: ScopeGraph) -> dict[str, Record]:
    """All records of a graph, by their keys.

    >>> g = ScopeGraph()
    >>> g.create_scope("market")
    >>> g.add_component("ticker"); g.join("ticker", "market")
    >>> sorted(records_of(g))
    ['component ticker', 'edge 6:ticker market', 'graph', 'scope market']
    """
    found: list[Record] = [
        GraphData(
            graph.open_by_default,
            graph.default_scope,
            graph.duplicates,
            graph.self_delivery,
            graph.leaf_only,
        )
    ]
    found += [
        TableData(name, [(k, dict(r)) for k, r in t.items()]) for name, t in graph.tables.items()
    ]
    for node in graph.nodes.values():
        if node.is_scope:
            found.append(_scope_data(node))
        else:
            found.append(
                ComponentData(
                    node.id,
                    "" if node.name == node.id else node.name,
                    _interface_data(node.interface),
                    dict(node.attributes),
                    sorted(node.roles),
                    _policies_data(node),
                )
            )
    for node in graph.nodes.values():
        for edge in (*node.parents.values(), *node.groups.values()):
            ruled = {rule.label for rule in graph.rules.of_scope(edge.parent.id)}
            if edge.labels - ruled - {BY_DEFAULT}:
                found.append(EdgeData(node.id, edge.parent.id, _edge_terms(edge)))
    found += [
        RuleData(r.scope, r.label, str(r.where), _rule_terms(r), list(r.among), r.maintained)
        for r in graph.rules
    ]
    found += graph.automation.values()
    return {record.key: record for record in found}


def difference(before: Mapping[str, Record], after: Mapping[str, Record]) -> Change:
    """What has to change so that one graph becomes another.

    >>> market, world = ScopeData("market"), ScopeData("world")
    >>> difference({market.key: market}, {world.key: world})
    Change(put=[ScopeData(id='world', name='', abstract=False, interface=InterfaceData(input=None, \
output=None), everyone=InterfaceData(input=None, output=None), attributes={}, roles=[], \
policies={}, once=False, admits=None, definition=None, begun=False)], drop=['scope market'])
    """
    return Change(
        [record for key, record in after.items() if before.get(key) != record],
        [key for key in before if key not in after],
    )


def continued(before: Mapping[str, Record], after: Mapping[str, Record]) -> dict[str, Record]:
    """The records of another graph, with what rules have begun that are the same in both."""
    scopes = {
        record.id
        for key, record in before.items()
        if isinstance(record, ScopeData) and record.begun and key not in after
        if f"update {record.definition}" in after
        if after[f"update {record.definition}"] == before.get(f"update {record.definition}")
    }
    ends = {r.id for r in after.values() if isinstance(r, ScopeData | ComponentData)} | scopes

    def goes_on(record: Record) -> bool:
        match record:
            case HandledData():
                return True
            case ScopeData(id=scope) | RuleData(scope=scope):
                return scope in scopes
            case EdgeData(child=child, parent=parent):
                return not scopes.isdisjoint((child, parent)) and {child, parent} <= ends
        return False

    return {**{key: record for key, record in before.items() if goes_on(record)}, **after}


def _scope_data(node: Node) -> ScopeData:
    return ScopeData(
        node.id,
        "" if node.name == node.id else node.name,
        node.abstract,
        _interface_data(node.interface),
        _interface_data(node.everyone),
        dict(node.attributes),
        sorted(node.roles),
        _policies_data(node),
        node.once,
        None if node.admits is None else str(node.admits),
        node.definition,
        node.begun,
    )


def _half_data(half: Half) -> HalfData:
    return None if half is None else [str(each) for each in half]


def _interface_data(interface: Interface) -> InterfaceData:
    return InterfaceData(_half_data(interface.input), _half_data(interface.output))


def _edge_terms(edge: Edge) -> Terms:
    return _terms(edge.selective, edge.imposed, edge.mapping)


def _rule_terms(rule: MembershipRule) -> Terms:
    return _terms(rule.selective, rule.imposed, rule.mapping)


def _terms(selective: Interface, imposed: Interface, mapping: EdgeMapping) -> Terms:
    return Terms(
        _interface_data(selective),
        _interface_data(imposed),
        _mapping_data(mapping.up),
        _mapping_data(mapping.down),
    )


def _mapping_data(mapping: NotificationMapping | None) -> list[Any] | None:
    if mapping is None:
        return None
    if isinstance(mapping, FunctionMapping):
        if not isinstance(mapping.function, str):
            raise InvalidScopeGraph(
                f"the mapping {mapping.function!r} has no name by which brokers could know it; "
                "register it with register_mapping, and use its name"
            )
        return ["function", mapping.function]
    pairs = [[name, _expression_data(each)] for name, each in mapping.set]
    keep = None if mapping.keep is None else list(mapping.keep)
    return ["content", pairs, keep, list(mapping.drop)]


def _expression_data(expression: Expression) -> list[Any]:
    match expression:
        case Attribute(name):
            return ["attribute", name]
        case Constant(value):
            return ["constant", value]
        case Arithmetic(operator, left, right):
            return ["arithmetic", operator, _expression_data(left), _expression_data(right)]
        case Call(function, arguments):
            return ["call", function, *map(_expression_data, arguments)]
    raise AssertionError(expression)


def _policies_data(node: Node) -> dict[str, list[Any]]:
    return {str(kind): _policy_data(policy) for kind, policy in node.policies.items()}


def _policy_data(policy: Policy | Custom) -> list[Any]:
    values = (getattr(policy, name) for name in policy.__struct_fields__)
    return [type(policy).__name__, *(_filter_data(value) for value in values)]


def _filter_data(value: Any) -> Any:
    if isinstance(value, Filter):
        return {"filter": str(value)}
    return list(value) if isinstance(value, tuple) else value


# -- to a graph


def new_graph(records: Mapping[str, Record]) -> ScopeGraph:
    """An empty graph, with what the records say of the whole."""
    found = records.get("graph", GraphData())
    assert isinstance(found, GraphData)
    graph = ScopeGraph(
        open_by_default=found.open_by_default,
        duplicates=found.duplicates,
        self_delivery=found.self_delivery,
        leaf_only=found.leaf_only,
    )
    graph.default_scope = found.default_scope
    return graph


def ordered(records: Iterable[Record]) -> list[Record]:
    """Records in the order in which each finds what it names."""
    return sorted(records, key=lambda record: _ORDER.index(type(record)))


def graph_of(records: Mapping[str, Record]) -> ScopeGraph:
    """The graph that has these records.

    >>> g = ScopeGraph()
    >>> g.create_scope("market"); g.add_component("ticker"); g.join("ticker", "market")
    >>> records_of(graph_of(records_of(g))) == records_of(g)
    True
    """
    graph = new_graph(records)
    for record in ordered(records.values()):
        put(graph, record)
    return graph


def put(graph: ScopeGraph, record: Record) -> None:
    """A record comes, or takes the place of the one with the same key."""
    match record:
        case GraphData():
            pass  # `new_graph` has seen to it
        case UpdateData() | HandledData():
            graph.automation[record.key] = record
        case TableData():
            graph.tables[record.name] = dict(record.rows)
        case ScopeData():
            _put_scope(graph, record)
        case ComponentData():
            if record.id not in graph:
                graph.add_component(record.id, name=record.name)
            elif graph.node(record.id).is_scope:
                raise InvalidScopeGraph(f"{record.id!r} is a scope and cannot be a component")
            graph.set_interface(record.id, interface_of(record.interface))
            graph.set_attributes(record.id, record.attributes, roles=record.roles)
            _put_policies(graph, record.id, record.policies)
        case EdgeData():
            graph.join(record.child, record.parent, **_terms_of(record.terms))
        case RuleData():
            if any(each.label == record.label for each in graph.rules.of_scope(record.scope)):
                graph.remove_rule(record.scope, record.label)
            graph.add_rule(rule_of(record))


def drop(graph: ScopeGraph, record: Record) -> None:
    """A record goes."""
    match record:
        case TableData():
            graph.tables.pop(record.name, None)
        case ScopeData():
            graph.destroy_scope(record.id, force=True)
        case ComponentData():
            graph.remove_component(record.id)
        case EdgeData():
            if record.child in graph and record.parent in graph:
                graph.leave(record.child, record.parent, label=BY_HAND)
        case RuleData():
            if record.scope in graph:
                graph.remove_rule(record.scope, record.label)
        case UpdateData() | HandledData():
            graph.automation.pop(record.key, None)
        case GraphData():
            pass


def _put_scope(graph: ScopeGraph, record: ScopeData) -> None:
    if record.id not in graph:
        graph.create_scope(record.id, name=record.name, abstract=record.abstract)
    node = graph.scope(record.id)
    if node.abstract != record.abstract:
        raise InvalidScopeGraph(
            f"{record.id!r} is {'' if node.abstract else 'not '}abstract and stays so; destroy it "
            "and create it again"
        )
    graph.set_interface(record.id, interface_of(record.interface))
    graph.set_everyone(record.id, interface_of(record.everyone))
    graph.set_attributes(record.id, record.attributes, roles=record.roles)
    graph.set_once(record.id, record.once)
    node.admits = None if record.admits is None else Filter(record.admits)
    node.definition, node.begun = record.definition, record.begun
    _put_policies(graph, record.id, record.policies)


def _put_policies(graph: ScopeGraph, id: str, policies: Mapping[str, list[Any]]) -> None:
    wanted = {Kind(kind): policy_from(data) for kind, data in policies.items()}
    held = graph.node(id).policies
    for kind in Kind:
        if held.get(kind) != wanted.get(kind):
            graph.set_policy(id, kind, wanted.get(kind))


def rule_of(record: RuleData) -> MembershipRule:
    terms = _terms_of(record.terms)
    return MembershipRule(
        record.scope,
        Filter(record.where),
        record.label,
        terms["selective"],
        terms["imposed"],
        terms["mapping"],
        tuple(record.among),
        record.maintained,
    )


def interface_of(data: InterfaceData) -> Interface:
    return Interface(_half_of(data.input), _half_of(data.output))


def _half_of(data: HalfData) -> Half:
    if data == [""]:
        return EVERYTHING
    return None if data is None else tuple(map(Filter, data))


def _terms_of(terms: Terms) -> dict[str, Any]:
    return {
        "selective": interface_of(terms.selective),
        "imposed": interface_of(terms.imposed),
        "mapping": EdgeMapping(_mapping_of(terms.up), _mapping_of(terms.down)),
    }


def _mapping_of(data: list[Any] | None) -> NotificationMapping | None:
    match data:
        case None:
            return None
        case ["function", str(name)]:
            return FunctionMapping(name)
        case ["content", list(pairs), keep, list(gone)]:
            return ContentMapping(
                tuple((str(name), _expression_of(each)) for name, each in pairs),
                None if keep is None else tuple(keep),
                tuple(gone),
            )
    raise InvalidScopeGraph(f"{data!r} is not a mapping")


def _expression_of(data: Any) -> Expression:
    match data:
        case ["attribute", str(name)]:
            return Attribute(name)
        case ["constant", value]:
            return Constant(value)
        case ["arithmetic", str(operator), left, right]:
            found: Any = Arithmetic(operator, _expression_of(left), _expression_of(right))  # type: ignore[arg-type]
            return found  # type: ignore[no-any-return]
        case ["call", str(function), *arguments]:
            return Call(function, tuple(map(_expression_of, arguments)))
    raise InvalidScopeGraph(f"{data!r} is not an expression")


def policy_from(data: list[Any]) -> Policy | Custom:
    """The policy that was written so."""
    classes: dict[str, Any] = {each.__name__: each for each in (*Policy.__args__, Custom)}
    try:
        return classes[data[0]](*map(_value_of, data[1:]))  # type: ignore[no-any-return]
    except (KeyError, IndexError, TypeError):
        raise InvalidScopeGraph(f"{data!r} is not a policy") from None


def _value_of(value: Any) -> Any:
    match value:
        case {"filter": str(text)}:
            return Filter(text)
        case list():
            return tuple(value)
    return value
