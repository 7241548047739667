"""Which architecture suits: the ratings of the literature as data (R-05.63, Fig 6.19).

`+` is little impact or overhead, or much ability; `o` is in between; `-` is bad. What a system must
be able to do rules some out, and the rest is a matter of what counts how much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from stentor.errors import InvalidConfiguration

CRITERIA: Final = (
    "infrastructure",
    "components",
    "overhead",
    "reliability",
    "reconfiguration",
    "customization",
)
RATINGS: Final[dict[str, str]] = {
    "collapsed filters": "+-o---",
    "central hub": "+oo+o+",
    "static deployment": "+-+o-o",
    "addressing scopes": "+ooo+o",
    "broker scopes": "o+o+++",
    "integrated routing": "-+++++",
}
#: What each cannot do, or only if all clients cooperate.
_LACKS: Final[dict[str, frozenset[str]]] = {
    "collapsed filters": frozenset({"mappings", "policies", "enforcement", "changes"}),
    "central hub": frozenset({"distribution"}),
    "static deployment": frozenset({"policies", "enforcement", "changes"}),
    "addressing scopes": frozenset({"policies", "enforcement"}),
    "broker scopes": frozenset(),
    "integrated routing": frozenset(),
}
FEATURES: Final = ("mappings", "policies", "enforcement", "changes", "distribution")
_POINTS: Final = {"+": 2, "o": 1, "-": 0}


def advise(needs: Collection[str] = (), weights: Mapping[str, float] | None = None) -> list[str]:
    """The architectures that have all that is needed, the best first; ties by name.

    >>> advise(["policies", "distribution"], {"overhead": 3, "infrastructure": 1})
    ['integrated routing', 'broker scopes']
    >>> advise(weights={"infrastructure": 1, "components": 1})[0]
    'addressing scopes'
    """
    _check(needs, FEATURES, "features")
    _check(weights or (), CRITERIA, "criteria")
    weighted = weights or dict.fromkeys(CRITERIA, 1.0)

    def merit(name: str) -> float:
        points = dict(zip(CRITERIA, map(_POINTS.__getitem__, RATINGS[name]), strict=True))
        return sum(points[each] * weight for each, weight in weighted.items())

    able = [name for name in RATINGS if _LACKS[name].isdisjoint(needs)]
    return sorted(able, key=lambda name: (-merit(name), name))


def _check(given: Collection[str], known: Collection[str], what: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidConfiguration(f"{unknown[0]!r} is none of the {what}: {', '.join(known)}")
