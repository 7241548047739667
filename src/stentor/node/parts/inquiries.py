"""Inquiries: why a client has a notification, or has not.

Two brokers know the answer. The one where the notification entered has it in its journal, or knows
that it waits there for its time, or was refused. The one where the client is connected knows what
has become of it there. So an administrator asks twice: first every broker for the notification, by
its id, then every broker about the client, showing what was found.

*To find it*, a journal is read from the first entry that can be it: an id holds the time at which
its producer began, and producers' clocks are at most a day ahead. That may take long; it is done in
steps, and a question ends after `LOOKED` entries with the place where the next one goes on.

*To judge it*, each subscription of the client is followed along the way that a notification takes,
and the first decision that stopped it is the answer: its filter, the time at which it began, the
queue and its policy, what the consumer has said of it. What has become of it when is read from the
`trail` as far as that goes back, else from positions, which say whether, but not when.

On the way between brokers it is the routers and the borders that decide. Each broker tells through
which neighbor the stream comes, to which it would send this notification now, and which borders
let it through; whoever asks puts the way together.

All of it is done in steps, and others have turns in between: whatever is looked through is a copy,
or is asked for anew in each step.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from stentor.errors import JournalDamaged, ProtocolError, StentorError
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.mismatch import asked, ranked
from stentor.model.codec import Envelope, decode_header, without_payloads
from stentor.model.dead_letter import is_of
from stentor.model.identity import NotificationId
from stentor.node.border import Borders
from stentor.node.checks import EPOCH_AHEAD
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.interest import Interest
from stentor.node.journals import Journals
from stentor.node.last_values import label
from stentor.node.log import Log
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.durables import Durables
from stentor.node.parts.routing import Routing
from stentor.node.schedule import Schedule
from stentor.node.scopes import Scopes
from stentor.node.sessions import Sessions
from stentor.node.settling import Entry, end_of
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.trail import Ending, Trail, client_of
from stentor.node.ways import Ways
from stentor.notation.counts import counted
from stentor.protocol import messages as m

#: Entries of journals that are looked at for one question, and in one step.
LOOKED: Final = 500_000
LOOKED_AT_ONCE: Final = 1_000
#: Of these, how many are read in one step because they name the producer that is looked for.
DECODED_AT_ONCE: Final = 50
#: Subscriptions of one client that are told of, alternatives of a filter, and parts of each.
TOLD: Final = 100
ALTERNATIVES: Final = 3
PARTS: Final = 20
#: Filters of an inbox that are explained: those that come nearest are looked for among these.
FILTERS: Final = 50
#: Characters of a filter, of a part of it, and of what an event says about that.
CHARACTERS: Final = 1_000

Answer = dict[str, Any]
#: Something that is worked out in steps.
Steps = Generator[None, None, Answer]


class Inquiries:
    """Answers for administrators."""

    def __init__(
        self,
        trail: Trail,
        *,
        subscriptions: Subscriptions,
        sessions: Sessions,
        durables: Durables,
        journals: Journals,
        schedule: Schedule,
        directory: Ways,
        routing: Routing | Carriage,
        borders: Borders,
        clock: Clock,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._trail = trail
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._durables = durables
        self._journals = journals
        self._schedule = schedule
        self._directory = directory
        self._routing = routing
        self._borders = borders
        self._clock = clock

    def asked(self, arguments: dict[str, Any]) -> Steps:
        """Answer the question "why", in steps."""
        match arguments:
            case {"notification": str(text), **rest}:
                try:
                    id = NotificationId.parse(text)
                except StentorError as error:
                    raise ProtocolError(f"notification={text!r} is not an id: {error}") from error
                begin = rest.get("from", {})
                if not isinstance(begin, dict):
                    raise ProtocolError("from= says for each stream at which offset to go on")
                return self._find(id, begin)
            case {
                "client": str(client),
                "stream": str(stream),
                "offset": int(offset),
                "data": bytes(data),
            }:
                return self._judge(client, stream, offset, decode_header(data))
        raise ProtocolError(
            "why= needs the id of a notification, or a client and a notification that was found"
        )

    # -- to find it

    def _find(self, id: NotificationId, begin: dict[Any, Any]) -> Steps:
        scheduled = self._schedule.get(str(id))
        found: list[Answer] = []
        go_on: dict[str, int] = {}
        room = LOOKED
        for stream, head in self._journals.heads().items():
            log = self._journals[stream]
            first = begin.get(stream, 0) if begin else log.offset_at(_earliest(id))
            if begin and not isinstance(first, int):
                raise ProtocolError(f"from= has no offset for {stream!r}")
            if begin and not first:
                continue
            for at, items in _portions(log, first, head):
                if room <= 0:
                    if not found:
                        go_on[stream] = at
                    break
                for i in (yield from _holding(items, id)):
                    found.append(self._found(log, at + i, items[i]))
                room -= len(items)
                yield
        return {
            "broker": self._directory.own.broker,
            "found": found,
            "due": None if scheduled is None else scheduled.due,
            "refused": [r._asdict() | {"id": str(r.id)} for r in self._trail.refusals(id)],
            "more": go_on,
            "brokers": [
                {"broker": o.broker, "addresses": list(o.addresses)}
                for o in islice(self._directory.others, m.MAX_ADDRESSES)
            ],
        }

    def _found(self, log: Log, offset: int, data: bytes) -> Answer:
        return {
            "stream": log.stream,
            "offset": offset,
            "time": _journaled(log, offset, self._clock.time),
            "data": without_payloads([data])[0],
        }

    # -- to judge it

    def _judge(self, client: str, stream: str, offset: int, envelope: Envelope) -> Steps:
        verdicts: list[Answer] = []
        sessions = list(self._sessions.held.values())
        held = yield from self._of(client)
        for subscription in held:
            about = self._about(subscription)
            verdict = yield from self._verdict(subscription, stream, offset, envelope)
            verdicts.append(about | verdict)
            yield
        for durable in (yield from self._kept(client, {each.feed.id for each in held})):
            verdict = yield from self._durable_verdict(durable, stream, offset, envelope)
            verdicts.append(_of(f"durable {durable.label}", durable.interest) | verdict)
            yield
        for ending in self._trail.endings(client)[: max(0, TOLD - len(verdicts))]:
            verdicts.append((yield from self._ended(ending, stream, offset, envelope)))
            yield
        return {
            "broker": self._directory.own.broker,
            "connected": any(session.name == client for session in sessions),
            "verdicts": verdicts[:TOLD],
            "way": self._way(stream, envelope),
            "scopes": self._scopes.stops(envelope),
        }

    def _of(self, client: str) -> Generator[None, None, list[Subscription]]:
        """Subscriptions that the client consumes, and those that are called so; not all."""
        found: list[Subscription] = []
        for i, subscription in enumerate(list(self._subscriptions.held.values())):
            consumers = (self._sessions.held.get(c.session) for c in subscription.consumers)
            if client_of(subscription.feed.id) == client or any(
                session is not None and session.name == client for session in consumers
            ):
                found.append(subscription)
                if len(found) == TOLD:
                    break
            if i % LOOKED_AT_ONCE == 0:
                yield
        return found

    def _kept(self, name: str, seen: set[str]) -> Generator[None, None, list[Durable]]:
        """Durable subscriptions of this name that nobody consumes."""
        found: list[Durable] = []
        for i, durable in enumerate(list(self._durables.held.values())):
            is_other = durable.label == name and f"durable {durable.name}" not in seen
            if is_other and not self._durables.is_attached(durable):
                found.append(durable)
            if i % LOOKED_AT_ONCE == 0:
                yield
        return found[:TOLD]

    def _about(self, subscription: Subscription) -> Answer:
        id = subscription.feed.id
        kind, _, name = id.partition(" ")
        if kind not in ("durable", "group"):
            return _of(f"subscription {id.rpartition('/')[2]}", subscription.interest)
        return _of(f"{kind} {label(name)}", subscription.interest)

    def _verdict(
        self, subscription: Subscription, stream: str, offset: int, envelope: Envelope
    ) -> Steps:
        """What has become of it for a subscription that there is."""
        feed, durable, settling = subscription.feed, subscription.durable, subscription.settling
        hidden = self._scopes.hidden(subscription, envelope)
        if hidden is not None:
            return _said("hidden", hidden)
        if not _matches(subscription.interest, envelope):
            return (yield from _unmatched(subscription.interest, envelope))
        steps = self._trail.steps(feed.id, stream, offset)
        entry = None if settling is None else settling.get((stream, offset))
        if entry is not None:
            return self._unsettled(entry)
        if durable is not None and (verdict := _refused(durable, stream, offset)) is not None:
            return verdict
        given = [step for step in steps if step.what == "delivered"]
        if given:
            last = given[-1]
            whom = self._sessions.held.get(last.session)
            said = self._delivered(last.time, None if whom is None else whom.name, subscription)
            return said | (yield from self._confirmed(subscription, stream, offset, envelope))
        if steps:
            return _said(
                "dropped",
                f"dropped: more than {feed.limit} waited, and its policy is {feed.overflow!r}",
                steps[-1].time,
            )
        match feed.place(stream, offset):
            case "waiting":
                return _said("waiting", self._waits(subscription))
            case "ahead":
                return self._ahead(subscription, stream, offset)
        return (yield from self._passed(subscription, stream, offset, envelope))

    def _unsettled(self, entry: Entry) -> Answer:
        if entry.holder is not None:
            whom = self._sessions.held.get(entry.holder.session)
            name = "" if whom is None else f" to {whom.name!r}"
            begun = "begun and not settled" if entry.begun else "not yet begun"
            return _said("delivered", f"delivered{name}, attempt {entry.attempt}, {begun}")
        if entry.cause:
            wait = max(0.0, entry.due - self._clock.now)
            return _said(
                "resting",
                f"refused {entry.attempt - 1} times, comes again in {wait:.1f} s: {entry.cause}"
                if wait
                else f"refused {entry.attempt - 1} times, comes again: {entry.cause}",
            )
        return _said("waiting", "waits for a consumer, or behind one that was refused")

    def _delivered(self, time: float, whom: str | None, subscription: Subscription) -> Answer:
        to = "" if whom is None or subscription.group is None else f" to {whom!r}"
        return _said("delivered", f"delivered{to}", time)

    def _confirmed(
        self, subscription: Subscription, stream: str, offset: int, envelope: Envelope
    ) -> Steps:
        """Whether what was delivered is confirmed, and if it became a dead letter."""
        durable = subscription.durable
        if durable is None:
            return {}
        letter = yield from self._dead_letter(durable, stream, offset, envelope)
        if letter:
            return letter
        if durable.is_done(stream, offset):
            return {"outcome": "confirmed", "text": "delivered and confirmed"}
        return {"text": "delivered, not confirmed"}

    def _waits(self, subscription: Subscription) -> str:
        if not subscription.consumers:
            return "waits: nobody consumes it"
        credit = sum(consumer.credit for consumer in subscription.consumers)
        reason = "its consumer takes no more now" if credit <= 0 else "others are before it"
        return f"waits in the queue of {len(subscription.feed)}: {reason}"

    def _ahead(self, subscription: Subscription, stream: str, offset: int) -> Answer:
        feed = subscription.feed
        if feed.overflowed:
            return _said(
                "dropped",
                f"not delivered: more than {feed.limit} waited and its policy is 'disconnect'; it "
                "comes when the client has connected again",
            )
        if not self._directory.reaches(stream):
            return _said(
                "unreachable",
                "not yet: there is no way to the broker where it entered; it comes when there is",
            )
        if stream in feed.catching:
            at = feed.positions.get(stream, 0)
            return _said("waiting", f"not yet: reads the journal, and is at {at} of {offset}")
        if feed.volatile:
            return _said("lost", "a volatile subscription, to which it did not come in time")
        return _said("waiting", "not yet: it is on its way")

    def _passed(
        self, subscription: Subscription, stream: str, offset: int, envelope: Envelope
    ) -> Steps:
        """The subscription has gone past it, and the trail does not tell when."""
        feed, durable = subscription.feed, subscription.durable
        began = feed.began.get(stream)
        if durable is not None:
            return (yield from self._durable_verdict(durable, stream, offset, envelope))
        if began is not None and offset <= began:
            return _later()
        if end_of(envelope, feed.lasts) <= self._clock.time:
            return _said("expired", "expired before it could be delivered")
        if self._trail.begin:
            return _said("delivered", "delivered before the time of the oldest delivery noted here")
        return _said(
            "delivered",
            "dealt with over an earlier connection of the client, or before the broker started",
        )

    def _durable_verdict(
        self, durable: Durable, stream: str, offset: int, envelope: Envelope
    ) -> Steps:
        """What is known of it for a durable subscription, whoever consumes it."""
        hidden = self._scopes.hidden_from(durable.interest.within, envelope)
        if hidden is not None:
            return _said("hidden", hidden)
        if not _matches(durable.interest, envelope):
            return (yield from _unmatched(durable.interest, envelope))
        refused = _refused(durable, stream, offset)
        if refused is not None:
            return refused
        if offset <= durable.began.get(stream, -1):
            return _later()
        if durable.is_done(stream, offset):
            letter = yield from self._dead_letter(durable, stream, offset, envelope)
            if letter:
                return letter
            if end_of(envelope, float("inf")) <= self._clock.time:
                return _said("confirmed", "confirmed, or it had expired before")
            return _said("confirmed", "delivered and confirmed")
        if envelope.id is not None and envelope.id in durable.recent:
            return _said("confirmed", "delivered and confirmed, by way of another stream")
        return _said("waiting", "not yet: waits in the journal until somebody consumes it")

    def _dead_letter(self, durable: Durable, stream: str, offset: int, envelope: Envelope) -> Steps:
        """The dead letter of it, among the newest of the own journal; nothing if there is none."""
        log, wanted = self._journals.own, str(envelope.id)
        first = offset + 1 if stream == log.stream else 1
        for _, items in _portions(log, max(first, log.head - LETTERS + 1), log.head):
            for data in items:
                if wanted.encode() not in data:
                    continue
                letter = decode_header(data)
                about = letter.attributes
                if is_of(letter, durable.label, durable.owner) and about.get("original") == wanted:
                    time = None if letter.time is None else letter.time.timestamp()
                    why = f"after {about.get('attempts')} attempts: {about.get('cause')}"
                    return _said("dead-letter", f"became the dead letter {letter.id} {why}", time)
            yield
        return {}

    def _ended(self, ending: Ending, stream: str, offset: int, envelope: Envelope) -> Steps:
        about = _of(f"subscription {ending.id.rpartition('/')[2]}", ending.interest)
        about |= {"ended": ending.time}
        steps = self._trail.steps(ending.id, stream, offset)
        hidden = self._scopes.hidden_from(ending.interest.within, envelope)
        if hidden is not None and not steps:
            return about | _said("hidden", hidden)
        if not _matches(ending.interest, envelope):
            return about | (yield from _unmatched(ending.interest, envelope))
        if steps:
            return about | _said(steps[-1].what, steps[-1].what, steps[-1].time)
        if offset <= ending.began.get(stream, -1):
            return about | _later()
        return about | _said("ended", "the subscription ended before it was delivered")

    # -- the way

    def _way(self, stream: str, envelope: Envelope) -> Answer:
        """What this broker has to do with the stream, and with this notification."""
        source = None if stream in self._journals else self._directory.towards(stream)
        hidden: list[Answer] = []
        for neighbor in self._routing.neighbors:
            border = self._borders.with_(neighbor)
            if border is not None:
                admits, shows = border.passes(envelope)
                if neighbor == source and not admits:
                    hidden.append({"neighbor": self._name(neighbor), "direction": "in"})
                if neighbor != source and not shows:
                    hidden.append({"neighbor": self._name(neighbor), "direction": "out"})
        to: list[str] = []
        if isinstance(self._routing, Routing):
            root = self._directory.root(stream)
            _, targets = self._routing.route_leading([envelope], source, 1, root)
            known = set(self._routing.neighbors)
            to = sorted({self._name(str(d.id)) for d in targets if str(d.id) in known})
        return {
            "enters": stream in self._journals,
            "reaches": self._directory.reaches(stream),
            "from": None if source is None else self._name(source),
            "to": to,
            "hidden": hidden,
        }

    def _name(self, neighbor: str) -> str:
        """What people call a neighbor."""
        origin = self._directory.origin(neighbor)
        return neighbor if origin is None else origin.broker


#: Newest entries of the own journal among which a dead letter is looked for.
LETTERS: Final = 20_000


def _earliest(id: NotificationId) -> float:
    """When it can have been journaled at the earliest, in seconds since 1970."""
    return max(0.0, id.epoch / 1000 - EPOCH_AHEAD)


def _portions(log: Log, first: int, last: int) -> Iterator[tuple[int, list[bytes]]]:
    """Entries of a journal, each portion with its first offset. What is gone is left out."""
    while (first := max(first, log.low, 1)) <= last:
        try:
            items = log.read(first, min(LOOKED_AT_ONCE, last - first + 1))
        except JournalDamaged as error:  # what is damaged is gone, as by retention
            first = (getattr(error, "last", 0) or last) + 1
            continue
        yield first, items
        first += max(1, len(items))


def _holding(items: list[bytes], id: NotificationId) -> Generator[None, None, list[int]]:
    """The indexes of items that have this id; few are decoded."""
    producer = id.producer.encode()
    found = []
    for tried, i in enumerate([i for i, data in enumerate(items) if producer in data], 1):
        if decode_header(items[i]).id == id:
            found.append(i)
        if tried % DECODED_AT_ONCE == 0:
            yield
    return found


def _journaled(log: Log, offset: int, now: float) -> float:
    """When the entry was journaled, in seconds since 1970, to a millisecond."""
    low, high = 0.0, now + 1.0
    while high - low > 0.000_5:
        middle = (low + high) / 2
        if log.offset_at(middle) <= offset:
            low = middle
        else:
            high = middle
    return round(low, 3)


def _matches(interest: Iterable[Filter], envelope: Envelope) -> bool:
    return any(filter.matches(envelope.facts) for filter in interest)


def _of(subscription: str, interest: Interest) -> Answer:
    texts = [str(filter)[:CHARACTERS] for filter in islice(interest, FILTERS)]
    return {"subscription": subscription, "filter": " or ".join(texts) or "everything"}


def _said(outcome: str, text: str, time: float | None = None) -> Answer:
    return {"outcome": outcome, "text": text, "time": time}


def _later() -> Answer:
    return _said("later", "the subscription began after it was published")


def _refused(durable: Durable, stream: str, offset: int) -> Answer | None:
    refusal = durable.refused.get(stream, {}).get(offset)
    if refusal is None:
        return None
    times = counted(refusal.attempts, "time")
    return _said("resting", f"refused {times}, comes again: {refusal.cause}")


def _unmatched(interest: Iterable[Filter], envelope: Envelope) -> Steps:
    """Which part of the filters failed, for the alternatives that come nearest."""
    notification = envelope.notification()
    nearest: list[tuple[int, Conjunct]] = []
    for filter in list(islice(interest, FILTERS)):
        nearest += ranked(filter, notification)[:ALTERNATIVES]
        yield
    told: list[list[Answer]] = []
    for _, conjunct in sorted(nearest, key=itemgetter(0))[:ALTERNATIVES]:
        told.append([])
        for part in islice(asked(conjunct, notification), PARTS):
            text, found = part.text[:CHARACTERS], part.found[:CHARACTERS]
            told[-1].append({"text": text, "holds": part.holds, "found": found})
            yield
    return _said("unmatched", "the filter does not match it") | {"alternatives": told}
