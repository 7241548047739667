"""What a scope is to be: the clauses of its definition, put together and open to change.

A definition, the additions of DEPLOY and every ALTER work on the same kind of value, so that they
mean the same (R-05.39, R-05.40): ADD adds, DEL takes away, and neither replaces. A selection
without a label is known by its text.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from stentor.errors import InvalidScopeGraph
from stentor.notation.document import near
from stentor.scopes.language import syntax as s
from stentor.scopes.language.printer import format_clause
from stentor.scopes.language.translation import halves_of

ONCE = s.Maintain("once")
Halves = dict[str, tuple[s.WrittenFilter, ...]]


@dataclass(slots=True)
class Edges:
    """What is put on the edges of a selection."""

    halves: Halves = field(default_factory=dict)
    maps: dict[str, s.Changes | s.Call] = field(default_factory=dict)
    policies: dict[str, s.Call] = field(default_factory=dict)

    def add(self, properties: s.Properties) -> None:
        """Of one direction, what is said last counts."""
        self.halves |= halves_of(properties.interfaces)
        for action in properties.actions:
            match action:
                case s.Map(direction, by):
                    self.maps[direction] = by
                case s.Policy(kind, code):
                    if kind != "publishing":
                        raise InvalidScopeGraph(
                            f"a member may have a PUBLISHING policy here; write POLICY "
                            f"{kind.upper()} as a clause of the scope that it is for"
                        )
                    self.policies[kind] = code

    def copy(self) -> Edges:
        return Edges(dict(self.halves), dict(self.maps), dict(self.policies))


@dataclass(slots=True)
class Description:
    """All that is said about one scope."""

    abstract: bool = False
    selections: dict[str, s.Selection] = field(default_factory=dict)
    properties: dict[str, Edges] = field(default_factory=dict)
    halves: Halves = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    maintain: s.Maintain = ONCE
    admit: s.Predicate | None = None
    once: bool = False
    maps: dict[str, s.Changes | s.Call] = field(default_factory=dict)
    policies: dict[str, s.Call] = field(default_factory=dict)
    commands: tuple[s.Call, ...] = ()
    updates: tuple[s.Update, ...] = ()

    def copy(self) -> Description:
        return replace(
            self,
            selections=dict(self.selections),
            properties={label: edges.copy() for label, edges in self.properties.items()},
            halves=dict(self.halves),
            attributes=dict(self.attributes),
            maps=dict(self.maps),
            policies=dict(self.policies),
        )

    def edges(self, label: str) -> Edges:
        """What is put on the edges of a selection, from its own block and from later ones."""
        found = Edges()
        selection = self.selections.get(label)
        if selection is not None and selection.properties is not None:
            found.add(selection.properties)
        later = self.properties.get(label)
        if later is not None:
            found.halves |= later.halves
            found.maps |= later.maps
            found.policies |= later.policies
        return found

    # -- changes

    def add(self, clauses: Iterable[s.Clause], *, extend: bool = False) -> None:
        """Take clauses in; `extend` makes interfaces wider where they would be replaced."""
        for clause in clauses:
            match clause:
                case s.Selection():
                    label = label_of(clause)
                    if clause.label and label in self.selections and not extend:
                        known = self.selections[label]
                        clause = replace(clause, properties=clause.properties or known.properties)
                    if extend and not clause.label:
                        label = list(_numbered(label, self.selections))[-1]
                    self.selections[label] = clause
                case s.Labelled(label, properties):
                    self._known(label)
                    edges = self.properties.setdefault(label, Edges())
                    before = dict(edges.halves)
                    edges.add(properties)
                    if extend:
                        edges.halves = _joined(before, halves_of(properties.interfaces))
                case s.Interfaces():
                    given = halves_of(clause)
                    self.halves = _joined(self.halves, given) if extend else self.halves | given
                case s.Roles(names):
                    self.roles = tuple(dict.fromkeys((*self.roles, *names)))
                case s.Set(assignments):
                    for name, value in assignments:
                        if isinstance(value, s.Name):
                            raise InvalidScopeGraph(
                                f"{value.name} is bound to nothing here; outside of UPDATE a "
                                "constant is set"
                            )
                        self.attributes[name] = value
                case s.Maintain():
                    self.maintain = clause
                case s.Admit(where):
                    self.admit = where
                case s.Duplicates():
                    self.once = True
                case s.Map(direction, by):
                    self.maps[direction] = by
                case s.Policy(kind, code):
                    self.policies[kind] = code
                case s.Do(code):
                    self.commands = (*self.commands, code)
                case s.Update():
                    self.updates = (*self.updates, clause)

    def replace(self, clauses: Iterable[s.Clause]) -> None:
        """What is said replaces what was said of the same kind; selections need a label."""
        given = list(clauses)
        for clause in given:
            match clause:
                case s.Selection() if not clause.label:
                    raise InvalidScopeGraph(
                        "to replace a selection, name it: ALTER SCOPE x label: ALL FROM …; "
                        "or write ADD or DEL"
                    )
                case s.Selection():
                    self._known(clause.label)
                case s.Roles():
                    self.roles = ()
        if any(isinstance(clause, s.Update) for clause in given):
            self.updates = ()
        if any(isinstance(clause, s.Do) for clause in given):
            self.commands = ()
        self.add(given)

    def remove(self, clauses: Iterable[s.Clause]) -> list[s.Selection]:
        """Take clauses away; selections that are not part of it are handed back."""
        foreign: list[s.Selection] = []
        for clause in clauses:
            match clause:
                case s.Selection():
                    *known, _ = _numbered(label_of(clause), self.selections)
                    if known:
                        del self.selections[known[-1]]
                        self.properties.pop(known[-1], None)
                    else:
                        foreign.append(clause)
                case s.Labelled(label, properties):
                    edges = self.properties.setdefault(label, self.edges(self._known(label)))
                    gone = halves_of(properties.interfaces)
                    # The last filter of an imposed or selective half leaves it open.
                    left = _without(edges.halves, gone)
                    edges.halves = {key: half for key, half in left.items() if half}
                    for action in properties.actions:
                        if isinstance(action, s.Map):
                            edges.maps.pop(action.direction, None)
                        elif isinstance(action, s.Policy):
                            edges.policies.pop(action.kind, None)
                    if label in self.selections:
                        self.selections[label] = replace(self.selections[label], properties=None)
                case s.Interfaces():
                    self.halves = _without(self.halves, halves_of(clause))
                case s.Roles(names):
                    self.roles = tuple(each for each in self.roles if each not in names)
                case s.Set(assignments):
                    for name, _ in assignments:
                        self.attributes.pop(name, None)
                case s.Maintain():
                    self.maintain = ONCE
                case s.Admit():
                    self.admit = None
                case s.Duplicates():
                    self.once = False
                case s.Map(direction, _):
                    self.maps.pop(direction, None)
                case s.Policy(kind, _):
                    self.policies.pop(kind, None)
                case s.Do(code):
                    self.commands = tuple(each for each in self.commands if each != code)
                case s.Update():
                    self.updates = tuple(each for each in self.updates if each != clause)
        return foreign

    def _known(self, label: str) -> str:
        if label != "*" and label not in self.selections:
            labels = [each.label for each in self.selections.values() if each.label]
            hint = near(label, labels).rstrip(";")
            known = f" (there are {', '.join(labels)})" if labels and not hint else ""
            raise InvalidScopeGraph(f"no selection has the label {label!r}{hint}{known}")
        return label


def describe(statement: s.DefineScope) -> Description:
    """The description that a definition gives."""
    found = Description(abstract=statement.abstract)
    labels = [
        clause.label
        for clause in statement.clauses
        if isinstance(clause, s.Selection) and clause.label
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise InvalidScopeGraph(f"two selections have the label {label!r}")
    # Blocks may come before the selection that they are about.
    selections = [each for each in statement.clauses if isinstance(each, s.Selection)]
    features = [each for each in statement.clauses if not isinstance(each, s.Selection)]
    found.add([*selections, *features])
    return found


def label_of(selection: s.Selection) -> str:
    """The label, or else the text without what is put on its edges."""
    return selection.label or format_clause(replace(selection, properties=None))


def _numbered(label: str, taken: Container[str]) -> Iterator[str]:
    """The labels of all selections that say the same, and then the next that is free."""
    yield label
    number = 2
    while label in taken:
        label = f"{label.removesuffix(f' ({number - 1})')} ({number})"
        number += 1
        yield label


def _joined(one: Halves, other: Halves) -> Halves:
    return one | {
        key: tuple(dict.fromkeys((*one.get(key, ()), *half))) for key, half in other.items()
    }


def _without(halves: Halves, gone: Halves) -> Halves:
    return {
        key: tuple(each for each in half if each not in gone.get(key, ()))
        for key, half in halves.items()
    }
