"""A tree of groups: brokers that are near each other, and who speaks for them.

A group of brokers has delegates. The delegates of several groups are the members of a group one
level up, which has delegates in turn, and so on up to the root. So every group, on any level, is
a set of brokers, and a broker is a member of one group on each level from its own group up to the
highest that it is sent to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any, TypeAlias

from stentor.errors import DuplicateBroker, InvalidTopology, UnknownBroker
from stentor.research.gossip.options import at_least
from stentor.routing.protocol import BrokerId

#: The way down from the root, by the numbers of the groups.
GroupId: TypeAlias = tuple[int, ...]
ROOT: GroupId = ()


class GroupTree:
    """Groups of brokers, groups of groups, and their delegates.

    The shape is a nested list: a list of brokers is a group, a list of groups is one level more.

    >>> tree = GroupTree([["a", "b", "c"], ["d", "e"]], delegates=2)
    >>> tree.members((0,)), tree.delegates((0,))
    (('a', 'b', 'c'), ('a', 'b'))
    >>> tree.members(()), tree.groups_of("a"), tree.groups_of("c")
    (('a', 'b', 'd', 'e'), ((0,), ()), ((0,),))
    """

    def __init__(self, shape: Sequence[Any], *, delegates: int = 2) -> None:
        """More delegates make it more certain that one of them is there to pass things on."""
        self._count = at_least(1, delegates=delegates)
        self._members: dict[GroupId, tuple[BrokerId, ...]] = {}
        self._delegates: dict[GroupId, tuple[BrokerId, ...]] = {}
        self._groups_of: dict[BrokerId, tuple[GroupId, ...]] = {}
        self._build(ROOT, shape)

    def members(self, group: GroupId) -> tuple[BrokerId, ...]:
        """The brokers of the group; above the lowest level, the delegates of its subgroups."""
        return self._members[group]

    def delegates(self, group: GroupId) -> tuple[BrokerId, ...]:
        """The members that speak for the group one level up."""
        return self._delegates[group]

    def groups_of(self, broker: BrokerId) -> tuple[GroupId, ...]:
        """The groups that the broker is a member of, its own first and the highest last."""
        try:
            return self._groups_of[broker]
        except KeyError:
            raise UnknownBroker(
                f"broker {broker!r} is in none of the groups; name it in the shape of the tree"
            ) from None

    @property
    def brokers(self) -> list[BrokerId]:
        return list(self._groups_of)

    def _build(self, group: GroupId, shape: Sequence[Any]) -> None:
        nested = [isinstance(part, list | tuple) for part in shape]
        if not nested:
            raise InvalidTopology(f"group {group} is empty; put brokers or groups into it")
        if all(nested):
            subgroups = [(*group, number) for number in range(len(shape))]
            for subgroup, part in zip(subgroups, shape, strict=True):
                self._build(subgroup, part)
            parts = [self._delegates[subgroup] for subgroup in subgroups]
            members = tuple(chain.from_iterable(parts))
            # One of each subgroup in turn, so that delegates are not all in the same place.
            turns = chain.from_iterable(zip_longest(*parts))
            candidates = [broker for broker in turns if broker is not None]
        elif any(nested):
            raise InvalidTopology(
                f"group {group} has brokers beside groups; put them into a group of their own"
            )
        else:
            members = tuple(shape)
            candidates = list(members)
            for broker in members:
                if broker in self._groups_of:
                    raise DuplicateBroker(f"broker {broker!r} is in two places; leave one out")
                self._groups_of[broker] = ()
        for broker in members:
            self._groups_of[broker] += (group,)
        self._members[group] = members
        self._delegates[group] = tuple(candidates[: self._count])
