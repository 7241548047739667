"""Scope graphs of brokers that run: `stentor scopes deploy`, `show`, `join`, `leave`, `alter`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from stentor.cli.command import Argument, Option
from stentor.cli.options import BrokerArgument, Connecting, JsonOption, asks
from stentor.errors import InvalidScopeGraph, Overloaded, ScopesElsewhere, StentorError
from stentor.notation.counts import counted

#: Bytes of a graph that one question carries.
PART: Final = 48 * 1024
#: How often a change is made anew, as somebody else has changed the graph meanwhile.
ATTEMPTS: Final = 8

if TYPE_CHECKING:
    from stentor.cli.operator import Operator
    from stentor.scopes import ScopeGraph


@asks
def deploy(
    file: Annotated[Path, Argument(metavar="FILE", help="The scope graph; - is standard input.")],
    how: BrokerArgument,
    take_over: Annotated[
        bool,
        Option(
            "--take-over",
            help="Order changes here from now on, because the broker that did so is gone for good.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Give running brokers the scope graph of a file.

    All brokers of the overlay get it. What has not changed goes on as it was: nothing in flight is
    lost, and nobody sees what was not meant for them when it was published. Where there are grants,
    this takes one with `scopes = true`. One broker orders all changes; the command finds it by
    itself.

    \b
    Examples:
      stentor scopes deploy market.scopes 127.0.0.1:7411
    """
    from stentor.cli.running import run
    from stentor.scopes.definition import Change, encode, records_of

    graph = _graph(str(file))
    data = encode(Change(list(records_of(graph).values())))
    found = run(lambda: _deploy(how, data, take_over=take_over))
    _print_change(found, "deployed", json=json)


@asks
def show(
    how: BrokerArgument,
    json: JsonOption = False,
) -> None:
    """Show the scope graph as the brokers have it now.

    All brokers of the overlay are asked for their members, and for how many of the events published
    there have crossed each edge.

    \b
    Examples:
      stentor scopes show 127.0.0.1:7411
    """
    from stentor.cli.running import run

    found = run(lambda: _collect(how))
    if json:
        from stentor.cli.json_forms import print_json

        print_json(found)
    else:
        sys.stdout.write("\n".join(_lines(found)) + "\n")


@asks
def join(
    member: Annotated[str, Argument(metavar="MEMBER", help="A component, or a scope.")],
    scope: Annotated[str, Argument(metavar="SCOPE", help="The scope that it becomes a member of.")],
    how: BrokerArgument,
    json: JsonOption = False,
) -> None:
    """Make a component or a scope a member of a scope.

    A name that the graph does not have yet is a component that joins when it connects. From then on
    it is what the graph says it is: rules no longer take it in by its attributes, and a note says
    so. This takes the same right as `deploy`; so do `leave` and `alter`.

    \b
    Examples:
      stentor scopes join auditor acme 127.0.0.1:7411
    """

    def joined(graph: ScopeGraph) -> None:
        if scope in graph and member in graph and scope in graph.parents(member):
            raise InvalidScopeGraph(f"{member!r} is a member of {scope!r} already")
        graph.scope(scope)
        if member not in graph:
            graph.add_component(member)
        graph.join(member, scope)

    _change(how, joined, json=json)


@asks
def leave(
    member: Annotated[str, Argument(metavar="MEMBER", help="A component, or a scope.")],
    scope: Annotated[str, Argument(metavar="SCOPE", help="The scope that it is to leave.")],
    how: BrokerArgument,
    json: JsonOption = False,
) -> None:
    """Have a component or a scope leave a scope.

    A member that a rule takes in cannot leave by name: alter the rule.

    \b
    Examples:
      stentor scopes leave auditor acme 127.0.0.1:7411
    """

    def left(graph: ScopeGraph) -> None:
        ruled = {rule.label for rule in graph.rules.of_scope(scope)} if scope in graph else set()
        if ruled & graph.edge(member, scope).labels:
            raise InvalidScopeGraph(
                f"a rule of {scope!r} takes {member!r} in; alter the rule, by stentor scopes alter"
            )
        graph.leave(member, scope)

    _change(how, left, json=json)


@asks
def alter(
    statements: Annotated[
        str,
        Argument(
            metavar="STATEMENTS",
            help="Statements in the scope graph language; - is standard input.",
        ),
    ],
    how: BrokerArgument,
    json: JsonOption = False,
) -> None:
    """Change scopes by statements of their language.

    ALTER and DROP change existing scopes; DEFINE and DEPLOY add others. All statements are carried
    out, or none.

    \b
    Examples:
      stentor scopes alter 'ALTER SCOPE acme INTERFACES OUTPUT(Quote)' 127.0.0.1:7411
      stentor scopes alter 'ALTER SCOPE acme ADD ALL FROM * WHERE audits = TRUE' 127.0.0.1:7411
      stentor scopes alter 'DROP SCOPE acme' 127.0.0.1:7411
    """
    from stentor.cli.scopes import text_of
    from stentor.scopes.language import alter as altered

    text = text_of("-") if statements == "-" else statements
    _change(how, lambda graph: altered(graph, text), json=json)


def _change(how: Connecting, change: Callable[[ScopeGraph], None], *, json: bool) -> None:
    from stentor.cli.exits import note
    from stentor.cli.running import run

    found, named = run(lambda: _changed(how, change))
    for name in named:
        note(
            f"the graph now names {name!r}: what it says of itself no longer counts, and no rule "
            "takes it in by that"
        )
    _print_change(found | {"named": named}, "changed", json=json)


def _print_change(found: dict[str, Any], done: str, *, json: bool) -> None:
    if json:
        from stentor.cli.json_forms import print_json

        print_json(found)
    else:
        sys.stdout.write(f"{found['broker']} has {done} it, as epoch {found['epoch']}\n")


async def _changed(
    how: Connecting, change: Callable[[ScopeGraph], None]
) -> tuple[dict[str, Any], list[str]]:
    """Change the graph as the broker has it that orders changes, unless somebody else is faster.

    With the components that the graph names from now on.
    """
    from stentor.cli.operator import Operator
    from stentor.scopes.definition import decode, difference, encode, graph_of, records_of

    for _ in range(ATTEMPTS):
        async with Operator(how) as operator:
            known = await operator.ask("scopes", how.timeout)
            if known["addresses"] and known["owner"] != known["broker"]:
                how = replace(how, addresses=tuple(known["addresses"]))
                continue
            if not known["owner"]:
                raise InvalidScopeGraph("there is no scope graph; deploy one with scopes deploy")
            records = {record.key: record for record in decode(known["graph"]).put}
            graph = graph_of(records)
            before = set(graph.nodes)
            change(graph)
            named = [id for id in graph.nodes if id not in before and not graph.node(id).is_scope]
            data = encode(difference(records, records_of(graph)))
            try:
                found = await _sent(operator, data, what="change", after=known["epoch"])
                return found, named
            except InvalidScopeGraph:
                if (await operator.ask("scopes", how.timeout))["epoch"] == known["epoch"]:
                    raise
    raise Overloaded(f"others changed the scope graph {ATTEMPTS} times meanwhile; try again")


def _graph(name: str) -> ScopeGraph:
    from stentor.cli.scopes import text_of
    from stentor.scopes.language import Deployment, compose
    from stentor.scopes.language.automation import automate
    from stentor.scopes.language.checks import check_for_brokers

    deployment = Deployment(assume=True)
    found = compose(name, text_of(name), text_of)
    found.deploy(deployment)
    check_for_brokers(found, deployment)
    automate(deployment)
    return deployment.graph


async def _deploy(how: Connecting, data: bytes, *, take_over: bool) -> Any:
    from stentor.cli.operator import Operator

    async with Operator(how) as operator:
        try:
            return await _sent(operator, data, take_over=take_over)
        except ScopesElsewhere:
            owner = await operator.ask("scopes", how.timeout)
            if not owner["addresses"]:
                raise
    async with Operator(replace(how, addresses=tuple(owner["addresses"]))) as operator:
        return await _sent(operator, data, take_over=False)


async def _sent(operator: Operator, data: bytes, *, what: str = "deploy", **options: Any) -> Any:
    """Have a broker deploy a graph, or a change of it, which is sent in parts."""
    *parts, last = [data[at : at + PART] for at in range(0, len(data), PART)]
    for part in parts:
        await operator.ask("scopes", None, **{what: part}, more=True)
    return await operator.ask("scopes", None, **{what: last}, **options)


async def _collect(how: Connecting) -> dict[str, Any]:
    """The graph of one broker, with the members and the traffic of all that can be asked."""
    from stentor.cli.operator import Operator
    from stentor.scopes.definition import UpdateData, decode, graph_of
    from stentor.scopes.drawing import policy_words
    from stentor.scopes.places import place_of_component, place_of_rule

    async with Operator(how) as first:
        own = await first.ask("scopes", how.timeout)
        answers, unreachable = [own], {}
        for broker in own["brokers"]:
            try:
                where = replace(how, addresses=tuple(broker["addresses"]))
                async with Operator(where) as operator:
                    answers.append(await operator.ask("scopes", how.timeout))
            except (StentorError, OSError) as error:
                unreachable[broker["broker"]] = str(error)
    members: dict[str, list[str]] = {}
    crossed: dict[tuple[str, str], int] = {}
    held: dict[str, int] = {}
    for answer in answers:
        for key, names in answer["members"].items():
            members.setdefault(key, []).extend(names)
        for scope, count in answer.get("held", {}).items():
            held[scope] = held.get(scope, 0) + count
        for child, parent, count in answer["crossed"]:
            crossed[child, parent] = crossed.get((child, parent), 0) + count
    records = {r.key: r for r in decode(own["graph"]).put} if own["graph"] else {}
    graph = graph_of(records)
    scopes = []
    for id, node in sorted(graph.nodes.items()):
        if not node.is_scope:
            continue
        rules = graph.rules.of_scope(id)
        inside = {c for c in node.children if not graph.nodes[c].is_scope}
        places = {place_of_component(c) for c in inside}
        places |= {place_of_rule(rule.scope, rule.label) for rule in rules}
        scopes.append(
            {
                "scope": id,
                "in": sorted(node.parents),
                "input": _half(node.interface.input),
                "output": _half(node.interface.output),
                "rules": [f"{rule.label}: {rule.where}" for rule in rules],
                "policies": {
                    str(kind): policy_words(policy) for kind, policy in node.policies.items()
                },
                "named": sorted(inside),
                "held": held.get(id, 0),
                "members": sorted({name for key in places for name in members.get(key, ())}),
                "entered": {
                    end: count for (end, scope), count in sorted(crossed.items()) if scope == id
                },
            }
        )
    return {
        "owner": own["owner"],
        "epoch": own["epoch"],
        "brokers": {answer["broker"]: answer["epoch"] for answer in answers},
        "unreachable": unreachable,
        "superseded": own["superseded"],
        "scopes": scopes,
        "rules": {
            each.definition: each.statements
            for each in records.values()
            if isinstance(each, UpdateData)
        },
        "in no scope": sorted(members.get("", ())),
    }


def _half(half: Any) -> str:
    if half is None:
        return "closed, as nothing is declared"
    return "closed" if not half else " or ".join(str(each) or "everything" for each in half)


def _lines(found: dict[str, Any]) -> list[str]:
    if not found["owner"]:
        return ["there is no scope graph; `stentor scopes deploy FILE ADDRESS` deploys one"]
    lines = [f"epoch {found['epoch']}, ordered by {found['owner']}"]
    behind = [b for b, epoch in found["brokers"].items() if epoch != found["epoch"]]
    lines += [f"{name} is at epoch {found['brokers'][name]}" for name in behind]
    lines += [f"{name} could not be asked: {why}" for name, why in found["unreachable"].items()]
    lines += found["superseded"]
    for scope in found["scopes"]:
        inside = f" in {', '.join(scope['in'])}" if scope["in"] else ""
        lines += ["", f"{scope['scope']}{inside}"]
        lines += [f"  input     {scope['input']}", f"  output    {scope['output']}"]
        lines += [f"  rule      {rule}" for rule in scope["rules"]]
        lines += [f"  policy    {kind}: {policy}" for kind, policy in scope["policies"].items()]
        lines.append(f"  members   {', '.join(scope['members']) or 'none is connected'}")
        away = [name for name in scope["named"] if name not in scope["members"]]
        if away:
            lines.append(f"  named     {', '.join(away)}")
        if scope["held"]:
            lines.append(f"  held      {counted(scope['held'], 'event')}")
        for end, count in scope["entered"].items():
            lines.append(f"  {count:<9} from {end.removeprefix('@')}")
    for definition, statements in found["rules"].items():
        lines += ["", f"rules of {definition}"]
        lines += [f"  {line}" for statement in statements for line in statement.split("\n")]
    if found["in no scope"]:
        lines += ["", f"in no scope: {', '.join(found['in no scope'])}"]
    return lines
