"""Questions: what clients and operators ask of a broker, and what it answers.

`_ANSWERS` says what each question means. Some are answered at once; a long answer is made in
pieces, between which others have their turns, or waits for something. Each client may have a few
questions waiting. Only what `FOR_CLIENTS` names is for everybody; the rest is for operators, but
for scopes, which grants allow apart from everything else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

from stentor.broker import durables, report, scopes
from stentor.broker.access import Permissions
from stentor.broker.peers import ConnectedClient
from stentor.broker.replacement import replace_link
from stentor.errors import NotPermitted, Overloaded, ProtocolError, StentorError
from stentor.filters import Filter
from stentor.protocol import messages as m

if TYPE_CHECKING:
    from stentor.broker.host import Broker

_log: Final = logging.getLogger("stentor.broker")

#: Questions of one client that may wait to be answered.
MAX_QUESTIONS: Final = 16
#: What every client may ask.
FOR_CLIENTS: Final = ("offers", "streams", "where", "brokers", "cancel", "provided")


class Questions:
    """Answers what is asked of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def asked(self, client: ConnectedClient, ask: m.Ask) -> None:
        """A client or an operator asks something."""
        try:
            by_scopes = ask.what == "scopes" and client.permissions.scopes
            if ask.what not in FOR_CLIENTS and not (client.permissions.operate or by_scopes):
                raise NotPermitted(
                    f"{client.name!r} may not operate this broker; set `operate = true` in the "
                    "grant if it should"
                )
            if client.questions >= MAX_QUESTIONS:
                raise Overloaded(f"{MAX_QUESTIONS} questions wait already; wait for their answers")
            if ask.what not in _ANSWERS:
                raise ProtocolError(f"there is no question {ask.what!r}")
            answer = _ANSWERS[ask.what](self._broker, ask.arguments, client)
        except StentorError as error:
            client.connection.send(m.Failure(error.code, str(error), ask.number))
            return
        if asyncio.iscoroutine(answer):
            client.questions += 1
            self._broker.start_soon(self._answer_later(client, ask, answer))
        else:
            client.connection.send(m.Done(ask.number, answer))

    async def _answer_later(self, client: ConnectedClient, ask: m.Ask, answer: Any) -> None:
        try:
            client.connection.send(m.Done(ask.number, await answer))
        except StentorError as error:
            client.connection.send(m.Failure(error.code, str(error), ask.number))
        except Exception as error:
            _log.exception("the question %r failed", ask.what)
            text = f"an error of the broker, which its log explains: {error}"
            client.connection.send(m.Failure(StentorError.code, text, ask.number))
        finally:
            client.questions -= 1


async def _in_turn(
    broker: Broker, client: ConnectedClient, steps: Generator[None, None, Any]
) -> Any:
    """A long answer; while it is made, others have turns."""
    lock = client.answering = client.answering or asyncio.Lock()
    async with lock:
        return await broker.rota.run(steps)


def _offers(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    text = arguments.get("overlapping")
    if text is not None and (not isinstance(text, str) or len(text) > m.MAX_FILTER):
        raise ProtocolError("overlapping= is not a filter, or too long a one")
    overlapping = None if text is None else Filter.received(text)
    if broker.core.scopes.active and not client.is_operator:
        raise NotPermitted(
            "where there are scopes, nobody is told what others offer; ask as an operator"
        )
    return _in_turn(broker, client, _offered(broker, overlapping, client.permissions))


def _offered(
    broker: Broker, overlapping: Filter | None, permissions: Permissions
) -> Generator[None, None, list[str]]:
    """What is advertised and may be known, one after the other."""
    found = []
    visible = permissions.discover
    for filter in broker.core.offers():
        if (overlapping is None or filter.overlaps(overlapping)) and (
            visible is None or visible(filter)
        ):
            found.append(str(filter))
        yield
    return found


def _streams(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    since = arguments.get("since")
    if since is not None and not isinstance(since, int | float):
        raise ProtocolError(f"since={since!r} is not a time; give seconds since 1970")
    return broker.core.streams(since)


def _where(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    name = arguments.get("broker")
    if not isinstance(name, str):
        raise ProtocolError(f"broker={name!r} is not a name of a broker")
    directory = broker.core.directory
    named = (o for o in (directory.own, *directory.others) if o.broker == name)
    return list(next((origin.addresses for origin in named), ()))


def _brokers(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return [[origin.broker, list(origin.addresses)] for origin in broker.core.directory.others]


def _provided(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return broker.core.is_provided(client.id, arguments.get("request"))


async def _cancel(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> bool:
    """Whether something that is to be delivered later will not be."""
    id = arguments.get("id")
    if not isinstance(id, str):
        raise ProtocolError(f"id={id!r} is not an id of a publication")
    answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answer(cancelled: bool, error: StentorError | None) -> None:
        if not answered.done():
            if error is None:
                answered.set_result(cancelled)
            else:
                answered.set_exception(error)

    session = broker.core.sessions.get(client.id)
    if session is None:
        return False
    broker.core.scheduling.cancel(session, id, answer)
    broker.changed()
    return await answered


def _status(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return _in_turn(broker, client, report.status_in_steps(broker))


def _links(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    for address in arguments.get("add", []):
        broker.links.add(str(address))
    for which in arguments.get("remove", []):
        broker.links.remove(str(which))
    if "replace" in arguments:
        return _replace(broker, arguments["replace"])
    return report.status(broker)["links"]


async def _replace(broker: Broker, given: Any) -> Any:
    if not isinstance(given, list) or len(given) != 2:
        raise ProtocolError("replace= is a list of two: the old neighbor and the new one")
    await replace_link(broker, *map(str, given))
    return report.status(broker)["links"]


def _durables(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return durables.asked(broker, arguments)


def _why(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return _in_turn(broker, client, broker.core.inquiries.asked(arguments))


def _drain(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return broker.succession.drain()


def _reload(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return broker.reloading.asked(client)


def _backup(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    return report.backup_source(broker)


#: What each question means: an answer, or something to wait for that gives it.
_ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "offers": _offers,
    "streams": _streams,
    "where": _where,
    "brokers": _brokers,
    "cancel": _cancel,
    "provided": _provided,
    "status": _status,
    "links": _links,
    "durables": _durables,
    "scopes": scopes.asked,
    "why": _why,
    "drain": _drain,
    "reload": _reload,
    "backup": _backup,
}
