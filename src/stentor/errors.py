"""Every error that Stentor raises on purpose.

All derive from `StentorError`, so one `except` catches them; each class also derives from the
built-in exception that a Python programmer would expect (`ValueError`, `KeyError`), and carries a
stable identifier in `code` that logs and documentation can refer to.
"""

from typing import ClassVar, Final


class StentorError(Exception):
    """Base of all errors of Stentor."""

    code: ClassVar[str] = "STN-000"


class InvalidValue(StentorError, ValueError):
    """A value that no attribute can hold: NaN, an integer beyond 64 bits, a naive time, ..."""

    code = "STN-101"


class InvalidNotification(StentorError, ValueError):
    """Attributes that do not form a notification: none at all, clashing or over-long names, ..."""

    code = "STN-102"


class DecodeError(StentorError, ValueError):
    """Bytes that are not an encoded notification. The only error that decoding raises."""

    code = "STN-103"

    #: Where several are decoded: which one it is.
    index: int | None = None


class UnknownEventType(StentorError, ValueError):
    """An event type that was never declared, or a declaration that contradicts another."""

    code = "STN-104"


class FilterSyntaxError(StentorError, ValueError):
    """Text that is not a filter. `str()` shows the place with a caret and what was expected."""

    code = "STN-201"

    def __init__(
        self, message: str, *, line: int = 1, column: int = 1, expected: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.expected = expected


class FilterTypeError(StentorError, TypeError):
    """An operator applied to a constant that it has no meaning for."""

    code = "STN-202"


class FilterTooComplex(StentorError, ValueError):
    """A filter whose disjunctive form would be too large, or too much work for a broker."""

    code = "STN-203"


class UnsupportedPattern(StentorError, ValueError):
    """A regular expression with a construct that is not regular, or that is too large."""

    code = "STN-204"


class NeverMatches(StentorError, ValueError):
    """A filter that no event can match, where one was asked for that can (`strict=True`)."""

    code = "STN-205"


class FilterWarning(UserWarning):
    """A filter that nothing can match, or that reads otherwise than it was probably meant."""


class DuplicateKey(StentorError, ValueError):
    """A filter was added under a key that is already in use."""

    code = "STN-301"


class UnknownKey(StentorError, KeyError):
    """A filter was to be removed, but nothing is stored under its key."""

    code = "STN-302"

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class UnsupportedColumn(StentorError, TypeError):
    """A column of a record batch whose Arrow type holds no attribute values."""

    code = "STN-303"


class UnsupportedFilter(StentorError, TypeError):
    """A filter that a matching engine of limited power cannot hold (see R-02.60 to R-02.66)."""

    code = "STN-304"


class UnknownStrategy(StentorError, ValueError):
    """A strategy, mapping or policy that does not exist. The message lists those that do."""

    code = "STN-401"


class InvalidTopology(StentorError, ValueError):
    """Brokers and links that do not form what the chosen overlay needs."""

    code = "STN-402"


class UnknownBroker(StentorError, KeyError):
    """A broker that is not part of the network."""

    code = "STN-403"

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class DuplicateBroker(StentorError, ValueError):
    """A second broker with an id that is taken."""

    code = "STN-404"


class UnknownClient(StentorError, KeyError):
    """A client that is not, or no longer, part of the network."""

    code = "STN-405"

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class InvalidConfiguration(StentorError, ValueError):
    """Options that make no sense, or not together."""

    code = "STN-406"


class UnsupportedMapping(StentorError, TypeError):
    """A filter that the chosen rendezvous mapping cannot carry. The message says which part."""

    code = "STN-407"


class NotAdvertised(StentorError, ValueError):
    """A notification that none of its publisher's advertisements matches, published strictly."""

    code = "STN-408"


class Unsettled(StentorError, RuntimeError):
    """A simulated network that does not come to rest."""

    code = "STN-501"


class RepeatedPublication(StentorError, ValueError):
    """A notification whose id was published before; each is published at most once."""

    code = "STN-409"


class InvalidScopeGraph(StentorError, ValueError):
    """A change that would break the scope graph, or a definition that makes no sense."""

    code = "STN-410"


class UnknownScope(StentorError, KeyError):
    """A scope, or a component, that is not part of the scope graph."""

    code = "STN-411"

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class ScopesElsewhere(StentorError, PermissionError):
    """A change of the scope graph, asked of a broker that does not order changes."""

    code = "STN-413"


class ScopeSyntaxError(StentorError, ValueError):
    """Text that is not in the scope graph language. `str()` shows the place with a caret."""

    code = "STN-412"

    def __init__(
        self, message: str, *, line: int = 1, column: int = 1, expected: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.expected = expected


class InvalidPattern(StentorError, ValueError):
    """A pattern over events that makes no sense, or is too large to be compiled."""

    code = "STN-420"


class PatternSyntaxError(InvalidPattern):
    """Text that is not a pattern over events. `str()` shows the place with a caret."""

    code = "STN-421"

    def __init__(
        self, message: str, *, line: int = 1, column: int = 1, expected: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.expected = expected


class DetectorFull(StentorError, RuntimeError):
    """A detector that has reached a limit, and was told to stop there."""

    code = "STN-422"


class ProtocolError(StentorError, ValueError):
    """Bytes or messages that break the wire protocol. They cost the connection."""

    code = "STN-601"


class Unreachable(StentorError, ConnectionError):
    """No broker could be reached, or the connection was lost and could not be made again."""

    code = "STN-602"


class AccessDenied(StentorError, PermissionError):
    """A broker that does not know who this is: a wrong token, or none, or a certificate."""

    code = "STN-603"


class NotPermitted(StentorError, PermissionError):
    """A client that may not publish, subscribe to, or ask for this."""

    code = "STN-604"


class NameTaken(StentorError, ValueError):
    """A name that is in use by another: of a broker, a client or a durable subscription."""

    code = "STN-605"


class JournalDamaged(StentorError, OSError):
    """A journal with missing or altered contents. The message says what is affected."""

    code = "STN-606"


class JournalUnavailable(StentorError, OSError):
    """A journal that cannot be written, such as on a full disk: nothing was stored."""

    code = "STN-607"


class InvalidAddress(StentorError, ValueError):
    """Text that is no address of a broker, or an address at which nobody can listen."""

    code = "STN-608"


class TlsError(StentorError, ConnectionError):
    """Certificates or keys that are missing, do not fit, or are not trusted."""

    code = "STN-609"


class Overloaded(StentorError, RuntimeError):
    """A limit was reached: of clients, subscriptions, sizes, or of what may wait."""

    code = "STN-610"


class LeaseExpired(StentorError, TimeoutError):
    """A subscription that was not renewed in time."""

    code = "STN-611"


class NoReply(StentorError, TimeoutError):
    """A request that nobody, or the broker, answered in time."""

    code = "STN-612"


class NobodyProvides(NoReply):
    """A request that matches nobody who replies, so that waiting is in vain."""

    code = "STN-627"


class ProviderFailed(StentorError, RuntimeError):
    """A request whose provider has raised an error: its class in `kind`, its text in `reason`."""

    code = "STN-628"

    def __init__(self, message: str, *, kind: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.reason = reason


class ShuttingDown(StentorError, ConnectionError):
    """A broker, or client, that is being closed and takes nothing new."""

    code = "STN-613"


class LinkRefused(StentorError, ConnectionError):
    """Two brokers that may not be linked: the same one twice, or a link that closes a cycle."""

    code = "STN-614"


class GroupElsewhere(StentorError, RuntimeError):
    """A group of consumers that lives at another broker; the message says where."""

    code = "STN-615"


class DurableElsewhere(StentorError, RuntimeError):
    """A durable subscription that lives at another broker; the message says where."""

    code = "STN-625"


class TransactionLost(StentorError, RuntimeError):
    """A transaction has taken something that another consumer has now, or has dealt with."""

    code = "STN-626"


class DataInUse(StentorError, OSError):
    """A data directory that another broker is using."""

    code = "STN-616"


class Vetoed(StentorError, RuntimeError):
    """A hook forbade the operation."""

    code = "STN-617"


class HistoryGone(StentorError, LookupError):
    """A part of a stream that was asked for is no longer, or not yet, in its journal."""

    code = "STN-618"


class QueueOverflow(StentorError, RuntimeError):
    """A subscriber that was too slow, under the policy that disconnects such."""

    code = "STN-619"


class RedirectRefused(StentorError, PermissionError):
    """A broker named another at which this client has no reason to show its token, or itself."""

    code = "STN-620"


class PipelineError(StentorError, RuntimeError):
    """A step of the data pipeline that cannot be made or cannot go on."""

    code = "STN-701"


class PipelineDefinitionError(StentorError, ValueError):
    """A pipeline that is not written as it should be."""

    code = "STN-702"


class ArchiveError(StentorError, OSError):
    """An archive that is not one, or not whole."""

    code = "STN-703"


_BY_CODE: Final = {
    each.code: each
    for each in list(vars().values())
    if isinstance(each, type) and issubclass(each, StentorError)
}


def error_of(code: str, message: str) -> StentorError:
    """The error with this code, as when a broker has reported it.

    >>> error_of("STN-604", "ann may not publish here")
    NotPermitted('ann may not publish here')
    >>> error_of("STN-999", "of a later release")
    StentorError('of a later release (STN-999)')
    """
    known = _BY_CODE.get(code)
    return StentorError(f"{message} ({code})") if known is None else known(message)
