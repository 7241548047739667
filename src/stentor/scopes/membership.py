"""Membership by rule: whoever's attributes match becomes a member, and is one as long as they do.

A rule that is not `maintained` is asked once, when the component appears, and no more (R-05.41).

A component never names its scopes (R-04.13). When it appears, or its attributes change, the rules
say which scopes it joins and leaves. A rule that asks for some texts of an attribute (`tenant =
'acme'`) is filed under them, so that ten thousand tenants do not cost ten thousand tests for each
client that connects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from stentor.filters import Filter
from stentor.filters.ranges import Ranges
from stentor.scopes.interfaces import OMITTED, Interface
from stentor.scopes.mappings import EdgeMapping
from stentor.scopes.nodes import NO_MAPPING


class MembershipRule(Struct, frozen=True):
    """Simple components whose facts match `where` are members of a scope, on these terms."""

    scope: str
    where: Filter
    #: What its edges are labelled with; unique within the scope.
    label: str = "rule"
    selective: Interface = OMITTED
    imposed: Interface = OMITTED
    mapping: EdgeMapping = NO_MAPPING
    #: If given, only members of one of these scopes are taken in.
    among: tuple[str, ...] = ()
    #: Whether it is followed again when a component changes, or only when one appears.
    maintained: bool = True

    @property
    def key(self) -> tuple[str, str]:
        return self.scope, self.label


class MembershipRules:
    """All rules of a graph, found by what a component says of itself."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str], MembershipRule] = {}
        self._of_scope: dict[str, dict[tuple[str, str], MembershipRule]] = {}
        self._always: dict[tuple[str, str], MembershipRule] = {}
        self._among: dict[str, dict[tuple[str, str], MembershipRule]] = {}
        self._filed: dict[tuple[str, str], dict[tuple[str, str], MembershipRule]] = {}

    def __iter__(self) -> Iterator[MembershipRule]:
        return iter(self._rules.values())

    def __len__(self) -> int:
        return len(self._rules)

    def add(self, rule: MembershipRule) -> None:
        """Add a rule, in place of one with the same scope and label."""
        self.remove(rule.key)
        self._rules[rule.key] = rule
        self._of_scope.setdefault(rule.scope, {})[rule.key] = rule
        for place in self._places(rule):
            place[rule.key] = rule
        for scope in rule.among:
            self._among.setdefault(scope, {})[rule.key] = rule

    def remove(self, key: tuple[str, str]) -> None:
        rule = self._rules.pop(key, None)
        if rule is not None:
            for place in self._places(rule):
                del place[key]
            for scope in rule.among:
                self._among.get(scope, {}).pop(key, None)
            del self._of_scope[rule.scope][key]

    def of_scope(self, scope: str) -> list[MembershipRule]:
        return list(self._of_scope.get(scope, {}).values())

    def among(self, scope: str) -> list[MembershipRule]:
        """The rules that take in members of a scope."""
        return list(self._among.get(scope, {}).values())

    def ids_of(self, rule: MembershipRule) -> list[str] | None:
        """The components that a rule names, or None: it may be about any."""
        texts = few_texts(rule.where)
        return [id for _, id in texts] if texts and texts[0][0] == "_id" else None

    def matching(self, facts: Mapping[str, Any]) -> list[MembershipRule]:
        """The rules that a component with these facts satisfies, in the order of their keys."""
        candidates = dict(self._always)
        for name, value in facts.items():
            if isinstance(value, str):
                candidates |= self._filed.get((name, value), {})
        return [rule for _, rule in sorted(candidates.items()) if rule.where.matches(facts)]

    def _places(self, rule: MembershipRule) -> list[dict[tuple[str, str], MembershipRule]]:
        texts = few_texts(rule.where)
        return [self._filed.setdefault(each, {}) for each in texts] if texts else [self._always]


def few_texts(where: Filter) -> list[tuple[str, str]]:
    """An attribute of which only some texts are accepted, with each of these texts."""
    if len(where.conjuncts) == 1:
        for name, constraint in sorted(where.conjuncts[0].constraints.items()):
            if len(constraint.parts) == 1 and not constraint.rest and not constraint.absent:
                part = constraint.parts[0][1]
                values = part.values if isinstance(part, Ranges) and "." not in name else None
                if values and all(isinstance(each, str) for each in values):
                    return [(name, each) for each in values]
    return []
