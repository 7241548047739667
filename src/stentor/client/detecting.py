"""What a client says to have a pattern detected by its broker."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, TypeAlias, get_args

import msgspec

from stentor.client.words import DetectionPolicy, PlacementPolicy
from stentor.composite import BestEffort, Guaranteed, Pattern, Policy, Probabilistic
from stentor.errors import InvalidConfiguration, InvalidPattern, UnknownStrategy
from stentor.notation.units import seconds_of
from stentor.protocol.messages import MAX_FILTER, Detection

POLICIES: Final[tuple[str, ...]] = get_args(DetectionPolicy)
PLACEMENTS: Final[tuple[str, ...]] = get_args(PlacementPolicy)
#: Seconds by which an event may come later to its broker than its own time says.
LATENESS: Final = 2.0

PolicyGiven: TypeAlias = DetectionPolicy | Policy | None


def detection(
    pattern: Pattern,
    policy: PolicyGiven,
    lateness: str | float | timedelta | None,
    mode: str,
    placement: str = "minimum_latency",
    *,
    durable: bool,
) -> Detection:
    """The words of the protocol; without a policy, what is durable is guaranteed.

    >>> p = Pattern("A ; B", events={"A": "x = 1", "B": "x = 2"})
    >>> detection(p, None, "5s", "standing", durable=True).policy
    'guaranteed'
    """
    if not isinstance(pattern, Pattern):
        raise InvalidConfiguration(
            f"detect() takes a stentor.composite.Pattern, and this is a {type(pattern).__name__}"
        )
    if policy is None:
        policy = "guaranteed" if durable else "best_effort"
    if isinstance(policy, BestEffort | Guaranteed | Probabilistic):
        word: str = policy.kind
        if isinstance(policy, Guaranteed | Probabilistic) and policy.sources:
            raise InvalidConfiguration("in the network the sources are its brokers; name none")
    else:
        word = policy  # type: ignore[assignment]
    if word not in POLICIES:
        raise UnknownStrategy(f"there is no policy={word!r}; choose one of {', '.join(POLICIES)}")
    if placement not in PLACEMENTS:
        raise UnknownStrategy(
            f"there is no placement={placement!r}; choose one of {', '.join(PLACEMENTS)}"
        )
    text = msgspec.json.encode(pattern.dump()).decode()
    if len(text) > MAX_FILTER:
        raise InvalidPattern(f"a pattern takes at most {MAX_FILTER:,} characters with its filters")
    threshold = policy.threshold if isinstance(policy, Probabilistic) else 0.99
    late = LATENESS if lateness is None else seconds_of(lateness, "lateness")
    return Detection(text, word, late, threshold, mode, placement)
