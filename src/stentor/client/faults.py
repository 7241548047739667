"""Errors that came over the wire, as the classes of `stentor.errors`."""

from __future__ import annotations

from typing import Final

from stentor import errors

_BY_CODE: Final[dict[str, type[errors.StentorError]]] = {
    each.code: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.StentorError)
}

#: Refusals that no waiting heals: the application, or who runs the broker, has to act.
PERMANENT: Final = (
    errors.AccessDenied,
    errors.NotPermitted,
    errors.ProtocolError,
    errors.TlsError,
    errors.InvalidAddress,
)

#: Refusals that pass: a broker that is down or about to be, has too much to do, or a full disk.
TRANSIENT: Final = (
    errors.Unreachable,
    errors.ShuttingDown,
    errors.Overloaded,
    errors.JournalUnavailable,
)


def error_of(code: str, message: str) -> errors.StentorError:
    """The error that a broker reported.

    >>> error_of("STN-604", "ann may not publish here")
    NotPermitted('ann may not publish here')
    >>> error_of("STN-999", "of a later release")
    StentorError('of a later release (STN-999)')
    """
    known = _BY_CODE.get(code)
    if known is None:
        return errors.StentorError(f"{message} ({code})")
    return known(message)
