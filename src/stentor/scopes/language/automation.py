"""Scopes that change themselves: UPDATE rules, when something happens that their scope can see.

A rule waits for an event, asks a condition, and creates or alters scopes (05/4.6). What a rule sees
is bounded by its scope: publications that are visible in it, consumption of these, changes of
interfaces of components that are visible to it, edges of scopes that are. Rules that create a scope
are armed where the definition belongs: in its superscopes, or in the default scope, or anywhere if
there is neither; all others in each instance.

What a reaction changes may be an event again. Such events have a depth, and beyond `max_depth`
nothing more follows from them; that, and every reaction that failed, is in `reports`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from stentor.errors import InvalidScopeGraph, StentorError, UnknownScope
from stentor.filters import Filter
from stentor.model import Notification
from stentor.scopes.crossing import Interests
from stentor.scopes.definition import UpdateData, WatchData
from stentor.scopes.dissemination import Delivery
from stentor.scopes.interfaces import passes
from stentor.scopes.language import syntax as s
from stentor.scopes.language.deployment import Deployment
from stentor.scopes.language.description import Description
from stentor.scopes.language.placement import Instance
from stentor.scopes.language.printer import format_statement
from stentor.scopes.language.selection import DEFINITIONS, chosen
from stentor.scopes.language.translation import MODEL, arguments_of, facts_filter, half_of

#: How many reactions to reactions there may be, and how many scopes rules may create.
MAX_DEPTH: Final = 8
MAX_CREATED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that rules may wait for."""

    kind: str
    trigger: str
    notification: Notification | None = None
    filter: Filter | None = None
    #: The scope of join and leave.
    scope: str = ""
    #: The scopes that see it; None: those to which the trigger, or the scope, is visible.
    seen: frozenset[str] | None = None
    arguments: tuple[Any, ...] = ()
    depth: int = 0


class Automation:
    """Carries out the UPDATE rules of a deployment.

    >>> from stentor.scopes.language import parse
    >>> d = Deployment(assume=True)
    >>> d.run(parse('''DEFINE SCOPE floor AS ALL FROM ann, bob; DEPLOY floor;
    ...     DEFINE SCOPE talk AS SUPERSCOPE ALL FROM floor
    ...         UPDATE ON pub(n: Call) DO CREATE NOW INCLUDE COMPONENT'''))
    >>> _ = Automation(d).publish(Notification({"type": "Call"}), "ann")
    >>> d.graph.members("talk")
    ('ann',)
    """

    def __init__(self, deployment: Deployment, *, max_depth: int = MAX_DEPTH) -> None:
        self._deployment = deployment
        self._max_depth = max_depth
        #: What did not happen, and why.
        self.reports: deque[str] = deque(maxlen=1_000)
        self._ahead: deque[Happening] = deque()
        self._depth = 0
        self._busy = False
        #: Scopes that rules have made, which may be forgotten and begun anew in brokers.
        self._created = sum(
            any(map(creates, each.description.updates)) for each in deployment.instances.values()
        )
        deployment.graph.watchers.append(self._edge)

    # -- events

    def publish(
        self,
        notification: Notification | Mapping[str, Any],
        publisher: str,
        *,
        interests: Interests | None = None,
        now: float = 0.0,
    ) -> list[Delivery]:
        """Publish in the graph; rules see the publication, and then each consumption."""
        graph = self._deployment.graph
        outcome = graph.outcome(notification, publisher, interests=interests, now=now)
        deliveries = graph.settle(outcome, interests=interests, now=now)
        before = set(self._deployment.instances)
        versions: dict[Notification, set[str]] = {}
        for reached in outcome.reached:
            versions.setdefault(reached.notification, set()).add(reached.scope)
        for version, scopes in versions.items():
            self.happened(Happening("pub", publisher, version, seen=frozenset(scopes)))
        new = set(self._deployment.instances) - before
        seen = frozenset({each.scope for each in outcome.reached} | new)
        for delivery in deliveries:
            self.happened(Happening("con", delivery.consumer, delivery.notification, seen=seen))
        return deliveries

    def changed_interface(self, kind: str, component: str, filter: Filter) -> None:
        """A component subscribed (`sub`), unsubscribed, advertised (`adv`) or took that back."""
        self.happened(Happening(kind, component, filter=filter))

    def signal(self, name: str, *arguments: Any, component: str) -> None:
        """An event of one's own, which rules write as `name(arguments)`."""
        self.happened(Happening("call", component, scope=name, arguments=arguments))

    def happened(self, happening: Happening) -> None:
        """Let all rules react that see it, and then to what their reactions brought about."""
        self._ahead.append(happening)
        if self._busy:
            return
        self._busy = True
        try:
            while self._ahead:
                self._react(self._ahead.popleft())
        finally:
            self._busy = False
            self._depth = 0
            self._ahead.clear()

    def _edge(self, kind: str, child: str, parent: str) -> None:
        depth = self._depth + 1 if self._busy else 0
        if any(True for _ in self._rules(kind)):
            self.happened(Happening(kind, child, scope=parent, depth=depth))

    # -- reactions

    def _rules(self, kind: str) -> Iterator[tuple[str, Instance | None, Description, s.Update]]:
        """The rules for a kind of event: the definition, and the instance where it is armed."""
        deployment = self._deployment
        for name, description in list(deployment.definitions.items()):
            for rule in description.updates:
                if rule.event.kind == kind and creates(rule):
                    yield name, None, description, rule
        for instance in list(deployment.instances.values()):
            for rule in instance.description.updates:
                if rule.event.kind == kind and not creates(rule):
                    yield instance.definition, instance, instance.description, rule

    def _react(self, happening: Happening) -> None:
        if happening.depth > self._max_depth:
            self.reports.append(
                f"{happening.kind} of {happening.trigger}: more than {self._max_depth} reactions "
                "follow from each other"
            )
            return
        self._depth = happening.depth
        for definition, instance, description, rule in self._rules(happening.kind):
            try:
                if self._sees(definition, instance, happening) and self._matches(
                    rule, instance, description, happening
                ):
                    self._carry_out(definition, instance, rule, happening)
            except StentorError as error:
                self.reports.append(f"{definition}: {error}")

    def _sees(self, definition: str, instance: Instance | None, happening: Happening) -> bool:
        graph = self._deployment.graph
        scopes = [instance.id] if instance is not None else self.armed(definition)
        if scopes is None:
            return True
        if happening.seen is not None:
            return not happening.seen.isdisjoint(scopes)
        known = [each for each in (happening.trigger, happening.scope) if each in graph]
        if happening.kind in ("join", "leave"):
            known = known[-1:]
        return any(graph.visible(each, scope) for each in known for scope in scopes)

    def armed(self, definition: str) -> list[str] | None:
        """Where rules that create this scope watch; None: everywhere."""
        deployment = self._deployment
        found: list[str] = []
        for selection in deployment.definitions[definition].selections.values():
            if selection.superscopes:
                base = deployment.base(selection)
                found += chosen(selection, base, deployment.graph.nodes)
        if found:
            return found
        default = deployment.graph.default_scope
        return None if default is None else [default]

    def _matches(
        self,
        rule: s.Update,
        instance: Instance | None,
        description: Description,
        happening: Happening,
    ) -> bool:
        event = rule.event
        model = str(description.attributes.get(MODEL, "types"))
        if event.code is not None:
            if (event.code.name, arguments_of(event.code)) != (
                happening.scope,
                happening.arguments,
            ):
                return False
        elif happening.notification is not None:
            half = half_of(event.filters, model)
            if not passes(half, happening.notification, omitted=False):
                return False
        elif happening.filter is not None:
            wanted = half_of(event.filters, model) or ()
            if not any(each.overlaps(happening.filter) for each in wanted):
                return False
        elif not all(
            self._is_end(end, id, instance)
            for end, id in zip(event.ends, (happening.trigger, happening.scope), strict=True)
        ):
            return False
        if rule.condition is None:
            return True
        plain = facts_filter(rule.condition)
        if plain is None:
            raise InvalidScopeGraph("IF asks for attributes and roles, not for interfaces")
        return plain.matches(self._facts(rule, instance, happening))

    def _is_end(self, end: s.Reference | None, id: str, instance: Instance | None) -> bool:
        if end is None or end.path == (s.TRIGGER,):
            return True
        given = {} if instance is None else {s.SELF: instance.id}
        try:
            at = () if instance is None else (instance.id,)
            return id in self._deployment.names(given).resolve(end, at)
        except UnknownScope:
            return False

    def _facts(
        self, rule: s.Update, instance: Instance | None, happening: Happening
    ) -> dict[str, Any]:
        """What IF and SET may name: `n.x` of the notification, TRIGGER.x, SELF.x, and x itself."""
        nodes = self._deployment.graph.nodes
        own = {} if instance is None else dict(nodes[instance.id].attributes)
        facts: dict[str, Any] = {**own, s.SELF: own} if own else {}
        if happening.trigger in nodes:
            facts[s.TRIGGER] = dict(nodes[happening.trigger].facts)
        if happening.notification is not None and rule.event.binds:
            facts[rule.event.binds] = dict(happening.notification)
        return facts

    def _carry_out(
        self, definition: str, instance: Instance | None, rule: s.Update, happening: Happening
    ) -> None:
        deployment = self._deployment
        self._check_name(happening.trigger)
        facts = self._facts(rule, instance, happening)
        given = {s.TRIGGER: happening.trigger}
        if instance is not None:
            given[s.SELF] = instance.id
        with deployment.whole():
            for reaction in rule.reactions:
                if isinstance(reaction, s.Alter):
                    deployment.carry_out(_bound(reaction, facts, happening.trigger), given=given)
                    continue
                if self._created >= MAX_CREATED:
                    raise InvalidScopeGraph(f"rules have created {MAX_CREATED:,} scopes already")
                self._created += 1
                new = deployment.deploy(s.Deploy(s.Reference((definition,))), given=given)
                deployment.graph.node(new).begun = True
                given[s.SELF] = new
                if reaction.include:
                    member = s.Selection(
                        False, (s.Reference((happening.trigger,)),), label=reaction.label
                    )
                    deployment.alter(deployment.instances[new], s.Alter(_SELF, "add", (member,)))

    def _check_name(self, trigger: str) -> None:
        """Nobody becomes something else by the name that it has chosen."""
        graph = self._deployment.graph
        nodes = [graph.nodes[id] for id in {*graph.named(trigger), trigger} if id in graph]
        if trigger in (s.SELF, s.TRIGGER, DEFINITIONS) or any(node.is_scope for node in nodes):
            raise InvalidScopeGraph(f"{trigger!r} is no name of a component alone")


_SELF: Final = s.Reference((s.SELF,))


def creates(rule: s.Update) -> bool:
    """Whether a rule makes an instance of its own definition."""
    return any(isinstance(each, s.Create) for each in rule.reactions)


def _bound(reaction: s.Alter, facts: Mapping[str, Any], trigger: str) -> s.Alter:
    """The reaction with what it names put in its place."""
    clauses: list[s.Clause] = []
    for clause in reaction.clauses:
        match clause:
            case s.Set(assignments):
                pairs = tuple((name, _looked_up(value, facts)) for name, value in assignments)
                clauses.append(replace(clause, assignments=pairs))
            case s.Selection(base=tuple(base)):
                clauses.append(replace(clause, base=tuple(_named(base, trigger))))
            case _:
                clauses.append(clause)
    return replace(reaction, clauses=tuple(clauses))


def _named(base: Iterable[s.Reference], trigger: str) -> Iterator[s.Reference]:
    for each in base:
        yield replace(each, path=(trigger,)) if each.path == (s.TRIGGER,) else each


def _looked_up(value: Any, facts: Mapping[str, Any]) -> Any:
    if not isinstance(value, s.Name):
        return value
    found: Any = facts
    for part in value.name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if found is None:
        raise InvalidScopeGraph(f"{value.name} has no value here")
    return found


# -- for brokers


def automate(deployment: Deployment) -> None:
    """Have the graph of a deployment carry the rules of its definitions, for brokers."""
    automation = Automation(deployment)
    for name, description in deployment.definitions.items():
        if description.updates:
            model = str(description.attributes.get(MODEL, "types"))
            record = UpdateData(
                name,
                [format_statement(each) for each in deployment.said[name]],
                automation.armed(name),
                [_watch(rule, model) for rule in description.updates],
            )
            deployment.graph.automation[record.key] = record


def _watch(rule: s.Update, model: str) -> WatchData:
    joins = all(
        isinstance(reaction, s.Alter)
        and reaction.mode == "add"
        and all(_takes_in_the_trigger(clause) for clause in reaction.clauses)
        for reaction in rule.reactions
    )
    filters = [str(each) for each in half_of(rule.event.filters, model) or ()]
    binds = rule.event.binds
    condition = None if rule.condition is None else facts_filter(rule.condition)
    about = {name.partition(".")[0] for name in (condition.names if condition else ())}
    is_known = condition is not None and about <= {binds, s.TRIGGER}
    return WatchData(
        *(rule.event.kind == "con", creates(rule), joins, filters),
        *(binds, str(condition) if is_known else ""),
    )


def _takes_in_the_trigger(clause: s.Clause) -> bool:
    return (
        isinstance(clause, s.Selection)
        and not clause.superscopes
        and clause.base == (s.Reference((s.TRIGGER,)),)
        and clause.where is None
    )
