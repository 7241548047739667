"""What a broker tells others of where it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.broker import Broker
from stentor.broker.advertising import MOST, advertised
from stentor.broker.config import load
from stentor.broker.overlay import read_overlay
from stentor.broker.settings import Settings
from stentor.errors import InvalidConfiguration
from stentor.transport import Address

hosts = st.sampled_from(["0.0.0.0", "[::]", "", "127.0.0.1", "[::1]", "10.1.2.3", "b1.example"])
networks = st.builds(
    lambda scheme, host, port: Address.parse(f"{scheme}{host}:{port}"),
    st.sampled_from(["", "tls://"]),
    hosts,
    st.integers(1, 65535),
)
listening = st.lists(networks | st.just(Address.parse("unix:/run/b1")), min_size=1, max_size=12)


@given(listening)
def test_what_is_told_is_an_address_of_one_machine(addresses: list[Address]) -> None:
    told = [Address.parse(text) for text in advertised((), addresses)]
    assert 0 < len(told) <= MOST
    assert len(set(told)) == len(told)
    known = {(each.kind, each.port, each.path) for each in addresses}
    for address in told:
        assert not address.is_wildcard
        assert (address.kind, address.port, address.path) in known
        if not address.is_loopback or address.kind == "unix":
            continue
        assert address in addresses  # nobody is told of a loopback that was not asked for
    ranks = [(a.kind == "unix", a.is_loopback, a.kind != "tls") for a in told]
    assert ranks == sorted(ranks)


@given(st.lists(networks, min_size=1, max_size=4), listening)
def test_what_is_set_is_told(wanted: list[Address], addresses: list[Address]) -> None:
    texts = [str(each) for each in wanted]
    assert advertised(texts, addresses) == texts


def test_port_0_is_the_port_at_which_it_listens() -> None:
    listening = [Address.parse(text) for text in ("0.0.0.0:7411", "tls://0.0.0.0:7412")]
    wanted = ["tls://b1.example:0", "b1.example:0", "[2001:db8::1]:0"]
    assert advertised(wanted, listening) == [
        "tls://b1.example:7412",
        "b1.example:7411",
        "[2001:db8::1]:7411",
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["0.0.0.0:7411"], "--advertise: 0.0.0.0:7411 means every interface"),
        (["[::]:7411"], "means every interface"),
        ([":7411"], "means every interface"),
        (["tls://b1.example:0"], "there is none of this kind"),
        (["ftp://b1"], "ftp:// is not supported"),
        ([f"b{i}.example" for i in range(MOST + 1)], "8 addresses at most"),
    ],
)
def test_mistakes_are_named(flags: list[str], words: str) -> None:
    with pytest.raises(InvalidConfiguration, match=words.replace("[", r"\[")):
        load(environment={}, flags={"advertise": flags})


def test_it_is_set_like_everything_else(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('advertise = ["a.example:1"]')
    variable = {"STENTOR_ADVERTISE": "b.example:2, tls://b.example:3"}
    assert load(file, environment={}).settings.advertise == ("a.example:1",)
    assert load(file, environment=variable).settings.advertise == (
        "b.example:2",
        "tls://b.example:3",
    )
    flags = {"advertise": ["c.example:4"]}
    assert load(file, environment=variable, flags=flags).settings.advertise == ("c.example:4",)


def test_brokers_of_an_overlay_share_a_host_but_no_address(tmp_path: Path) -> None:
    file = tmp_path / "overlay.toml"
    text = '[overlay]\nbrokers = 2\nhost = "0.0.0.0"\nbase_port = 75\nadvertise = "b.example:{}"\n'
    file.write_text(text.format(0))
    overlay = read_overlay(file, environment={})
    assert [overlay.settings(name).advertise for name in ("b1", "b2")] == [("b.example:0",)] * 2
    file.write_text(text.format(75))
    with pytest.raises(InvalidConfiguration, match="where others are told to find b1, too"):
        read_overlay(file, environment={})


def test_neighbors_hear_an_address_that_can_be_used() -> None:
    async def run() -> None:
        async with (
            Broker(Settings(listen=("0.0.0.0:0", "127.0.0.1:0"), name="b1")) as one,
            Broker(
                Settings(
                    listen=("127.0.0.1:0",),
                    name="b2",
                    neighbors=(one.addresses[1],),
                    advertise=("b2.example:0",),
                )
            ) as two,
        ):
            async with asyncio.timeout(30):
                while not (one.core.directory.others and two.core.directory.others):
                    await asyncio.sleep(0.01)
            (b1,), (b2,) = (broker.core.directory.others for broker in (two, one))
            assert b2.addresses == (f"b2.example:{Address.parse(two.address).port}",)
            for text in b1.addresses:
                assert Address.parse(text).port
                assert not Address.parse(text).is_wildcard
            status = one.status()
            assert status["advertised"] == list(b1.addresses)
            # A neighbor that is told under another name is still the one that was dialed.
            assert [link["state"] for link in two.status()["links"]] == ["up"]

    asyncio.run(run())
