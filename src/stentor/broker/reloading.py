"""New grants, tokens, certificates, limits and retention for a broker that goes on running.

The settings are read and checked as a whole, beside the event loop: what is wrong with them is
raised, and nothing changes. What is good is put in force in one step for everybody who connects
from then on. Then those who are connected are looked at one after the other, while the broker
serves the others:

- whose token or certificate no grant names any longer, or names another grant, is told so and
  disconnected, and so is a broker that may no longer be a neighbor;
- whose grant has changed goes on under what it says now. Whoever has asked for more than that, has
  been promised more (a larger window or frame), or has shown a certificate of an authority that
  is another now, is sent away and may connect again: clients do so by themselves, take up
  their subscriptions where they were, and are refused what they may no longer have;
- a link whose grant has changed is made again, since both sides have to tell each other anew what
  may cross it. What is journaled is not lost by that.

What decides how a broker is made, such as its name or its overlay, changes with a restart only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields, replace
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final

from stentor.broker.access import Access
from stentor.broker.settings import Grant, Settings, TlsFiles
from stentor.errors import (
    AccessDenied,
    InvalidConfiguration,
    NotPermitted,
    StentorError,
    TlsError,
)
from stentor.node.bounds import Bounds
from stentor.protocol import messages as m
from stentor.transport import Connection, Room, client_context, server_context
from stentor.transport.tls import expiry

if TYPE_CHECKING:
    from stentor.broker.host import Broker
    from stentor.broker.peers import ConnectedClient, Link

_log: Final = logging.getLogger("stentor.broker")

#: The settings that can change while the broker runs.
RELOADED: Final = ("grants", "token", "tls", "limits", "retention", "log_level")
#: What of a grant can change under a session that stands. The rest says who somebody is, such as
#: its place among scopes, and is asked when it connects.
IN_PLACE: Final = (
    *("token", "certificate", "publish", "subscribe", "operate", "broker", "overflow", "block"),
    *("subscriptions", "durables", "groups", "detectors", "rate", "weight"),
)
#: Bytes of frames that are not complete, of all connections together; but four always fit.
HALF_FRAMES: Final = 256 * 2**20
#: Seconds before its end from which on a certificate is warned of.
SOON: Final = 14 * 86_400.0


def bounds_of(settings: Settings) -> Bounds:
    """What the core has to keep of the settings."""
    limits = settings.limits
    return Bounds(
        subscriptions=limits.subscriptions_per_client,
        durables=limits.durables,
        groups=limits.groups,
        detectors=limits.detectors,
        scheduled=limits.scheduled,
        scheduled_bytes=limits.scheduled_bytes,
        owners=tuple(grant.name for grant in settings.grants),
        window=limits.window,
        queue=limits.queue,
        block=limits.block,
    )


def room_of(settings: Settings) -> Room:
    """Room for frames that are not complete yet."""
    return Room(max(HALF_FRAMES, 4 * settings.limits.frame))


@dataclass(frozen=True)
class Certificates:
    """What the files of TLS say, as it was when they were read."""

    for_listening: SSLContext | None = None
    for_dialing: SSLContext | None = None
    #: The authority that others need to be certified by.
    ca: bytes | None = None
    #: When the own certificate ends, in seconds since 1970.
    expires: float | None = None
    #: What is shown, as it was read: one that is new may expire with the old one.
    shown: bytes | None = None

    @classmethod
    def load(cls, files: TlsFiles | None) -> Certificates:
        """Read the files; `TlsError` says which is wrong."""
        if files is None:
            return cls()
        return cls(
            server_context(files.certificate, files.key, files.ca),
            client_context(files.ca, files.certificate, files.key),
            files.ca.read_bytes() if files.ca else None,
            expiry(files.certificate, files.key),
            files.certificate.read_bytes(),
        )

    def warn(self) -> None:
        """Say so in the log if the certificate has expired, or does soon."""
        if self.expires is None or self.expires - time.time() > SOON:
            return
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.expires))
        if self.expires > time.time():
            _log.warning("the certificate expires on %s", day, extra={"event": "certificate"})
        else:
            _log.error(
                "the certificate expired on %s, so nobody who checks it connects; put a new one "
                "in its place and run `stentor reload`",
                day,
                extra={"event": "certificate"},
            )


class Reloading:
    """Puts new settings in force."""

    def __init__(self, broker: Broker, source: Callable[[], Settings] | None) -> None:
        self._broker = broker
        self._source = source
        self._one_at_a_time = asyncio.Lock()
        #: Called with the settings that are in force now.
        self.at_reload: Callable[[Settings], object] = lambda settings: None
        self.done = 0
        self.failed = 0
        #: Whether the last one failed.
        self.is_failing = False

    async def asked(self, client: ConnectedClient) -> dict[str, Any]:
        """An operator asks for it. If its own grant is gone, it is told so behind the answer."""
        found = await self.reload(asker=client)
        try:
            self._broker.access.admit(client.hello, client.connection.peer_certificate)
        except StentorError as error:
            asyncio.get_running_loop().call_soon(client.dismiss, error.code, str(error))
        return found

    async def reload(
        self, settings: Settings | None = None, *, asker: ConnectedClient | None = None
    ) -> dict[str, Any]:
        """Put the settings in force, or those that the source has now."""
        async with self._one_at_a_time:
            try:
                found = await self._reload(settings, asker)
            except StentorError as error:
                self.failed += 1
                self.is_failing = True
                _log.error(
                    "the configuration was not reloaded, and everything stays as it was: %s",
                    error,
                    extra={"event": "reload_failed", "code": error.code},
                )
                raise
            self.done += 1
            self.is_failing = False
        _log.info(
            "the configuration was reloaded: %s; connections closed: %d",
            ", ".join(found["changed"]) or "nothing has changed",
            found["closed"],
            extra={"event": "reloaded"},
        )
        if found["restart"]:
            _log.warning(
                "only a restart changes %s", ", ".join(found["restart"]), extra={"event": "reload"}
            )
        return found

    async def _reload(
        self, settings: Settings | None, asker: ConnectedClient | None
    ) -> dict[str, Any]:
        broker, source = self._broker, self._source
        if settings is None:
            if source is None:
                raise InvalidConfiguration(
                    "this broker is part of a program, which has its settings: there is no file "
                    "to read again; call Broker.reload(settings) there"
                )
            settings = await asyncio.to_thread(source)
        access = await asyncio.to_thread(Access, settings.grants)
        certificates = await asyncio.to_thread(Certificates.load, settings.tls)
        self._check(certificates)
        old = broker.settings
        new = replace(old, **{name: getattr(settings, name) for name in RELOADED})
        others = [each.name for each in fields(Settings) if each.name not in RELOADED]
        renewed = certificates.shown != broker.certificates.shown
        renewed = renewed or certificates.ca != broker.certificates.ca
        found: dict[str, Any] = {
            "changed": [
                name
                for name in RELOADED
                if getattr(new, name) != getattr(old, name) or (name == "tls" and renewed)
            ],
            "restart": [name for name in others if getattr(settings, name) != getattr(old, name)],
            "closed": 0,
        }
        found["closed"] = await broker.rota.run(self._apply(new, access, certificates, asker))
        broker.changed()
        self.at_reload(new)
        certificates.warn()
        return found

    def _check(self, certificates: Certificates) -> None:
        """Raise if the files of TLS could not be served."""
        secured = [each for each in self._broker.listeners if each.address.kind == "tls"]
        if secured and certificates.for_listening is None:
            raise InvalidConfiguration(
                f"the broker listens at {secured[0].address}, so it needs a certificate and its "
                "key; leave [tls] in"
            )
        if certificates.expires is not None and certificates.expires <= time.time():
            raise TlsError("the certificate has expired; put a new one in its place")

    def _apply(
        self,
        settings: Settings,
        access: Access,
        certificates: Certificates,
        asker: ConnectedClient | None,
    ) -> Generator[None, None, int]:
        """In force with the first step. How many connections were closed."""
        broker, core = self._broker, self._broker.core
        certified_anew = certificates.ca != broker.certificates.ca
        broker.settings = settings
        broker.access = access
        broker.certificates = certificates
        broker.room = room_of(settings)
        for listener in broker.listeners:
            listener.renew(certificates.for_listening)
        core.rebound(bounds_of(settings))
        core.detectors.regrant()
        broker.journal.retain(settings.retention)
        for journal in broker.succession.journals:
            journal.retain(settings.retention)
        closed = 0
        for client in list(broker.clients.values()):
            anew = certified_anew and client.connection.peer_certificate is not None
            closed += self._review_client(client, anew=anew, waits=client is asker)
            yield
        for link in list(broker.links.values()):
            link.queue.limit = settings.limits.link_queue
            anew = certified_anew and link.connection.peer_certificate is not None
            closed += self._review_link(link, anew=anew)
            yield
        for subscription in list(core.subscriptions.values()):
            feed = subscription.feed
            feed.limit = min(feed.limit, settings.limits.queue)
            yield
        return closed

    def _review_client(self, client: ConnectedClient, *, anew: bool, waits: bool) -> bool:
        """Whether the connection of a client is closed; not now if it `waits` for an answer."""
        broker = self._broker
        connection, session = client.connection, broker.core.sessions.get(client.id)
        if connection.is_closing or session is None:
            return False
        try:
            permissions = broker.access.admit(client.hello, connection.peer_certificate)
        except StentorError as error:
            if not waits:
                client.dismiss(error.code, str(error))
            return True
        if waits:
            return False  # it has its answer, and leaves
        if permissions.name != client.permissions.name:
            return _sent_away(connection, "its grant has another name now; connect again")
        changed = permissions.grant != client.permissions.grant
        if changed and not _in_place(permissions.grant, client.permissions.grant):
            return _sent_away(connection, "who it is to others has changed; connect again")
        client.permissions = permissions
        session.may_publish = permissions.publish
        session.may_subscribe = permissions.subscribe
        session.may_advertise = permissions.advertise
        session.allowance = permissions.allowance
        if changed:
            try:
                broker.core.subscribing.regrant(session)
            except NotPermitted as error:
                return _sent_away(connection, f"its grant has changed: {error}")
            allowed = permissions.advertise
            if allowed is not None and not all(map(allowed, session.advertisements.values())):
                return _sent_away(connection, "its grant has changed; connect again")
        shorter = not client.is_operator and broker.core.publishing.window(session) < client.window
        if anew or shorter or connection.max_frame > broker.settings.limits.frame:
            return _sent_away(connection, "what the broker allows has changed; connect again")
        return False

    def _review_link(self, link: Link, *, anew: bool) -> bool:
        """Whether a link was closed; who dials it makes it again, if it may."""
        broker, connection = self._broker, link.connection
        if connection.is_closing:
            return False
        try:
            if link.dialed:
                permissions = broker.access.of_neighbor(connection.peer_certificate)
            else:
                permissions = broker.access.admit(link.hello, connection.peer_certificate)
        except (AccessDenied, NotPermitted) as error:
            connection.send(m.Failure(error.code, str(error)))
            connection.close()
            return True
        if anew or permissions.grant != link.permissions.grant:
            return _sent_away(connection, "what may cross the link has changed")
        return False


def _in_place(new: Grant | None, old: Grant | None) -> bool:
    """Whether a session can go on under the new grant, all else in it being the same."""
    if new is None or old is None:
        return False
    kept = {name: getattr(old, name) for name in IN_PLACE}
    return replace(new, **kept) == old


def _sent_away(connection: Connection, reason: str) -> bool:
    connection.send(m.Goodbye(reason))
    connection.close()
    return True
