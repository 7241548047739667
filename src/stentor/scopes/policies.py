"""Transmission policies: which of the eligible next hops a notification takes (R-04.60 to R-04.70).

At each scope a notification first finds out where it may go, by interfaces and mappings; then a
policy narrows that down. A policy never adds a hop. There are four kinds: `publishing` (which
superscopes an outgoing one enters), `delivery` (which members get an incoming one), `internal`
(which members get one from a sibling) and `traverse` (which level below is looked at first).

A policy is a value. What it remembers is a state beside it, a plain value as well, which `decide`
is given and returns, so a host can keep it on disk. Those that compare destinations or remember
something are *selecting*: they decide once for each version of a notification at a scope, however
many ways lead there. All others are asked on each arrival.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Struct, field

from stentor.errors import InvalidScopeGraph
from stentor.filters import Filter
from stentor.model import Notification
from stentor.notation.units import parse_duration


class Kind(StrEnum):
    """Where a policy decides."""

    PUBLISHING = "publishing"
    DELIVERY = "delivery"
    INTERNAL = "internal"
    TRAVERSE = "traverse"


class Question(Struct, frozen=True):
    """What a policy may look at."""

    notification: Notification
    #: The scope at which it is asked, or the component for its own publishing policy.
    scope: str
    #: Next hops that interfaces let pass, in the order in which they became members.
    eligible: tuple[str, ...]
    #: The member or superscope that it came from.
    source: str
    publisher: str
    #: All nodes that it has passed, the publisher first.
    path: tuple[str, ...] = ()
    now: float = 0.0
    #: The attributes of a component or scope.
    attributes: Callable[[str], Mapping[str, Any]] = lambda _: {}
    #: Whether somebody at or below a hop would get it.
    reaches: Callable[[str], bool] = lambda _: True


class Answer(Struct, frozen=True):
    """Where it goes: at once, at some later time, or when something that is awaited happens."""

    now: tuple[str, ...] = ()
    state: Any = None
    #: Hops, and when each is looked at again.
    later: tuple[tuple[str, float], ...] = ()
    #: Hops that wait, and the key that sets them free.
    held: tuple[tuple[str, str], ...] = ()
    #: Keys whose notifications go on now (True) or are dropped (False).
    released: tuple[tuple[str, bool], ...] = ()


class _Policy(Struct, frozen=True):
    selecting: ClassVar[bool] = False

    def decide(self, asked: Question, state: Any) -> Answer:
        raise NotImplementedError


class Broadcast(_Policy, frozen=True):
    """To all: the default."""

    def decide(self, asked: Question, state: Any) -> Answer:
        return Answer(asked.eligible)


class Nobody(_Policy, frozen=True):
    """To none."""

    def decide(self, asked: Question, state: Any) -> Answer:
        return Answer()


class Only(_Policy, frozen=True):
    """To those that are named: of several superscopes, one market."""

    names: tuple[str, ...]

    def decide(self, asked: Question, state: Any) -> Answer:
        return Answer(tuple(hop for hop in asked.eligible if hop in self.names))


class OneOfN(_Policy, frozen=True):
    """To one of them: in turn, at random, by least load, or always the same for equal values.

    With `deep`, only to where somebody would get it (04/T12).
    """

    selecting: ClassVar[bool] = True
    how: str = "round_robin"
    attribute: str = ""
    deep: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        ways = ("round_robin", "random", "least_loaded", "hash")
        if self.how not in ways:
            raise InvalidScopeGraph(f"one of n by {self.how!r}: choose from {', '.join(ways)}")
        if self.how == "hash" and not self.attribute:
            raise InvalidScopeGraph("one of n by hash needs the attribute that is hashed")

    def decide(self, asked: Question, state: Any) -> Answer:
        hops = [hop for hop in asked.eligible if not self.deep or asked.reaches(hop)]
        if not hops:
            return Answer(state=state)
        match self.how:
            case "round_robin":
                # Whoever has waited longest: fair also when the eligible ones change.
                turns: dict[str, int] = dict(state or {})
                chosen = min(hops, key=lambda hop: (turns.get(hop, 0), hops.index(hop)))
                turns[chosen] = max(turns.values(), default=0) + 1
                if len(turns) > 2 * len(hops) + 64:  # most of them are gone
                    turns = {hop: turns[hop] for hop in hops if hop in turns}
                return Answer((chosen,), turns)
            case "random":
                drawn = int(state or 0)
                return Answer(
                    (random.Random(self.seed * 1_000_003 + drawn).choice(hops),), drawn + 1
                )
            case "least_loaded":
                name = self.attribute or "load"
                return Answer((min(hops, key=lambda hop: (_number(asked, hop, name), hop)),), state)
        value = asked.notification.facts.get(self.attribute)
        # The hop with the highest score for this value: when one leaves, only its values move.
        score = {hop: zlib.crc32(f"{value!r}\0{hop}".encode()) for hop in hops}
        return Answer((max(hops, key=lambda hop: (score[hop], hop)),), state)


class TopK(_Policy, frozen=True):
    """To the k whose attribute ranks first; those without it rank last."""

    selecting: ClassVar[bool] = True
    attribute: str
    k: int
    descending: bool = True

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InvalidScopeGraph("top k needs a k of at least 1")

    def decide(self, asked: Question, state: Any) -> Answer:
        sign = -1 if self.descending else 1
        ranked = sorted(
            asked.eligible, key=lambda hop: (sign * _number(asked, hop, self.attribute, sign), hop)
        )
        return Answer(tuple(ranked[: self.k]), state)


class RateLimit(_Policy, frozen=True):
    """To each destination at most `most` times in any span of `gap` seconds."""

    selecting: ClassVar[bool] = True
    gap: float
    most: int = 1

    def __post_init__(self) -> None:
        if self.gap <= 0 or self.most < 1:
            raise InvalidScopeGraph("a rate limit needs a span above 0 and at least one in it")

    def decide(self, asked: Question, state: Any) -> Answer:
        sent: dict[str, list[float]] = {
            hop: [at for at in times if at > asked.now - self.gap]
            for hop, times in (state or {}).items()
        }
        chosen = [hop for hop in asked.eligible if len(sent.get(hop, ())) < self.most]
        for hop in chosen:
            sent.setdefault(hop, []).append(asked.now)
        return Answer(tuple(chosen), {hop: times for hop, times in sent.items() if times})


class Delay(_Policy, frozen=True):
    """To all, that much later; edge, interfaces and subscription are tested again then.

    With `where`, only what matches is delayed.
    """

    seconds: float
    where: Filter | None = None

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise InvalidScopeGraph("a delay cannot be negative")

    def decide(self, asked: Question, state: Any) -> Answer:
        if self.where is not None and not self.where.matches(asked.notification):
            return Answer(asked.eligible)
        return Answer(later=tuple((hop, asked.now + self.seconds) for hop in asked.eligible))


class Hold(_Policy, frozen=True):
    """What has the attribute waits for a releasing event with the same value, or for its end.

    Held ones go on when something arrives here that `release` matches, and are dropped when
    `abort` matches: commit and abort of a transaction. Anything without the attribute passes.
    """

    selecting: ClassVar[bool] = True
    attribute: str
    release: Filter
    abort: Filter | None = None

    def decide(self, asked: Question, state: Any) -> Answer:
        n = asked.notification
        value = n.facts.get(self.attribute)
        if value is None:
            return Answer(asked.eligible)
        key = f"{asked.scope}\0{value!r}"
        if self.release.matches(n):
            return Answer(asked.eligible, released=((key, True),))
        if self.abort is not None and self.abort.matches(n):
            return Answer(asked.eligible, released=((key, False),))
        return Answer(held=tuple((hop, key) for hop in asked.eligible))


class Chain(_Policy, frozen=True):
    """To the next handler of a list: who cannot deal with something publishes it again."""

    selecting: ClassVar[bool] = True
    handlers: tuple[str, ...]

    def decide(self, asked: Question, state: Any) -> Answer:
        at = self.handlers.index(asked.source) + 1 if asked.source in self.handlers else 0
        following = self.handlers[at : at + 1]
        return Answer(tuple(hop for hop in asked.eligible if hop in following), state)


class RequirePrivilege(_Policy, frozen=True):
    """Only to those whose privilege is at least that high."""

    level: float
    attribute: str = "privilege"

    def decide(self, asked: Question, state: Any) -> Answer:
        low = float("-inf")
        return Answer(
            tuple(h for h in asked.eligible if _number(asked, h, self.attribute, low) >= self.level)
        )


class ByProducer(_Policy, frozen=True):
    """To all, if the publisher's attributes match; to none otherwise."""

    where: Filter

    def decide(self, asked: Question, state: Any) -> Answer:
        return Answer(
            asked.eligible if self.where.matches(asked.attributes(asked.publisher)) else ()
        )


class ByPath(_Policy, frozen=True):
    """To all, if it came through a scope, or, with `avoiding`, if it did not."""

    scope: str
    avoiding: bool = False

    def decide(self, asked: Question, state: Any) -> Answer:
        return Answer(asked.eligible if (self.scope in asked.path) != self.avoiding else ())


class Traverse(_Policy, frozen=True):
    """How far down an incoming notification looks for consumers: see `dissemination`.

    `top_down` stops at the first level that has any, `bottom_up` begins at the deepest; `tie`
    says whether the first scope of a level gets it, or all. Where another policy reigns below, the
    search ends, unless `at_boundary` is `broadcast`.
    """

    order: str = "broadcast"
    tie: str = "first"
    at_boundary: str = "stop"

    def __post_init__(self) -> None:
        for given, known in (
            (self.order, ("broadcast", "top_down", "bottom_up")),
            (self.tie, ("first", "all")),
            (self.at_boundary, ("stop", "broadcast")),
        ):
            if given not in known:
                raise InvalidScopeGraph(f"a traverse policy is not {given!r}: {', '.join(known)}")


Policy: TypeAlias = (
    Broadcast
    | Nobody
    | Only
    | OneOfN
    | TopK
    | RateLimit
    | Delay
    | Hold
    | Chain
    | RequirePrivilege
    | ByProducer
    | ByPath
    | Traverse
)

#: What a custom policy is: a function of the question, of what it remembers, and of the arguments
#: that it is given in the language, which chooses among the eligible.
Chooser: TypeAlias = Callable[..., Answer]
_choosers: Final[dict[str, tuple[Chooser, bool]]] = {}


class Custom(_Policy, frozen=True):
    """A policy of one's own, by the name under which it is registered."""

    name: str
    arguments: tuple[Any, ...] = field(default=())

    @property
    def selects(self) -> bool:
        return self._chooser[1]

    @property
    def _chooser(self) -> tuple[Chooser, bool]:
        if self.name not in _choosers:
            raise InvalidScopeGraph(
                f"there is no policy {self.name!r}; there are {', '.join([*_BUILT_IN, *_choosers])}"
            )
        return _choosers[self.name]

    def decide(self, asked: Question, state: Any) -> Answer:
        return self._chooser[0](asked, state, *self.arguments)


def register_policy(name: str, chooser: Chooser, *, selecting: bool = True) -> None:
    """Make a policy known to scope graphs under a name.

    >>> register_policy("doc-first", lambda asked, state: Answer(asked.eligible[:1]))
    >>> asked = Question(Notification({"x": 1}), "s", ("a", "b"), source="c", publisher="c")
    >>> policy_of("doc-first", ()).decide(asked, None).now
    ('a',)
    """
    _choosers[name] = chooser, selecting


def is_selecting(policy: Policy | Custom) -> bool:
    """Whether it decides once for each version at a scope."""
    return policy.selects if isinstance(policy, Custom) else type(policy).selecting


def compares(policy: Policy | Custom) -> bool:
    """Whether it has to know one hop from another: it compares them, takes turns or counts.

    >>> compares(TopK("load", 3)), compares(RequirePrivilege(2))
    (True, False)
    """
    return isinstance(policy, OneOfN | TopK | RateLimit | Custom)


def looked_at(policies: Iterable[Policy | Custom]) -> frozenset[str] | None:
    """The scopes of which policies ask whether something has passed them; None for any.

    Those that decide once are asked once, whatever way it came first.
    """
    found: set[str] = set()
    for policy in policies:
        if isinstance(policy, ByPath):
            found.add(policy.scope)
        elif isinstance(policy, Custom) and not policy.selects:
            return None
    return frozenset(found)


def remembers(policy: Policy | Custom) -> bool:
    """Whether what it decides depends on what came before, or on the time.

    >>> remembers(OneOfN("hash", "customer")), remembers(OneOfN("round_robin"))
    (False, True)
    """
    if isinstance(policy, OneOfN):
        return policy.how in ("round_robin", "random")
    return isinstance(policy, RateLimit | Delay | Hold | Custom)


def policy_of(name: str, arguments: tuple[Any, ...]) -> Policy | Custom:
    """A policy by its name in the language, and its arguments.

    >>> policy_of("delay", ("1m",)), policy_of("round_robin", ())
    (Delay(seconds=60.0, where=None), OneOfN(how='round_robin', attribute='', deep=False, seed=0))
    """
    make = _BUILT_IN.get(name)
    if make is None:
        custom = Custom(name, arguments)
        _ = custom.selects  # an error now rather than with the first notification
        return custom
    try:
        return make(*arguments)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidScopeGraph):
            raise
        given = ", ".join(map(repr, arguments))
        raise InvalidScopeGraph(f"the policy {name} cannot be given ({given}): {error}") from None


_BUILT_IN: Final[dict[str, Callable[..., Policy]]] = {
    "broadcast": Broadcast,
    "full": Broadcast,
    "none": Nobody,
    "only": lambda *names: Only(names),
    "round_robin": lambda: OneOfN(),
    "single": lambda: OneOfN(),
    "one_of_n": lambda how="round_robin", attribute="": OneOfN(how, attribute),
    "deep_one_of_n": lambda how="round_robin", attribute="": OneOfN(how, attribute, deep=True),
    "key_affine": lambda attribute: OneOfN("hash", attribute),
    "top_k": lambda attribute, k, order="desc": TopK(attribute, int(k), order.lower() == "desc"),
    "rate_limit": lambda gap, most=1: RateLimit(_seconds(gap), int(most)),
    "delay": lambda seconds, where=None: Delay(
        _seconds(seconds), None if where is None else Filter(where)
    ),
    "hold": lambda attribute, release, abort=None: Hold(
        attribute, Filter(release), None if abort is None else Filter(abort)
    ),
    "chain": lambda *handlers: Chain(handlers),
    "require_privilege": lambda level, attribute="privilege": RequirePrivilege(level, attribute),
    "by_producer": lambda where: ByProducer(Filter(where)),
    "through": lambda scope: ByPath(scope),
    "avoiding": lambda scope: ByPath(scope, avoiding=True),
    "top_down": lambda tie="first", at_boundary="stop": Traverse("top_down", tie, at_boundary),
    "bottom_up": lambda tie="first", at_boundary="stop": Traverse("bottom_up", tie, at_boundary),
}


def _seconds(given: str | float) -> float:
    return parse_duration(given) if isinstance(given, str) else float(given)


def _number(asked: Question, hop: str, name: str, absent: float = float("inf")) -> float:
    value = asked.attributes(hop).get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return absent if abs(absent) == float("inf") else absent * float("inf")
