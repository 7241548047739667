"""The journals of the brokers that are listed, as the driver sees them.

A journal is known by its id, wherever it is: when a broker is removed, another one takes its
journal over. So each listed broker is asked which journals it has. A broker that does not answer is
not asked again at once, so that it does not slow the others down; its journals are just not in the
picture meanwhile. If all that it had is elsewhere now, it was removed, and nobody misses it. What
waiting cannot heal, such as a wrong token, is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final, NamedTuple, TypeVar

from stentor.client.backoff import TRANSIENT, Backoff
from stentor.client.direct import Direct
from stentor.errors import InvalidConfiguration, StentorError, Unreachable
from stentor.pipeline.source.options import EARLIEST, Connecting, Offsets

T = TypeVar("T")

#: Seconds for one attempt to reach a broker.
TIMEOUT: Final = 5.0

_log: Final = logging.getLogger("stentor.pipeline")


class JournalPlace(NamedTuple):
    """A journal and where it is."""

    stream: str
    #: The name of the broker where its events entered.
    broker: str
    low: int
    head: int
    #: The address of the broker that has it.
    address: str


class Seen(NamedTuple):
    """What the listed brokers say."""

    #: By id.
    journals: dict[str, JournalPlace]
    #: Names of the brokers that have answered.
    answered: frozenset[str]
    #: Addresses that have not, and why.
    silent: dict[str, StentorError]
    #: Those of them that have something, or may have.
    missed: dict[str, StentorError]


class _Broker:
    """One listed broker: a connection that is kept while it works."""

    def __init__(self, address: str, options: Connecting, timeout: float) -> None:
        self.address = address
        self._options = options
        self._timeout = timeout
        self._direct: Direct | None = None
        #: The journals that it had when it answered last; None if it never has.
        self.streams: frozenset[str] | None = None
        #: When it answered last.
        self._heard = 0.0
        self._backoff = Backoff(0.1, 5.0)
        self._next = 0.0
        self._error: StentorError | None = None

    def ask(self, question: Callable[[Direct], object]) -> StentorError | None:
        """Put a question to it; the error if it does not answer."""
        if self._error is not None and monotonic() < self._next:
            return self._error
        try:
            self._put(question)
        except TRANSIENT as error:
            if self._error is None:
                _log.warning("%s", error)
            self._error = error
            self._next = monotonic() + self._backoff.next()
            return error
        if self._error is not None:
            _log.warning("the broker at %s is back", self.address)
        self._error = None
        self._backoff.reset()
        return None

    def _put(self, question: Callable[[Direct], object]) -> None:
        if self._direct is not None:
            # Between two batches nobody answers the broker's pings, so it may have hung up.
            if monotonic() - self._heard < self._direct.welcome.timeout / 3:
                try:
                    question(self._direct)
                except TRANSIENT:
                    self.close()
                else:
                    self._heard = monotonic()
                    return
            self.close()
        self._direct = opened(self.address, self._options, timeout=self._timeout)
        try:
            question(self._direct)
        except BaseException:
            self.close()
            raise
        self._heard = monotonic()

    def close(self) -> None:
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()


def opened(
    address: str,
    options: Connecting,
    *,
    name: str | None = None,
    timeout: float = TIMEOUT,
    patience: float = 0.0,
) -> Direct:
    """A connection to one broker, with the token and certificates of the options."""
    return Direct(
        address, name=name, token=options.token, tls=options.tls, timeout=timeout, patience=patience
    )


class Journals:
    """Looks at the journals of the listed brokers; use it by `with`, or `close` it."""

    def __init__(self, options: Connecting, *, timeout: float = TIMEOUT) -> None:
        self._options = options
        self._brokers = [_Broker(address, options, timeout) for address in options.brokers]

    def __enter__(self) -> Journals:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()

    def seen(self) -> Seen:
        """What can be seen now."""
        journals: dict[str, JournalPlace] = {}
        answered = set()
        silent = {}
        for broker in self._brokers:

            def look(direct: Direct, broker: _Broker = broker) -> None:
                states = direct.streams()
                answered.add(direct.broker)
                broker.streams = frozenset(state.stream for state in states)
                for state in states:
                    journals.setdefault(state.stream, JournalPlace(*state, broker.address))

            error = broker.ask(look)
            if error is not None:
                silent[broker.address] = error
        removed = [b.address for b in self._brokers if b.streams and b.streams <= journals.keys()]
        missed = {address: e for address, e in silent.items() if address not in removed}
        return Seen(journals, frozenset(answered), silent, missed)

    def all_seen(self, *, at_least: int | None = None) -> Seen:
        """What can be seen as soon as all have answered, or so many; `Unreachable` in the end."""
        wanted = len(self._brokers) if at_least is None else at_least
        deadline = monotonic() + self._options.patience
        backoff = Backoff(0.1, 2.0)
        told = False
        while True:
            seen = self.seen()
            if len(self._brokers) - len(seen.missed) >= wanted:
                return seen
            if not told and self._options.patience > TIMEOUT:
                told = True
                patience = f"{self._options.patience:g}"
                _log.warning("waiting for it up to %s seconds (option patience)", patience)
            if monotonic() >= deadline:
                error = next(iter(seen.missed.values()))
                raise Unreachable(
                    f"{error}. Waited {self._options.patience:g} seconds (option patience); start "
                    "the broker, or take it off the list of brokers"
                )
            sleep(backoff.next())

    def offset_at(self, journal: JournalPlace, since: float) -> int:
        """The first offset of a journal at this time or later."""
        if since <= 0.0:
            return journal.low
        return max(self.ask(journal, lambda d: d.offset_at(journal.stream, since)), journal.low)

    def ask(self, journal: JournalPlace, question: Callable[[Direct], T]) -> T:
        """Ask the broker that has a journal; raises what is wrong with it."""
        (broker,) = (each for each in self._brokers if each.address == journal.address)
        found: list[T] = []
        error = broker.ask(lambda direct: found.append(question(direct)))
        if error is not None:
            raise error
        return found[0]

    def offset_of(self, journal: JournalPlace, wanted: str | Offsets | float, default: str) -> int:
        """The offset of a journal that an option means; `default` if it does not name it."""
        if isinstance(wanted, (int, float)):
            return self.offset_at(journal, float(wanted))
        if isinstance(wanted, str):
            return journal.low if wanted == EARLIEST else journal.head + 1
        chosen = wanted.get(journal.stream, wanted.get(journal.broker, default))
        if isinstance(chosen, str):
            return self.offset_of(journal, chosen, default)
        if chosen > journal.head + 1:
            raise InvalidConfiguration(
                f"offset {chosen} of {journal.broker!r} is not there yet: its journal "
                f"{journal.stream!r} ends at {journal.head}"
            )
        return chosen

    @staticmethod
    def check_named(seen: Seen, wanted: object, option: str) -> None:
        """Raise if offsets are given for a broker or journal that nobody knows."""
        if isinstance(wanted, dict) and not seen.silent:
            known = {j.stream for j in seen.journals.values()}
            known |= {j.broker for j in seen.journals.values()}
            unknown = sorted(set(wanted) - known)
            if unknown:
                raise InvalidConfiguration(
                    f"{option} names {unknown[0]!r}, which is neither a listed broker nor a "
                    f"journal of one; there are {', '.join(sorted(known))}"
                )


@contextmanager
def holder(
    stream: str, options: Connecting, hint: str | None = None
) -> Iterator[tuple[Direct, JournalPlace] | None]:
    """A connection to the broker that has a journal; None if all answer and none has it.

    Waits for brokers that are down as long as `patience` says; `Unreachable` then. The connection
    itself has no patience: if it is lost, the journal may be elsewhere.
    """
    addresses = sorted(options.brokers, key=lambda address: address != hint)
    deadline = monotonic() + options.patience
    backoff = Backoff(0.1, 2.0)
    while True:
        silent: StentorError | None = None
        for address in addresses:
            direct = opened(address, options, patience=0.0)
            try:
                states = {state.stream: state for state in direct.streams()}
            except TRANSIENT as error:
                direct.close()
                silent = silent or error
                continue
            except BaseException:
                direct.close()
                raise
            try:
                if stream in states:
                    yield direct, JournalPlace(*states[stream], address)
                    return
            finally:
                direct.close()
        if silent is None:
            yield None
            return
        if monotonic() >= deadline:
            raise Unreachable(
                f"{silent}. The journal {stream!r} is on none of the brokers that answer; waited "
                f"{options.patience:g} seconds (option patience)"
            )
        sleep(backoff.next())
