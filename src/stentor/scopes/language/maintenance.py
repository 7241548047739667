"""Selections evaluated again: how well the members of a scope agree with the rule that chose them.

By default a selection is evaluated once, when it is deployed, and never again (R-05.41). `MAINTAIN
ON CHANGE` and `ON DEVIATION` evaluate it when attributes change, `EVERY` as time passes. Selections
that are membership rules follow changes of attributes by themselves; the others do so through
`set_attributes` and `advance` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from stentor.scopes.language.deployment import Deployment
from stentor.scopes.language.placement import Instance


class Maintenance:
    """Keeps the instances of a deployment as their MAINTAIN clauses say."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._evaluated: dict[str, float] = {}

    def set_attributes(
        self, id: str, attributes: Mapping[str, Any], *, roles: Iterable[str] | None = None
    ) -> None:
        """Replace what is known of a node, and evaluate again what depends on it."""
        graph = self._deployment.graph
        graph.set_attributes(id, attributes, roles=roles)
        for instance in list(self._deployment.instances.values()):
            maintain = instance.description.maintain
            if maintain.when == "change" or (
                maintain.when == "deviation" and _deviates(instance, id, attributes, maintain.value)
            ):
                self._deployment.evaluate(instance)

    def advance(self, now: float) -> None:
        """Time has passed: evaluate what is due."""
        for id, instance in list(self._deployment.instances.items()):
            maintain = instance.description.maintain
            if maintain.when == "every" and now >= self._evaluated.get(id, 0.0) + maintain.value:
                self._evaluated[id] = now
                self._deployment.evaluate(instance)

    def accuracy(self, id: str) -> float:
        """How many of the edges that are there or should be are both: 1 is agreement."""
        there, wanted = self._deployment.agreement(self._deployment.instances[id])
        return len(there & wanted) / len(there | wanted) if there | wanted else 1.0


def _deviates(instance: Instance, id: str, now: Mapping[str, Any], percent: float) -> bool:
    before = instance.evaluated.get(id)
    if before is None:
        return True
    for name in {*before, *now}:
        old, new = before.get(name), now.get(name)
        if _is_number(old) and _is_number(new):
            if abs(new - old) * 100 > abs(old) * percent:
                return True
        elif old != new:
            return True
    return False


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
