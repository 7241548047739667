"""Replacing a link of a tree, planned, without losing anything (R-07.67, 07/§4.9).

The link a–b goes and c–d comes. Both trees differ only on the cycle that the two links close
together, that is, for the brokers on the way from c to d: everybody else sees the same filters
in the same direction before and after. So only these brokers take part. Seen from the old tree
they form the line c … a–b … d, seen from the new one the line a … c–d … b.

Each of them keeps a router for each tree while the change lasts: the old one, and a new one, which
starts with what its clients and its neighbors off the line ask for. Messages of the new tree travel
wrapped (`Ahead`). Both routers learn of every change, so nothing has to stand still. A
notification belongs to one tree from the first broker of the line it meets until it leaves the
line, and is thus neither lost nor doubled. The steps:

  1. `prepare`, along the old line from c to d: set up the new router, announce what it asks for.
  2. `sweep`, along the new line and back. Links keep the order, so when it has come back every
     new router knows everything.
  3. `switch`, along the new line: from now on notifications that enter the line use the new tree.
  4. `switched`, back from the end of the new line to c: now all do.
  5. `drain`, along the old line and back: what came before it is through, nothing of the old tree
     is left behind. On its way back, each broker drops its old router, says `commit` to its
     neighbors on the new line, from where on its messages are no longer wrapped, and tells its
     neighbors off the line if they must know anything.

If a link of the cycle fails meanwhile, what is left of the cycle, the other link of the two
included, is still a tree. So a broker that has not committed gives up: it keeps its old router,
takes all neighbors that it has on either line, and begins afresh with each of them (`Restart`). It
tells them, and they do the same. A broker that has committed just answers a neighbor that begins
afresh, or says that it has hung up on it. What was on its way may be lost then, as with any
failure.

A change that need not be lossless skips 4 and 5: a broker commits as soon as it switches, and what
is still on its way in the old tree is dropped. This is the book's reconfiguration path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from stentor.model.notification import Notification
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate, Update
from stentor.routing.protocol import BrokerId, Close, Kind, Message, Output, Outputs, Send
from stentor.routing.table import Local
from stentor.routing.tree.router import TreeRouter


class Plan(Struct, frozen=True):
    """A planned replacement: the line of the old tree from c to d, and where it is cut."""

    number: int
    line: tuple[BrokerId, ...]
    #: The link that goes leads from this place of the line to the next.
    cut: int
    lossless: bool = True

    @property
    def new_line(self) -> tuple[BrokerId, ...]:
        return (*self.line[: self.cut + 1][::-1], *self.line[self.cut + 1 :][::-1])


Name: TypeAlias = Literal[
    "prepare", "sweep", "swept", "switch", "switched", "drain", "drained", "commit", "abandon"
]


class Forward(Message, frozen=True):
    """A notification on its way."""

    kind: ClassVar[Kind] = "notification"

    notification: Notification


class ChangeStep(Message, frozen=True):
    """One step of a planned change, passed on along a line."""

    kind: ClassVar[Kind] = "control"

    plan: Plan
    name: Name


class Restart(Message, frozen=True):
    """The sender has forgotten all that was said over this link, and begins afresh."""

    kind: ClassVar[Kind] = "control"


class HungUp(Message, frozen=True):
    """The sender no longer uses this link."""

    kind: ClassVar[Kind] = "control"


class Ahead(Message, frozen=True):
    """A message of the new tree."""

    plan: int
    message: Forward | Update


class AheadForward(Ahead, frozen=True):
    kind: ClassVar[Kind] = "notification"


class AheadSubscription(Ahead, frozen=True):
    kind: ClassVar[Kind] = "subscription"


class AheadAdvertisement(Ahead, frozen=True):
    kind: ClassVar[Kind] = "advertisement"


#: All that a planned change adds to the traffic of a tree.
CHANGE_MESSAGES = (ChangeStep, Restart, HungUp, Ahead)

_WRAPPERS: dict[type[Message], type[Ahead]] = {
    Forward: AheadForward,
    SubscriptionUpdate: AheadSubscription,
    AdvertisementUpdate: AheadAdvertisement,
}


class LinkChange:
    """One broker's part in a planned change, until all its neighbors on the line have committed."""

    def __init__(self, id: BrokerId, plan: Plan, old: TreeRouter, new: TreeRouter) -> None:
        self.plan = plan
        self.old = old
        self.new = new
        self.committed = False
        self._switched = False
        self._old_left, self._old_right = _beside(plan.line, id)
        self._left, self._right = _beside(plan.new_line, id)
        self.on_line = {n for n in (self._old_left, self._old_right) if n is not None}
        self.on_new_line = {n for n in (self._left, self._right) if n is not None}
        #: Neighbors whose messages are no longer wrapped, though they are of the new tree.
        self._marked: set[BrokerId] = set()
        for neighbor in (*self._off_line, *self._beside):
            new.plane.add_neighbor(neighbor)
        for destination in old.plane.destinations:
            if isinstance(destination, Local) or destination.id not in self.on_line:
                new.plane.copy_entries(old.plane, destination)

    @property
    def ring(self) -> list[BrokerId]:
        """The neighbors on either line."""
        both = (self._old_left, self._old_right, self._left, self._right)
        return list(dict.fromkeys(n for n in both if n is not None))

    def mark(self, neighbor: BrokerId) -> None:
        """From now on the neighbor's messages are not wrapped, and of the new tree."""
        self._marked.add(neighbor)

    @property
    def over(self) -> bool:
        return self.committed and self._marked >= self.on_new_line

    def of_new_tree(self, sender: BrokerId) -> bool | None:
        """To which tree an unwrapped message belongs; None if to one that is gone."""
        if sender not in self.ring or sender in self._marked:
            return True
        return None if self.committed else False

    def takes(self, sender: BrokerId | None) -> bool:
        """Whether what this sender brings uses the new tree; on entering the line, once switched.

        Of what comes along the line, this is asked only if it came in the new tree.
        """
        return self._switched or sender in self.ring

    def told(self, outputs: Outputs) -> Outputs:
        """What the neighbors on the new line are to be told; the others hear of it at the end."""
        return self.carried([o for o in outputs if self.committed or _to(o) in self.on_new_line])

    def carried(self, outputs: Outputs) -> Outputs:
        """What goes out in the new tree, wrapped where it goes along the line."""
        if self.committed:
            return outputs
        return [self._wrapped(o) if _to(o) in self.on_new_line else o for o in outputs]

    def _wrapped(self, output: Output) -> Send:
        assert isinstance(output, Send)
        message = output.message
        assert isinstance(message, Forward | Update)
        return Send(output.to, _WRAPPERS[type(message)](self.plan.number, message))

    # -- the steps

    def begin(self) -> Outputs:
        """Prepared: pass it on, and announce in the new plane."""
        outputs = self._pass("prepare", self._old_right)
        outputs += self.told(self.new.tell())
        if self._left is None:
            outputs += self._pass("sweep", self._right)
        return outputs

    def step(self, name: Name, sender: BrokerId) -> Outputs:
        """A step has arrived; the answer passes it on, or turns it into the next."""
        steps: dict[Name, Callable[[], Outputs]] = {
            "sweep": lambda: self._pass("sweep", self._right, or_else="swept", back=self._left),
            "swept": lambda: self._pass("swept", self._left) or self._switch(),
            "switch": self._switch,
            "switched": lambda: (
                self._pass("drain", self._old_right)
                if self._old_left is None
                else self._pass("switched", self._left)
            ),
            "drain": lambda: (
                self._pass("drain", self._old_right)
                or self._pass("drained", self._old_left) + self._commit()
            ),
            "drained": lambda: self._pass("drained", self._old_left) + self._commit(),
        }
        if name == "commit":
            self.mark(sender)
            return []
        return steps[name]()

    def _pass(
        self,
        name: Name,
        to: BrokerId | None,
        *,
        or_else: Name | None = None,
        back: BrokerId | None = None,
    ) -> Outputs:
        if to is None:
            return [] if or_else is None else self._pass(or_else, back)
        return [Send(to, ChangeStep(self.plan, name))]

    def _switch(self) -> Outputs:
        self._switched = True
        outputs = self._pass("switch", self._right)
        if not self.plan.lossless:
            return outputs + self._commit()
        if self._right is None:
            outputs += self._pass("switched", self._left)
        return outputs

    def _commit(self) -> Outputs:
        outputs = self.told(self.new.tell())
        for neighbor in self._off_line:
            updates = self.new.plane.differences(self.old.plane, neighbor)
            outputs += [Send(neighbor, message) for message in updates]
        self.committed = True
        outputs += [Send(to, ChangeStep(self.plan, "commit")) for to in self._beside]
        outputs += [Close(n) for n in self.on_line - self.on_new_line]
        return outputs

    @property
    def _beside(self) -> list[BrokerId]:
        """The neighbors on the new line."""
        return [n for n in (self._left, self._right) if n is not None]

    @property
    def _off_line(self) -> list[BrokerId]:
        """The neighbors that have no part in the change."""
        return [n for n in self.old.plane.subscriptions.neighbors if n not in self.on_line]


def _beside(line: tuple[BrokerId, ...], id: BrokerId) -> tuple[BrokerId | None, BrokerId | None]:
    at = line.index(id)
    return (
        line[at - 1] if at else None,
        line[at + 1] if at + 1 < len(line) else None,
    )


def _to(output: Output) -> BrokerId | None:
    return output.to if isinstance(output, Send) else None
