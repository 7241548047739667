"""`docs/protocol.md` says what the code does: every table, and every byte of its example."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from wire_messages import KINDS

from stentor.model import Notification, NotificationId, codec
from stentor.protocol import FrameReader, frame
from stentor.protocol.messages import (
    AnyMessage,
    Assignment,
    Deliver,
    Detection,
    Hello,
    Home,
    Key,
    LinkState,
    Origin,
    Publish,
    Published,
    Refused,
    Settlement,
    Subscribe,
    Subscribed,
    Welcome,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text()


def section(name: str) -> str:
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    assert PAGE.count(start) == PAGE.count(end) == 1
    return PAGE[PAGE.index(start) : PAGE.index(end)]


# -- tables

Row = tuple[str, str, str]


def documented() -> dict[str, tuple[int, list[Row]]]:
    """By message: its tag, and name, type and default of each field."""
    found = {}
    for part in section("messages").split("\n### ")[1:]:
        title = re.match(r"(\w+) \((\d+)\)\n", part)
        assert title, part[:40]
        table = part.split("| field | type | default | meaning |\n|---|---|---|---|", 1)[1]
        rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| (.*?) ?\| .+ \|$", table, re.MULTILINE)
        assert len(rows) == table.split("\n\n")[0].count("\n|")
        found[title[1]] = (int(title[2]), rows)
    return found


def written(kind: Any) -> str:
    """A Python type in the words of the page."""
    if kind == Key:
        return "key"
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(written(a) for a in arguments)
    if origin is list:
        return f"[{written(arguments[0])}]"
    if origin is tuple:
        return f"[{', '.join(map(written, arguments))}]"
    if origin is dict:
        return f"{{{written(arguments[0])}: {written(arguments[1])}}}"
    names = {int: "int", float: "float", bool: "bool", str: "str", bytes: "bytes"}
    structs = {
        Origin: "origin",
        LinkState: "state",
        Home: "home",
        Settlement: "settlement",
        Detection: "detection",
        Assignment: "assignment",
        Refused: "refused",
    }
    return {**names, **structs, Any: "any", type(None): "nil"}[kind]


def default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return ""
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()
    if value is None:
        return "nil"
    return f"`{msgspec.json.encode(value).decode()}`"


def coded(kind: type[msgspec.Struct]) -> tuple[int, list[Row]]:
    tag = kind.__struct_config__.tag
    assert isinstance(tag, int)
    hints = get_type_hints(kind)
    return tag, [
        (field.name, written(hints[field.name]), default(field))
        for field in msgspec.structs.fields(kind)
    ]


def test_every_message_is_documented_and_no_other() -> None:
    assert set(documented()) == {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_table_of_a_message_is_its_type(kind: type[msgspec.Struct]) -> None:
    assert documented()[kind.__name__] == coded(kind)


def test_every_code_on_the_page_exists() -> None:
    import stentor.errors

    known = {getattr(error, "code", None) for error in vars(stentor.errors).values()}
    used = set(re.findall(r"STN-\d+", PAGE))
    assert used
    assert used <= known


# -- the example

ITEM = codec.encode(
    Notification({"symbol": "IBM", "price": 95.5}, payload=b"hi", id=NotificationId("ann", 1, 1))
)
STREAM = "b1#5f3a"
EXAMPLE: list[tuple[str, AnyMessage]] = [
    ("C", Hello([1], "client", "ann")),
    ("B", Welcome(1, "b1", STREAM, ["127.0.0.1:7411"], None, 20_000, 16 * 2**20, 30.0, "ann")),
    ("C", Subscribe(1, "symbol = 'IBM' and price < 100", 1000)),
    ("B", Subscribed(1, time=1_767_225_600.0)),
    ("C", Publish(2, [ITEM])),
    ("B", Published(2)),
    ("B", Deliver(1, STREAM, [1], [ITEM])),
]


def literal(value: Any) -> str:
    """A field in the words of the page."""
    if isinstance(value, bytes):
        return "item"
    if value is None:
        return "nil"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return msgspec.json.encode(value).decode()


def example_text() -> str:
    """The example as it stands on the page."""
    parts = []
    for side, message in EXAMPLE:
        data = frame(message)
        tag, *fields = msgspec.to_builtins(message, builtin_types=(bytes,))
        shown = ", ".join(map(literal, fields))
        parts.append(f"{side}  {type(message).__name__} ({tag}): {shown}")
        rows = [data[:4], *(data[at : at + 16] for at in range(4, len(data), 16))]
        parts += [f"   {row.hex(' ')}" for row in rows]
    return "\n".join(parts)


def item_text() -> str:
    header_size = int.from_bytes(ITEM[1:5])
    header = ITEM[9 : 9 + header_size]
    rows = [
        ("version", ITEM[:1]),
        ("size of the header", ITEM[1:5]),
        ("size of the payload", ITEM[5:9]),
        *(("header" if not at else "", header[at : at + 16]) for at in range(0, len(header), 16)),
        ("payload", ITEM[9 + header_size :]),
    ]
    return "\n".join(f"{name:<21}{row.hex(' ')}".rstrip() for name, row in rows)


def test_the_bytes_of_the_example_are_what_is_sent() -> None:
    exchange, item = re.findall(r"```text\n(.*?)\n```", section("example"), re.DOTALL)
    assert exchange == example_text()
    assert item == item_text()


def test_the_bytes_of_the_example_are_understood() -> None:
    """Read from the page alone, as another implementation would."""
    exchange, _ = re.findall(r"```text\n(.*?)\n```", section("example"), re.DOTALL)
    data = bytes.fromhex("".join(re.findall(r"^   (.*)$", exchange, re.MULTILINE)))
    got = FrameReader().feed(data)
    assert got == [message for _, message in EXAMPLE]
    (delivered,) = [message for message in got if isinstance(message, Deliver)]
    notification = codec.decode(delivered.items[0])
    assert dict(notification) == {"symbol": "IBM", "price": 95.5}
    assert notification.payload == b"hi"


# -- limits


def limits(kind: msgspec.inspect.Type, path: str) -> dict[str, int]:
    """The limit of every list, map and text that has one; 0 for a list or map that has none."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return {k: v for each in types for k, v in limits(each, path).items()}
        case msgspec.inspect.ListType(item_type=item, max_length=most):
            return {path: most or 0, **limits(item, f"{path} each")}
        case msgspec.inspect.DictType(max_length=most):
            return {path: most or 0}
        case msgspec.inspect.StrType(max_length=most) if most:
            return {path: most}
    return {}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_can_be_many_has_a_limit_that_is_documented(kind: type[msgspec.Struct]) -> None:
    numbers = {int(n.replace(",", "")) for n in re.findall(r"\| ([\d,]+)", section("limits"))}
    found: dict[str, int] = {}
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        found |= limits(field.type, f"{kind.__name__}.{field.name}")
    unlimited = {path for path, most in found.items() if not most}
    assert unlimited <= {"Ask.arguments"}  # which is short as a whole
    assert set(found.values()) - {0} <= numbers
