"""What brokers can carry out of a scope graph, and why they refuse the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stentor.errors import InvalidScopeGraph
from stentor.scopes.definition import ComponentData, EdgeData, Record, RuleData, ScopeData
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.mappings import is_registered
from stentor.scopes.policies import Chain, Custom, Kind, Only, Policy


def check_references(records: Mapping[str, Record], gone: Iterable[Record]) -> None:
    """Raise if something is left that names a scope or component that has gone."""
    lost = {record.key for record in gone if record.key not in records}
    lost = {key for key in lost if key.startswith(("scope ", "component "))}
    for record in records.values() if lost else ():
        names: tuple[str, ...] = ()
        if isinstance(record, EdgeData):
            parent, child = record.parent, record.child
            names = f"scope {parent}", f"scope {child}", f"component {child}"
        elif isinstance(record, RuleData):
            names = (f"scope {record.scope}",)
        for name in names:
            if name in lost:
                raise InvalidScopeGraph(
                    f"the {record.key} is left without the {name}; drop it as well, or keep both"
                )


def check_live(graph: ScopeGraph, records: Iterable[Record]) -> None:
    """Raise if brokers cannot do what the graph asks for. Nothing is done only in part."""
    if graph.duplicates != "version" or not graph.self_delivery:
        raise InvalidScopeGraph(
            "brokers deliver each version once, and publishers hear themselves; leave `duplicates` "
            "and `self_delivery` as they are"
        )
    if graph.default_scope is not None:
        raise InvalidScopeGraph(
            f"brokers have no default scope, as {graph.default_scope!r} would be: all who are in "
            "no scope hear each other; leave `default_scope` out, or take them in by a rule"
        )
    for record in records:
        if isinstance(record, ScopeData | ComponentData):
            for kind, policy in graph.node(record.id).policies.items():
                check_policy(graph, record.id, kind, policy)
        elif isinstance(record, RuleData | EdgeData):
            scope = record.scope if isinstance(record, RuleData) else record.parent
            for kind, policy in graph.node(scope).policies.items():
                check_policy(graph, scope, kind, policy)
            for data in (record.terms.up, record.terms.down):
                if data is not None and data[0] == "function" and not is_registered(data[1]):
                    raise InvalidScopeGraph(
                        f"this broker knows no mapping {data[1]!r}; call register_mapping in the "
                        "program that runs it, or write the mapping as assignments"
                    )


def check_policy(graph: ScopeGraph, id: str, kind: Kind, policy: Policy | Custom) -> None:
    """Raise if brokers cannot do what a policy asks for."""
    if kind is Kind.PUBLISHING or not graph.rules.of_scope(id):
        return
    names = {Only: "names", Chain: "handlers"}.get(type(policy))
    for name in getattr(policy, names) if names else ():
        if name not in graph:
            raise InvalidScopeGraph(
                f"the {kind} policy of {id!r} chooses {name!r}, which could only be a member by a "
                "rule, and nobody knows such members by name; name it in the graph"
            )
