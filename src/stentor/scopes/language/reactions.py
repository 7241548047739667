"""What follows, in brokers, of what has happened to a graph with UPDATE rules.

Of a definition with rules, brokers keep the statements that have made it (`UpdateData`). From these
and the graph as it stands, the deployment is made again of which the rules are a part. An
`Automation` reacts in it, and what has changed then is a change of the graph.

Components that have triggered a rule are in that deployment while it reacts. Members that a rule
adds are taken in by a membership rule that asks for their name, so that all other rules go on to
apply to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stentor.model.codec import decode
from stentor.scopes.definition import Change, Record, UpdateData, difference, graph_of, records_of
from stentor.scopes.happenings import Happened
from stentor.scopes.language.automation import Automation, Happening
from stentor.scopes.language.parser import parse
from stentor.scopes.language.standing import Standing


def reactions(records: Mapping[str, Record], happened: Happened) -> tuple[Change, list[str]]:
    """What follows of what has happened, and what could not be done."""
    graph = graph_of(records)
    deployment = Standing(graph, assume=False)
    for record in records.values():
        if isinstance(record, UpdateData):
            deployment.run(parse(";\n".join(record.statements)))
    deployment.adopt()
    strangers = [party for party in _parties(happened) if party[0] not in graph]
    for name, attributes in strangers:
        graph.add_component(name, attributes=attributes)
    automation = Automation(deployment)
    before = set(deployment.instances)
    for data, scopes in happened.seen:
        seen = frozenset(scopes)
        automation.happened(Happening("pub", happened.publisher[0], decode(data), seen=seen))
    seen = frozenset({*happened.scopes, *(deployment.instances.keys() - before)})
    for data, consumers in happened.consumed:
        for name, _ in consumers:
            automation.happened(Happening("con", name, decode(data), seen=seen))
    for name, _ in strangers:
        graph.remove_component(name)
    return difference(records, records_of(graph)), list(automation.reports)


def _parties(happened: Happened) -> Iterator[tuple[str, dict[str, object]]]:
    known = dict([happened.publisher])
    for _, consumers in happened.consumed:
        known |= dict(consumers)
    yield from known.items()
