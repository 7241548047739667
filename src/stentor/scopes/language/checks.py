"""What is allowed and may still be meant otherwise: advice for administrators (05/4.2).

`warnings` looks at what is written, `findings` at the graph that comes of it. Neither changes what
a graph does. `check_for_brokers` raises, with its place, at what brokers do not carry out.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from stentor.errors import InvalidScopeGraph
from stentor.filters import Filter
from stentor.notation.document import near
from stentor.scopes.drawing import type_name
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import Half
from stentor.scopes.language import syntax as s
from stentor.scopes.language.composition import Composition
from stentor.scopes.language.deployment import Deployment
from stentor.scopes.live import check_policy
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.policies import Kind

#: Larger graphs are not looked through for what may be meant otherwise.
MAX_NODES: Final = 5_000
#: How many names that nothing has are told.
MAX_NAMES: Final = 20


def warnings(composition: Composition) -> Iterator[tuple[str, str]]:
    """What statements say that may surprise: places and words."""
    for each in composition.statements:
        statement = each.statement
        if isinstance(statement, s.DefineScope):
            for at, words in _of_definition(statement):
                yield each.source.place(at), words


def _of_definition(statement: s.DefineScope) -> Iterator[tuple[int, str]]:
    name = statement.name
    for clause in statement.clauses:
        if not isinstance(clause, s.Update):
            continue
        event = clause.event.kind
        for reaction in clause.reactions:
            creates = isinstance(reaction, s.Create)
            if creates and clause.condition is None and event in ("pub", "con"):
                words = f"every notification that matches creates one more {name}; IF limits that"
                yield clause.at, words
            elif isinstance(reaction, s.Alter) and event in _caused(reaction):
                yield clause.at, f"this reaction of {name} can cause the event that it waits for"


def _caused(reaction: s.Alter) -> set[str]:
    """The events that a reaction can bring about."""
    if not any(isinstance(each, s.Selection) for each in reaction.clauses):
        return set()
    return {"add": {"join"}, "del": {"leave"}}.get(reaction.mode, {"join", "leave"})


def check_for_brokers(composition: Composition, deployment: Deployment) -> None:
    """Raise at the place of something that brokers do not do, with the reason."""
    for each in composition.statements:
        for clause in getattr(each.statement, "clauses", ()):
            words = _not_done(each.statement, clause, deployment)
            if words is not None:
                raise InvalidScopeGraph(f"{each.source.place(clause.at)}: {words}")
    for id, node in deployment.graph.nodes.items():
        for kind, policy in node.policies.items():
            try:
                check_policy(deployment.graph, id, kind, policy)
            except InvalidScopeGraph as error:
                place = _place_of(composition, {id, node.name, node.definition}, kind)
                raise InvalidScopeGraph(f"{place}{error}") from None


def _not_done(statement: s.Statement, clause: s.Clause, deployment: Deployment) -> str | None:
    """Why brokers do not carry out a clause; None if they do."""
    match clause:
        case s.Update(event) if event.kind not in ("pub", "con"):
            return (
                f"brokers carry out UPDATE ON pub and con, and do not tell each other of "
                f"{event.kind} events; stentor.scopes.language.Automation does, in a program"
            )
        case s.Update() if not isinstance(statement, s.DefineScope):
            return (
                "brokers keep UPDATE rules with the definition; write them in DEFINE SCOPE, not "
                "in what is said of one instance"
            )
        case s.Maintain(when) if when not in ("once", "change"):
            unused = isinstance(statement, s.DefineScope) and not deployment.instances_of(
                statement.name
            )
            if not unused:
                return (
                    f"MAINTAIN {'EVERY' if when == 'every' else 'ON DEVIATION'} asks again as time "
                    "goes by, and brokers follow attributes as they change; write MAINTAIN ON "
                    "CHANGE, or deploy the file again when it is to be asked"
                )
    return None


def _place_of(composition: Composition, names: Container[str | None], kind: Kind) -> str:
    """Where a policy of a scope is written, the last counting, to be put before a message."""
    for each in reversed(composition.statements):
        match each.statement:
            case s.DefineScope(name):
                about = [name]
            case s.DefineComponent(about):
                pass
            case s.Deploy(definition, name):
                about = [name or definition.path[-1]]
            case s.Alter(target):
                about = [target.path[-1]]
            case _:
                continue
        if not any(name in names for name in about):
            continue
        for clause in each.statement.clauses:
            if isinstance(clause, s.Policy) and clause.kind == kind:
                return f"{each.source.place(clause.at)}: "
    return ""


def findings(deployment: Deployment) -> Iterator[str]:
    """What the graph shows that its administrator may not expect."""
    yield from _open_names(deployment)
    graph = deployment.graph
    if len(graph.nodes) > MAX_NODES:
        return
    for node in graph.nodes.values():
        yield from _isolated(graph, node)
        for edge in node.parents.values():
            yield from _shut(edge)
        yield from _second_ways(graph, node)


def _open_names(deployment: Deployment) -> Iterator[str]:
    missing = [(id, n) for id, each in deployment.instances.items() for n in sorted(each.open)]
    open_names = {name for _, name in missing}
    known = {*deployment.graph.nodes, *deployment.definitions} - open_names
    for id, name in missing[:MAX_NAMES]:
        # To look for a name that is alike takes long among very many.
        hint = near(name, sorted(known)) if len(known) < 500 else ";"
        yield (
            f"{id} has the member {name!r}, which nothing defines: it joins when a component of "
            "this name connects" + (f" ({hint[2:]})" if hint != ";" else "")
        )
    if len(missing) > MAX_NAMES:
        yield f"{len(missing) - MAX_NAMES:,} more members are not defined"


def _isolated(graph: ScopeGraph, node: Node) -> Iterator[str]:
    shut = not node.interface.input and not node.interface.output and not graph.open_by_default
    if shut and node.is_scope and node.parents:
        above = ", ".join(node.parents)
        yield f"nothing crosses between {node.id} and {above}: {node.id} has no INTERFACES"


def _shut(edge: Edge) -> Iterator[str]:
    """An interface whose filters have nothing in common with what the other end lets pass."""
    if edge.is_mapped:
        return
    base = edge.child.interface
    for word, own, imposed in (
        ("into", base.input, edge.imposed.input),
        ("out of", base.output, edge.imposed.output),
    ):
        if own and imposed and not _overlap(own, imposed):
            yield (
                f"nothing goes {word} {edge.child.id} in {edge.parent.id}: what it lets pass and "
                "what is imposed on it have nothing in common"
            )


def _overlap(one: Half, other: Half) -> bool:
    return any(_meet(a, b) for a in one or () for b in other or ())


def _meet(one: Filter, other: Filter) -> bool:
    """Whether anything is likely to match both: an event has one type, and those above it."""
    names = type_name(one), type_name(other)
    if names[0] is None or names[1] is None:
        return one.overlaps(other)
    a, b = (f"{each}." for each in names)
    return a.startswith(b) or b.startswith(a)


def _second_ways(graph: ScopeGraph, node: Node) -> Iterator[str]:
    parents = list(node.parents)
    if len(parents) < 2:
        return
    above = {each: graph.ancestors(each) for each in parents}
    for low in parents:
        for high in parents:
            if low != high and high in above[low]:
                yield (
                    f"{node.id} is a member of {low} and of {high} above it: what crosses between "
                    "them reaches it twice"
                )
    sides = [each for each in parents if not any(each in above[o] for o in parents if o != each)]
    if len(sides) > 1 and not node.is_scope and Kind.PUBLISHING not in node.policies:
        edges = [node.parents[each] for each in sides]
        together = any(above[a] & above[b] for i, a in enumerate(sides) for b in sides[i + 1 :])
        terms = {(e.selective, e.imposed, e.mapping) for e in edges}
        if together and len(terms) > 1:
            yield (
                f"{node.id} publishes into {' and '.join(sides)}, which meet above and treat it "
                "differently: what it publishes may overtake itself on the way"
            )
        elif not together and node.interface.output != () and len(terms) == 1:
            yield (
                f"what {node.id} publishes enters {' and '.join(sides)}; a publishing policy, or "
                "an interface on one of the edges, would choose"
            )
