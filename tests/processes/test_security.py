"""Who may connect, and what they may do: certificates, tokens, grants; and plenty of mistakes.

Whatever a stranger shows, it is told what is wrong, and the broker goes on serving everybody else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, Pair
from overlay_processes import Overlay, free_port, until
from wire_client import WireClient
from witness import Run

from stentor.broker.settings import Grant, TlsFiles
from stentor.client import Bus, connect
from stentor.errors import AccessDenied, LinkRefused, NotPermitted, TlsError
from stentor.protocol import messages as m


def files(pair: Pair, authority: Authority) -> TlsFiles:
    return TlsFiles(pair.certificate, pair.key, authority.certificate)


def tls(pair: Pair | None, authority: Authority) -> dict[str, Any]:
    """How a client connects."""
    shown: dict[str, Any] = {"ca": authority.certificate}
    if pair is not None:
        shown |= {"certificate": pair.certificate, "key": pair.key}
    return {"tls": shown}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secure(overlay: Overlay, authority: Authority) -> Overlay:
    """Two linked brokers that want to see a certificate."""
    for name, neighbors in (("b1", []), ("b2", ["b1"])):
        overlay.broker(
            name,
            neighbors,
            listen=(f"tls://127.0.0.1:{free_port()}",),
            tls=files(authority.broker(name), authority),
        ).start()
    overlay.operator_options = tls(authority.client("operator"), authority)
    return overlay


async def all_or_none(bus: Bus, events: list[dict[str, Any]]) -> None:
    async with bus.transaction() as transaction:
        for event in events:
            await transaction.publish(event)


async def serves(overlay: Overlay, **options: Any) -> None:
    """Somebody who does everything right is served as ever."""
    seen = Run(overlay.directory)
    async with (
        seen.connect(overlay["b1"].address, **options) as source,
        seen.connect(overlay["b2"].address, **options) as sink,
        seen.subscribed(sink, "i < 50"),
    ):
        seen.quiescent()
        for i in range(100):
            await source.publish({"i": i})
        await seen.settled()
        assert seen.check().owed == 50


def test_mutual_tls_and_all_that_can_be_wrong_with_it(
    secure: Overlay, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "Another CA")
    ann = authority.client("ann")
    address = secure["b1"].address
    plain = address.removeprefix("tls://")
    wrong: list[tuple[str, dict[str, Any], str]] = [
        (address, tls(None, authority), "requires a certificate"),
        (address, tls(stranger.client("eve"), authority), "does not trust the CA"),
        (address, tls(authority.client("old", expired=True), authority), "expired"),
        (address, tls(ann, stranger), "not trusted here"),
        (plain, {}, "speaks TLS"),
    ]

    async def run() -> None:
        await secure.linked()
        await serves(secure, **tls(ann, authority))
        for place, options, words in wrong:
            with pytest.raises(TlsError, match=words):
                await connect(place, **options)
        await serves(secure, **tls(ann, authority))

    asyncio.run(run())


def test_a_neighbor_with_a_bad_certificate_stays_outside(
    secure: Overlay, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "Another CA")

    async def run() -> None:
        await secure.linked()
        outsider = secure.broker(
            "b3",
            ["b2"],
            listen=(f"tls://127.0.0.1:{free_port()}",),
            tls=files(stranger.broker("b3"), authority),
        )
        unsecured = secure.broker("b4", [secure["b2"].address.removeprefix("tls://")])
        outsider.start()
        unsecured.start()
        for broker, words in ((outsider, "TLS"), (unsecured, "this port speaks TLS")):
            await until(
                lambda broker=broker, words=words: words in broker.logged(),  # type: ignore[misc]
                lambda broker=broker: f"it says why\n{broker.logged()}",  # type: ignore[misc]
            )
        status = await secure["b2"].status()
        assert [link["broker"] for link in status["links"]] == ["b1"]
        await serves(secure, **tls(authority.client("ann"), authority))

    asyncio.run(run())


GRANTS = (
    Grant("operator", token="op-secret", operate=True),
    Grant("desk", token="desk-secret", publish=("symbol = 'IBM'",), subscribe=("price > 100",)),
    Grant("reader", token="reader-secret", publish=()),
    Grant("neighbor", token="broker-secret", broker=True),
)


@pytest.fixture
def guarded(overlay: Overlay) -> Overlay:
    """Two linked brokers with grants, and a third that shows the wrong token."""
    for name, neighbors, token in (
        ("b1", [], "broker-secret"),
        ("b2", ["b1"], "broker-secret"),
        ("b3", ["b1"], "reader-secret"),
    ):
        overlay.broker(name, neighbors, grants=GRANTS, token=token).start()
    overlay.operator_options = {"token": "op-secret"}
    return overlay


def test_tokens_say_who_may_do_what(guarded: Overlay) -> None:
    b1 = guarded["b1"]

    async def run() -> None:
        await until(lambda: b1.sees(["b2"]), guarded.tail)
        for token in ("guess", "", None):
            with pytest.raises(AccessDenied):
                await connect(b1.address, token=token)
        await until(lambda: "may not connect as a broker" in guarded["b3"].logged(), guarded.tail)

        async with (
            connect(b1.address, token="desk-secret", name="desk") as desk,
            connect(guarded["b2"].address, token="reader-secret") as reader,
            reader.subscribe("symbol = 'IBM' or symbol = 'SAP'") as everything,
        ):
            # Publishing: what the grant allows, and nothing else, not even within one batch.
            await desk.publish({"symbol": "IBM", "price": 1.0}, ack=True)
            with pytest.raises(NotPermitted, match="may not publish"):
                await desk.publish({"symbol": "SAP", "price": 2.0}, ack=True)
            with pytest.raises(NotPermitted):
                await desk.publish_many(
                    [{"symbol": s, "price": 3.0} for s in ("IBM", "SAP", "IBM")], ack=True
                )
            with pytest.raises(NotPermitted):
                await all_or_none(desk, [{"symbol": s, "price": 4.0} for s in ("IBM", "SAP")])
            with pytest.raises(NotPermitted):
                await reader.publish({"symbol": "IBM"}, ack=True)
            await desk.publish({"symbol": "IBM", "price": 5.0}, ack=True)
            prices = [(await everything.get(30.0))["price"] for _ in range(4)]
            assert prices == [1.0, 3.0, 3.0, 5.0]

            # Subscribing: not to more than the grant covers.
            async with desk.subscribe("price > 200 and symbol = 'SAP'"):
                pass
            for filter in ("price > 50", "", "symbol = 'IBM'"):
                with pytest.raises(NotPermitted, match="may not subscribe"):
                    await desk.subscribe(filter)

            # Operating.
            for what, arguments in (
                ("status", {}),
                ("drain", {}),
                ("links", {"add": ["127.0.0.1:9"]}),
                ("links", {"remove": ["b2"]}),
            ):
                with pytest.raises(NotPermitted, match="may not operate"):
                    await desk._local.ask(what, arguments)
        assert await b1.sees(["b2"])

    asyncio.run(run())


ORDER, QUOTE = "kind = 'order'", "kind = 'quote'"


def test_what_a_neighbor_may_send_and_see_is_what_crosses_the_link(overlay: Overlay) -> None:
    """Whatever is behind it, live or from a journal, in whichever direction, by whatever filter."""
    grants = (
        Grant("operator", token="op-secret", operate=True),
        Grant("partner", token="broker-secret", broker=True, publish=(ORDER,), subscribe=(QUOTE,)),
    )
    overlay.operator_options = {"token": "op-secret"}
    b1 = overlay.broker("b1", grants=grants)
    b2 = overlay.broker("b2", ["b1"], token="broker-secret")
    b3 = overlay.broker("b3", ["b2"])
    for broker in (b1, b2, b3):
        broker.start()

    async def run() -> None:
        await overlay.linked()
        async with (
            connect(b1.address, token="op-secret") as near,
            connect(b3.address) as far,
            far.subscribe("") as live,
            near.subscribe("") as here,
        ):
            for bus in (near, far):
                await bus.publish_many(
                    ({"kind": kind, "from": bus.name} for kind in ("quote", "order", "talk")),
                    ack=True,
                )
            async with (
                far.subscribe("", since="earliest") as past,
                near.subscribe("", since="earliest") as past_here,
            ):
                for wanted, crossed in ((live, "quote"), (past, "quote")):
                    got = [await wanted.get(30.0) for _ in range(4)]
                    assert {n["kind"] for n in got if n["from"] == near.name} == {crossed}
                for wanted, crossed in ((here, "order"), (past_here, "order")):
                    got = [await wanted.get(30.0) for _ in range(4)]
                    assert {n["kind"] for n in got if n["from"] == far.name} == {crossed}
        status = await b1.status()
        assert [link["grant"] for link in status["links"]] == ["partner"]
        await until(lambda: "asks for more than its grant 'partner'" in b1.logged(), overlay.tail)

    asyncio.run(run())


def test_nobody_takes_the_place_of_a_neighbor_with_another_grant(overlay: Overlay) -> None:
    grants = (
        Grant("operator", token="op-secret", operate=True),
        Grant("two", token="two-secret", broker=True),
        Grant("evil", token="evil-secret", broker=True),
    )
    overlay.operator_options = {"token": "op-secret"}
    b1 = overlay.broker("b1", grants=grants)
    b2 = overlay.broker("b2", ["b1"], token="two-secret")
    b1.start()
    b2.start()

    async def run() -> None:
        await overlay.linked()
        stream = (await b2.status())["stream"]
        with WireClient(b1.address) as evil:
            evil.send(m.Hello([1], "broker", "b2", "evil-secret", stream))
            answer = evil.expect(m.Failure)
        assert answer.code == LinkRefused.code
        async with connect(b2.address) as bus:
            await bus.publish({"x": 1}, ack=True)
        assert await b1.sees(["b2"])

    asyncio.run(run())


def test_a_group_elsewhere_is_joined_with_the_same_protection(
    overlay: Overlay, authority: Authority
) -> None:
    """Brokers that listen at a plain address first, as for commands on their own machine."""
    for name, neighbors in (("b1", []), ("b2", ["b1"])):
        overlay.broker(
            name,
            neighbors,
            listen=(f"127.0.0.1:{free_port()}", f"tls://127.0.0.1:{free_port()}"),
            tls=files(authority.broker(name), authority),
        ).start()

    async def run() -> None:
        await overlay.linked()
        places = [overlay[name].settings.listen[1] for name in ("b1", "b2")]
        shown = tls(authority.client("ann"), authority)
        async with (
            connect(places[0], token="secret", **shown) as one,
            one.subscribe("true", group="g") as first,
            connect(places[1], token="secret", **shown) as two,
            two.subscribe("true", group="g") as second,
        ):
            (away,) = two._local._away
            assert [str(address) for address in away] == [places[0]]
            await one.publish_many(({"i": i} for i in range(10)), ack=True)
            got = [await wanted.get(30.0) for wanted in (first, second)]
            assert len({n["i"] for n in got}) == 2
            # Sent on by a broker that is removed, it stays protected as well.
            await overlay["b2"].ask("drain", 60.0)
            await until(
                lambda: two.state == "connected" and two._local.link.address.port, overlay.tail
            )
            assert str(two._local.link.address) == places[0]
            await two.publish({"i": 11}, ack=True)

    asyncio.run(run())
