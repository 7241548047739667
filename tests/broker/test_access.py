"""Grants: who may connect as what, and what each may do and see."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.broker import Broker, Settings
from stentor.broker.access import Access, Permissions
from stentor.broker.settings import Grant, Limits
from stentor.errors import (
    AccessDenied,
    InvalidConfiguration,
    NotPermitted,
    Overloaded,
    ProtocolError,
)
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.protocol import messages as m
from stentor.transport import Connection, connect

DESK = Grant("desk", token="t1")
MALLORY = Grant("mallory", token="t2", publish=("kind = 'm'",), subscribe=("kind = 'm'",))
ROOT = Grant("root", token="t3", subscribe=("kind = 'm'",), operate=True)
LINK = Grant("link", token="t4", broker=True)
GRANTS = (DESK, MALLORY, ROOT, LINK)
PATIENCE = 10.0


class Raw:
    """A connection on which anything can be said."""

    def __init__(self, name: str, token: str | None, role: str) -> None:
        self._hello = m.Hello(list(m.VERSIONS), role, name, token)
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self.connection: Connection

    def opened(self, connection: Connection) -> None:
        self.connection = connection
        connection.send(self._hello)

    def received(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            self._heard.put_nowait(message)

    def writable_again(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, error: Exception | None) -> None:
        self._heard.put_nowait(None)

    async def hear(self, *kinds: type) -> Any:
        """The next message of these kinds; None when the connection is closed."""
        while True:
            message = await asyncio.wait_for(self._heard.get(), PATIENCE)
            if message is None or isinstance(message, kinds):
                return message

    async def ask(self, message: Any, *kinds: type) -> Any:
        self.connection.send(message)
        return await self.hear(*kinds)


async def raw(broker: Broker, name: str, token: str | None = None, role: str = "client") -> Raw:
    client = Raw(name, token, role)
    await connect(broker.address, client)
    return client


async def welcome(broker: Broker, name: str, token: str | None = None, role: str = "client") -> Raw:
    client = await raw(broker, name, token, role)
    assert isinstance(await client.hear(m.Welcome, m.Failure), m.Welcome)
    return client


def run(test: Callable[[Broker], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        made = Settings(listen=("127.0.0.1:0",), name="a", grants=GRANTS, **settings)
        async with Broker(made) as broker:
            await test(broker)

    asyncio.run(main())


def hello(role: str, token: str) -> m.Hello:
    return m.Hello(list(m.VERSIONS), role, "c", token)


class TestRoles:
    def test_operators_need_a_grant_that_says_so(self) -> None:
        access = Access(GRANTS)
        for token in ("t1", "t2", "t4"):
            with pytest.raises(NotPermitted, match="operate = true"):
                access.admit(hello("operator", token), None)
        assert access.admit(hello("operator", "t3"), None).operate
        assert Access(()).admit(hello("operator", "t1"), None).operate

    def test_nobody_else_becomes_one(self) -> None:
        async def test(broker: Broker) -> None:
            client = await raw(broker, "c", "t1", "operator")
            failure = await client.hear(m.Failure, m.Welcome)
            assert failure.code == NotPermitted.code
            assert not broker.clients

        run(test)

    @pytest.mark.parametrize(
        "message",
        [
            m.Publish(1, [encode(Notification({"x": 1}, id=NotificationId("op", 1, 1)))]),
            m.Subscribe(1, "", 10),
            m.Advertise(1, "", demand=True),
        ],
        ids=lambda message: type(message).__name__,
    )
    def test_operators_ask_and_do_nothing_else(self, message: Any) -> None:
        async def test(broker: Broker) -> None:
            operator = await welcome(broker, "op", "t3", "operator")
            assert isinstance(await operator.ask(m.Ping(), m.Pong), m.Pong)
            assert (await operator.ask(m.Ask(1, "status"), m.Done)).data["name"] == "a"
            failure = await operator.ask(message, m.Failure)
            assert failure.code == ProtocolError.code
            assert await operator.hear() is None
            assert not broker.core.subscriptions

        run(test)


class TestWhatGrantsCover:
    def test_demand(self) -> None:
        permissions = Access(GRANTS).admit(hello("client", "t2"), None)
        assert permissions.advertise is not None
        assert permissions.advertise(Filter("kind = 'm' and x > 3"))
        assert not permissions.advertise(Filter(""))
        assert not permissions.advertise(Filter("x > 3"))
        assert Access(GRANTS).admit(hello("client", "t1"), None).advertise is None

    def test_demand_is_not_told_to_others(self) -> None:
        async def test(broker: Broker) -> None:
            desk = await welcome(broker, "desk", "t1")
            assert await desk.ask(m.Subscribe(1, "salary > 1000", 10), m.Subscribed)
            mallory = await welcome(broker, "mallory", "t2")
            failure = await mallory.ask(m.Advertise(1, "", demand=True), m.Failure, m.Demand)
            assert failure.code == NotPermitted.code

        run(test)

    def test_offers_are_shown_as_far_as_they_can_be_subscribed_to(self) -> None:
        async def test(broker: Broker) -> None:
            desk = await welcome(broker, "desk", "t1")
            for number, text in enumerate(("kind = 's'", "kind = 'm' and x > 1", "y > 2"), 1):
                assert await desk.ask(m.Advertise(number, text), m.Done)
            mallory = await welcome(broker, "mallory", "t2")
            root = await welcome(broker, "root", "t3")
            seen = [
                sorted((await who.ask(m.Ask(9, "offers"), m.Done)).data)
                for who in (desk, mallory, root)
            ]
            everything = sorted(str(f) for f in broker.core.offers())
            assert len(everything) == 3
            assert seen[0] == seen[2] == everything
            assert seen[1] == sorted(str(Filter(t)) for t in ("kind = 'm' and x > 1", "y > 2"))

        run(test)


class TestNames:
    def test_a_durable_subscription_stays_with_its_grant(self) -> None:
        async def test(broker: Broker) -> None:
            desk = await welcome(broker, "desk", "t1")
            assert await desk.ask(m.Subscribe(1, "secret > 1", 10, durable="desk-7"), m.Subscribed)
            mallory = await welcome(broker, "mallory", "t2")
            taking = m.Subscribe(1, "kind = 'm'", 10, durable="desk-7")
            answer = await mallory.ask(taking, m.Failure, m.Subscribed)
            assert not answer.resumed  # it is another one
            kept = {d.owner: str(d.interest) for d in broker.core.durables.values()}
            assert kept == {"desk": "secret > 1", "mallory": "kind = 'm'"}

        run(test)

    def test_a_group_stays_with_its_grant(self) -> None:
        """Who takes the name of a group first does not keep others from theirs."""

        async def test(broker: Broker) -> None:
            mallory = await welcome(broker, "mallory", "t2")
            squat = m.Subscribe(1, "kind = 'm'", 10, group="workers")
            assert await mallory.ask(squat, m.Failure, m.Subscribed)
            for number, more in enumerate(({}, {"durable": "jobs"}), 1):
                desk = await welcome(broker, f"desk-{number}", "t1")
                asked = m.Subscribe(1, "secret > 1", 10, group="workers", **more)
                answer = await desk.ask(asked, m.Failure, m.Subscribed)
                assert isinstance(answer, m.Subscribed), answer
                desk.connection.close()
                assert await desk.hear() is None

        run(test)

    def test_a_name_cannot_be_used_up_while_its_owner_is_away(self) -> None:
        async def test(broker: Broker) -> None:
            mallory = await welcome(broker, "desk", "t2")
            latest = 2**63 - 1
            for number, producer in enumerate(("desk", "desk@desk", "desk@mallory"), 1):
                id = NotificationId(producer, latest, latest)
                spoof = m.Publish(number, [encode(Notification({"kind": "m"}, id=id))])
                assert await mallory.ask(spoof, m.Rejected)
            mallory.connection.close()
            assert await mallory.hear() is None
            desk = await welcome(broker, "desk", "t1")
            mine = NotificationId("desk@desk", 1, 1)
            publish = m.Publish(1, [encode(Notification({"x": 1}, id=mine))])
            assert (await desk.ask(publish, m.Published)).through == 1
            assert broker.journal.head == 1

        run(test)

    def test_the_same_name_under_two_grants_is_two_clients(self) -> None:
        async def test(broker: Broker) -> None:
            desk = await welcome(broker, "ann", "t1")
            mallory = await welcome(broker, "ann", "t2")
            for who in (desk, mallory):
                assert isinstance(await who.ask(m.Ping(), m.Pong), m.Pong)
            again = await welcome(broker, "ann", "t1")
            assert await desk.hear() is None
            for who in (again, mallory):
                assert isinstance(await who.ask(m.Ping(), m.Pong), m.Pong)

        run(test)

    @given(
        st.lists(
            st.tuples(st.text("a@b", max_size=4), st.none() | st.text("ab", min_size=1)),
            min_size=2,
            unique=True,
        )
    )
    def test_producers_of_different_clients_differ(
        self, clients: list[tuple[str, str | None]]
    ) -> None:
        """However clients and grants are called, "@" included."""
        producers = []
        for client, grant in clients:
            with suppress(ProtocolError, AccessDenied):
                producers.append(Permissions(grant).producer(client))
        assert len(set(producers)) == len(producers)

    def test_a_grant_is_called_without_an_at_sign(self) -> None:
        for name in ("ann@desk", "@", "", "a\nb", "x" * 256):
            with pytest.raises(InvalidConfiguration, match="of a grant"):
                Grant(name, token="t")

    def test_a_name_and_its_grant_are_not_too_long_together(self) -> None:
        access = Access([Grant("g" * 200, token="t")])
        permissions = access.admit(hello("client", "t"), None)
        assert len(permissions.producer("c" * 54)) == 255
        with pytest.raises(ProtocolError, match="longer than 255"):
            permissions.producer("c" * 55)


def test_durable_subscriptions_and_groups_are_bounded_by_the_settings() -> None:
    async def test(broker: Broker) -> None:
        desk = await welcome(broker, "desk", "t1")
        answers = (m.Subscribed, m.Failure)
        assert await desk.ask(m.Subscribe(1, "", 10, durable="d1"), *answers)
        for message in (
            m.Subscribe(2, "", 10, durable="d2"),
            m.Subscribe(3, "", 10, durable="d2", group="g"),
        ):
            assert (await desk.ask(message, *answers)).code == Overloaded.code
        assert await desk.ask(m.Subscribe(4, "", 10, group="g1"), m.Subscribed)
        failure = await desk.ask(m.Subscribe(5, "", 10, group="g2"), *answers)
        assert failure.code == Overloaded.code
        assert "limits.groups" in failure.message

    run(test, limits=Limits(durables=1, groups=1))
