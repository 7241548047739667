"""Who may connect, and what they may do.

Without grants everybody may do everything: the default for a broker on a loopback address. With
grants, everybody must be one of them, by the token they show or by the name in their verified TLS
certificate. `Access` is the one place that decides; a richer model of roles takes its place here.

*Whose ids.* Every broker of an overlay takes an id for that of one notification, wherever it was
published. So who could publish under the ids of somebody else could make theirs look like repeats.
The producer in an id is therefore not what a client calls itself, but also who it has proved to be:
`ann@desk` is the client `ann` of the grant `desk`. The grant is behind the last "@" and holds none
itself, so no two pairs give the same producer. A broker without grants vouches for nobody and lets
no "@" in. Grants of the same name at different brokers are the same party, so a client keeps its
ids when it moves.

*Whose scopes.* Rules of the scope graph look at a client's name and at what it says of itself. With
grants, both count only as far as the grant vouches for them: a name that it lists, attributes that
it gives to all of its clients, and those that it lets them claim. Under any other name a client is
the component `ann@desk`, which no graph can take for somebody else. Without grants everybody is who
they say, as with everything else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hmac import compare_digest
from typing import Any, Final

from stentor.broker.settings import RESERVED_CLAIMS, Grant
from stentor.errors import AccessDenied, NotPermitted, ProtocolError
from stentor.filters import Filter
from stentor.model.codec import Envelope
from stentor.model.names import name_problem, shown, text_problem
from stentor.node.allowance import UNLIMITED, Allowance
from stentor.node.border import Rights
from stentor.node.session import nothing
from stentor.protocol.messages import Hello

_EVERYTHING: Final = ("",)
#: Characters of an attribute that a client claims.
MAX_CLAIM: Final = 1_024
#: What a client adds to its name where it connects besides (`stentor.client.local_broker`).
_AWAY: Final = re.compile(r"~[0-9a-f]{8}\Z")


@dataclass(frozen=True)
class Permissions:
    """What somebody may do. None as a rule: everything."""

    #: Whom the grant is about; None without grants.
    name: str | None = None
    publish: Callable[[Envelope], bool] | None = None
    subscribe: Callable[[Filter], bool] | None = None
    #: Whether they may hear what is asked for of this.
    advertise: Callable[[Filter], bool] | None = None
    #: Whether they may know that this is offered.
    discover: Callable[[Filter], bool] | None = None
    #: What may cross the link with them, if they are a broker.
    rights: Rights | None = None
    operate: bool = True
    broker: bool = True
    #: Whether they may change the scope graph; and read journals whatever it says, which takes a
    #: grant.
    scopes: bool = True
    audits: bool = False
    #: Names that count for the scope graph, and attributes that they have, or may claim; None: all.
    names: tuple[str, ...] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] | None = None
    #: How much of the broker they may have.
    allowance: Allowance = UNLIMITED
    #: What all of this was made of.
    grant: Grant | None = None

    def producer(self, client: str) -> str:
        """The producer in the ids of a client that calls itself so.

        >>> Permissions("desk").producer("ann"), Permissions().producer("ann")
        ('ann@desk', 'ann')
        """
        producer = client if self.name is None else f"{client}@{self.name}"
        problem = text_problem(client) or text_problem(producer)
        if problem is not None:
            raise ProtocolError(f"the name of the client {problem}")
        if self.name is None and "@" in client:
            raise AccessDenied(
                f"the name {shown(client)} ends with that of a grant, and this broker has none; "
                'choose a name without "@"'
            )
        return producer

    def component(self, client: str) -> str:
        """Under which name a client is a component of the scope graph.

        >>> Permissions("desk", names=("ann*",)).component("ann-2")
        'ann-2'
        >>> Permissions("desk", names=()).component("ann"), Permissions().component("ann")
        ('ann@desk', 'ann')
        """
        name = _AWAY.sub("", client)  # the same client, where a group of its lives
        if self.names is None or any(fnmatchcase(name, each) for each in self.names):
            return name
        return f"{name}@{self.name}"

    def claimed(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a client that says it has these; `AccessDenied` if it may not."""
        for name, value in said.items():
            if name in RESERVED_CLAIMS or name_problem(name) is not None:
                raise AccessDenied(f"{shown(name)} is not an attribute that a client can have")
            if not isinstance(value, str | int | float | bool) or len(str(value)) > MAX_CLAIM:
                raise AccessDenied(
                    f"the attribute {name} of a client is a text, a number or a truth value, and "
                    f"no longer than {MAX_CLAIM} characters"
                )
            if self.claims is not None and name not in self.claims:
                if self.attributes.get(name) == value:
                    continue
                raise AccessDenied(
                    f"{self.name!r} may not claim the attribute {name}; add it to `claims` or "
                    "`attributes` of the grant"
                )
        return {**said, **self.attributes}


#: Of everybody, where there are no grants; and of a neighbor whom none names.
_ALL: Final = Permissions()


class Access:
    """Decides by grants.

    >>> access = Access([Grant("desk", token="secret", publish=("symbol = 'IBM'",))])
    >>> access.admit(Hello([1], "client", "c-1", token="secret"), None).operate
    False
    >>> access.admit(Hello([1], "client", "c-1", token="guess"), None)
    Traceback (most recent call last):
    ...
    stentor.errors.AccessDenied: no grant of this broker has this token; show \
another
    """

    def __init__(self, grants: list[Grant] | tuple[Grant, ...]) -> None:
        self._permissions = [(grant, _permissions(grant)) for grant in grants]

    def admit(self, hello: Hello, certificate: str | None) -> Permissions:
        """What this one may do; `AccessDenied` if it is nobody we know."""
        if not self._permissions:
            return _ALL
        for grant, permissions in self._permissions:
            if _is(grant, hello.token, certificate):
                if hello.role == "broker":
                    _check_broker(grant)
                if hello.role == "operator" and not (grant.operate or grant.scopes):
                    raise NotPermitted(
                        f"{grant.name!r} may not operate this broker; set `operate = true` in the "
                        "grant if it should"
                    )
                return permissions
        if hello.token is not None:
            raise AccessDenied("no grant of this broker has this token; show another")
        if certificate is not None:
            raise AccessDenied(
                f"no grant of this broker names the certificate of {certificate!r}; add it to one"
            )
        raise AccessDenied("this broker wants to know who connects; show a token or a certificate")

    def of_grant(self, name: str | None) -> Permissions | None:
        """What a grant allows; None if there is none of that name."""
        if not self._permissions:
            return _ALL if name is None else None
        return next((p for grant, p in self._permissions if grant.name == name), None)

    def of_neighbor(self, certificate: str | None) -> Permissions:
        """What a broker may do that this one has dialed, by the certificate it has shown.

        One that shows none, or that no grant names, is what the operator has named as a neighbor.
        """
        for grant, permissions in self._permissions:
            if certificate is not None and grant.certificate == certificate:
                _check_broker(grant)
                return permissions
        return _ALL


def _check_broker(grant: Grant) -> None:
    if not grant.broker:
        raise NotPermitted(
            f"{grant.name!r} may not connect as a broker; set `broker = true` in the grant if it "
            "should"
        )


def _is(grant: Grant, token: str | None, certificate: str | None) -> bool:
    if grant.token is not None and token is not None:
        return compare_digest(grant.token.encode(), token.encode())
    return grant.certificate is not None and grant.certificate == certificate


def _permissions(grant: Grant) -> Permissions:
    publish = [Filter(text) for text in grant.publish]
    subscribe = [Filter(text) for text in grant.subscribe]

    def may_publish(envelope: Envelope) -> bool:
        return any(filter.matches(envelope.facts) for filter in publish)

    def may_subscribe(filter: Filter) -> bool:
        return any(permitted.covers(filter) for permitted in subscribe)

    def may_advertise(filter: Filter) -> bool:
        return any(permitted.covers(filter) for permitted in publish)

    def may_discover(filter: Filter) -> bool:
        return any(permitted.overlaps(filter) for permitted in subscribe)

    publishes_all = grant.publish == _EVERYTHING
    subscribes_to_all = grant.subscribe == _EVERYTHING
    admits, shows = _union(publish), _union(subscribe)
    rights = Rights(grant.name, admits, shows)
    return Permissions(
        grant.name,
        None if publishes_all else may_publish if publish else nothing,
        None if subscribes_to_all else may_subscribe,
        None if publishes_all else may_advertise,
        None if subscribes_to_all or grant.operate else may_discover,
        None if admits is None and shows is None else rights,
        operate=grant.operate,
        broker=grant.broker,
        scopes=grant.scopes,
        audits=grant.scopes,
        names=grant.names,
        attributes=dict(text.split("=", 1) for text in grant.attributes),
        claims=grant.claims,
        allowance=_allowance(grant),
        grant=grant,
    )


def _allowance(grant: Grant) -> Allowance:
    return Allowance(
        overflow=grant.overflow,
        block=math.inf if grant.block is None else grant.block,
        subscriptions=grant.subscriptions,
        durables=grant.durables,
        groups=grant.groups,
        detectors=grant.detectors,
        rate=grant.rate,
        weight=grant.weight,
    )


def _union(filters: list[Filter]) -> Filter | None:
    """What one of them matches; None for everything."""
    union = Filter("false")
    for filter in filters:
        union |= filter
    return None if union.is_always else union
