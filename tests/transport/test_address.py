"""Addresses: what is read, what is refused and why, and that text and value agree."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stentor.errors import InvalidAddress
from stentor.transport import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:7412", Address("tcp", "localhost", 7412)),
        ("broker.example", Address("tcp", "broker.example", 7411)),
        ("10.0.0.1:1", Address("tcp", "10.0.0.1", 1)),
        ("[::1]:7411", Address("tcp", "::1", 7411)),
        ("[fe80::1%eth0]:7411", Address("tcp", "fe80::1%eth0", 7411)),
        ("[::1]", Address("tcp", "::1", 7411)),
        (":7411", Address("tcp", "", 7411)),
        (":0", Address("tcp", "", 0)),
        ("tcp://a:1", Address("tcp", "a", 1)),
        ("tls://a:1", Address("tls", "a", 1)),
        ("tls://a", Address("tls", "a", 7411)),
        ("tls://[::1]:5", Address("tls", "::1", 5)),
        ("unix:/run/stentor.sock", Address("unix", path="/run/stentor.sock")),
        ("unix:///run/stentor.sock", Address("unix", path="/run/stentor.sock")),
        ("unix:relative.sock", Address("unix", path="relative.sock")),
        ("unix:/with space", Address("unix", path="/with space")),
        ("inproc:test", Address("inproc", path="test")),
    ],
)
def test_forms(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address
    assert Address.parse(address) is address


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "missing"),
        ("a b:1", "spaces"),
        (" a:1", "spaces"),
        ("a:1\n", "unprintable"),
        ("a:", "port is missing"),
        (":", "neither host nor port|port is missing"),
        ("tls://", "neither"),
        ("a:x", "not a number"),
        ("a:-1", "not a number"),
        ("a:²", "not a number"),
        ("a:65536", "beyond 65535"),
        ("a:99999999999999999999", "beyond 65535"),
        ("::1", "brackets"),
        ("::1:7411", "brackets"),
        ("[::1:7411", "not closed"),
        ("[::1]7411", "only :port"),
        ("[nonsense]:1", "no IPv6"),
        ("http://a:1", "not supported"),
        ("a/b:1", "'/'"),
        ("user@host:1", "'@'"),
        ("a..b:1", "empty part"),
        ("x" * 300, "long"),
        ("unix:", "names no socket"),
        ("unix:/run/", "names no socket"),
        ("inproc:", "no name"),
    ],
)
def test_refusals_say_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(InvalidAddress, match=reason):
        Address.parse(text)


@given(st.text(max_size=40) | st.from_regex(r"(tls://|unix:)?[a-z.\[\]:0-9]{0,12}:[0-9]{1,6}"))
@example("unix:////a")
def test_whatever_is_read_is_written_and_read_again(text: str) -> None:
    try:
        address = Address.parse(text)
    except InvalidAddress:
        return
    assert Address.parse(str(address)) == address
