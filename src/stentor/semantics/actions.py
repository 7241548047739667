"""What can be seen of a notification service from outside: its interface actions, in one order.

Conformance is judged on these actions alone (R-01.15). Components act on the service by `Sub`,
`Unsub`, `Adv`, `Unadv` and `Pub`; the service acts on them by `Notify` and nothing else. Two more
kinds of entries are not actions of the interface: `Quiescent` states that at this point nothing is
in flight, neither data nor control messages, and `Internal` stands for any step inside the service,
which never changes a verdict.

Durable subscriptions and groups outlive their readers, who settle what they are given. So more is
seen of these: `Attach`, `Detach` and `CutOff` of readers, `Settle`, and `Again` for what is
delivered again because nobody has settled it. Only `settlement` looks at them.

A component is named by a string. A subscription or advertisement is known by its id, which may be
any hashable value, and ids are apart for each component: two filters that match the same
notifications under different ids are two subscriptions (R-01.14). A notification is known by its
`NotificationId`, so one without an id cannot be published. A lease that runs out is an `Unsub`, or
`Unadv`, at that instant.

The position of an action is its index in the trace. State is read just before an action takes
effect (R-01.16).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, overload

from msgspec import Struct

from stentor.errors import InvalidNotification
from stentor.filters import Filter
from stentor.model import Notification, NotificationId


class Sub(Struct, frozen=True):
    """A component subscribes. Doing so again under an id that is held changes nothing."""

    component: str
    id: Hashable
    filter: Filter

    def __str__(self) -> str:
        return f"sub({self.component}, {self.id}: {self.filter})"


class Unsub(Struct, frozen=True):
    """A component withdraws a subscription, or its lease runs out."""

    component: str
    id: Hashable

    def __str__(self) -> str:
        return f"unsub({self.component}, {self.id})"


class Adv(Struct, frozen=True):
    """A component announces what it intends to publish."""

    component: str
    id: Hashable
    filter: Filter

    def __str__(self) -> str:
        return f"adv({self.component}, {self.id}: {self.filter})"


class Unadv(Struct, frozen=True):
    """A component withdraws an advertisement, or its lease runs out."""

    component: str
    id: Hashable

    def __str__(self) -> str:
        return f"unadv({self.component}, {self.id})"


class _About(Struct, frozen=True):
    """An action on one notification, which has to have an id."""

    component: str
    notification: Notification

    def __post_init__(self) -> None:
        identity(self.notification)

    @property
    def id(self) -> NotificationId:
        return identity(self.notification)


class Pub(_About, frozen=True):
    """A component publishes."""

    def __str__(self) -> str:
        return f"pub({self.component}, {self.id})"


class Notify(_About, frozen=True):
    """The service delivers to a component: the only thing that it does."""

    #: Which reader of the component got it, the how manieth delivery that was said to be, and
    #: whether it may have waited for its reader while others were given it.
    reader: str | None = None
    attempt: int = 1
    late: bool = False

    def __str__(self) -> str:
        return f"notify({self.component}, {self.id})"


class Again(_About, frozen=True):
    """It delivers something again, which is right: nobody had settled it, or it was refused."""

    reader: str | None = None
    attempt: int = 1
    late: bool = False

    def __str__(self) -> str:
        return f"again({self.component}, {self.id}: attempt {self.attempt})"


class ReadingTerms(Struct, frozen=True, omit_defaults=True):
    """How a durable subscription or a group is consumed by a reader.

    durable      what was confirmed is on disk
    shared       there are several readers, so no order is promised
    one_by_one   notifications are settled one by one, and deliveries of each are counted
    overtake     what was refused may be overtaken, or higher priorities come first
    attempts     how often something is given at most; 0 for as often as it takes
    dead_letter  whether there is a dead letter of what was given so often
    exact        whether its reader waits for its home rather than have it taken over
    """

    durable: bool = False
    shared: bool = False
    one_by_one: bool = False
    overtake: bool = False
    attempts: int = 0
    dead_letter: bool = False
    exact: bool = True


class Attach(Struct, frozen=True):
    """A reader begins to consume a durable subscription or a group."""

    component: str
    reader: str
    terms: ReadingTerms

    def __str__(self) -> str:
        return f"attach({self.component}, {self.reader})"


class Detach(Struct, frozen=True):
    """A reader has ended, or has died."""

    component: str
    reader: str

    def __str__(self) -> str:
        return f"detach({self.component}, {self.reader})"


class CutOff(Struct, frozen=True):
    """A reader has lost its connection."""

    component: str
    reader: str

    def __str__(self) -> str:
        return f"cut_off({self.component}, {self.reader})"


class Settle(Struct, frozen=True):
    """What has become of notifications that a reader was given, by a word of `lines`."""

    component: str
    reader: str
    word: str
    ids: tuple[NotificationId, ...]

    def __str__(self) -> str:
        return f"{self.word}({self.component}, {', '.join(map(str, self.ids))})"


class Visibility(Protocol):
    """The relation `⇝` of scoped systems, as it is for a while."""

    def seen(
        self, publisher: str, notification: Notification
    ) -> Iterable[tuple[str, Notification]]:
        """All components that see what is published, whether they want it or not, and as what."""


class Rescoped(Struct, frozen=True):
    """Administrators have changed the scopes; from now on this is visible. For `check_scoped`."""

    view: Visibility

    def __str__(self) -> str:
        return "rescoped"


class Quiescent(Struct, frozen=True):
    """A settling point: no message of any kind is in flight."""

    def __str__(self) -> str:
        return "quiescent"


class Internal(Struct, frozen=True):
    """A step inside the service, invisible at its interface."""

    step: str = ""

    def __str__(self) -> str:
        return f"internal({self.step})"


Action: TypeAlias = (
    Sub
    | Unsub
    | Adv
    | Unadv
    | Pub
    | Notify
    | Quiescent
    | Internal
    | Attach
    | Detach
    | CutOff
    | Again
    | Settle
    | Rescoped
)


def identity(notification: Notification) -> NotificationId:
    """The id of a notification, which it must have by the time it is published."""
    id = notification.id
    if id is None:
        raise InvalidNotification(
            "a notification without an id cannot be told from others; "
            "give it one with replace(id=...) before it is published"
        )
    return id


class Trace(Sequence[Action]):
    """Actions in the order in which they happened, and the recorder that appends them.

    >>> trace = Trace()
    >>> trace.sub("b", "b#1", Filter("x > 1"))
    >>> trace.pub("a", Notification({"x": 2}, id=NotificationId("a", 0, 0)))
    >>> print(trace)
    0  sub(b, b#1: x > 1)
    1  pub(a, a:0:0)
    """

    __slots__ = ("_actions",)

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self._actions = list(actions)

    def append(self, action: Action) -> None:
        self._actions.append(action)

    def pop(self) -> Action:
        """Take back the last action: it was refused."""
        return self._actions.pop()

    def sub(self, component: str, id: Hashable, filter: Filter) -> None:
        self.append(Sub(component, id, filter))

    def unsub(self, component: str, id: Hashable) -> None:
        self.append(Unsub(component, id))

    def adv(self, component: str, id: Hashable, filter: Filter) -> None:
        self.append(Adv(component, id, filter))

    def unadv(self, component: str, id: Hashable) -> None:
        self.append(Unadv(component, id))

    def pub(self, component: str, notification: Notification) -> None:
        self.append(Pub(component, notification))

    def notify(self, component: str, notification: Notification) -> None:
        self.append(Notify(component, notification))

    def quiescent(self) -> None:
        self.append(Quiescent())

    def internal(self, step: str = "") -> None:
        self.append(Internal(step))

    def __len__(self) -> int:
        return len(self._actions)

    @overload
    def __getitem__(self, index: int) -> Action: ...
    @overload
    def __getitem__(self, index: slice) -> Trace: ...
    def __getitem__(self, index: int | slice) -> Action | Trace:
        if isinstance(index, slice):
            return Trace(self._actions[index])
        return self._actions[index]

    def __iter__(self) -> Iterator[Action]:
        return iter(self._actions)

    def __eq__(self, other: object) -> bool:
        return self._actions == other._actions if isinstance(other, Trace) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __str__(self) -> str:
        width = len(str(len(self) - 1))
        return "\n".join(f"{position:{width}}  {self[position]}" for position in range(len(self)))

    def __repr__(self) -> str:
        return f"Trace({self._actions!r})"
