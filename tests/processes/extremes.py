"""Frames that are well formed and hurt: as many, as long and as deep as the protocol can say it.

Each attack is one connection: who it is, and the bytes that it sends after it was let in. They come
in two sorts. One is made from the type of each message: every field in turn is blown up, to its
limit, beyond it, and to all that a frame holds. The other is by hand: what costs a broker most for
the bytes that it takes, such as events with a thousand attributes, thousands of subscriptions to
everything, and floods of the smallest requests; and what happens while very many filters stand.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, get_args

import msgspec

from stentor.model import Notification, NotificationId, encode
from stentor.protocol import messages as m
from stentor.protocol.frames import frame
from stentor.scopes.definition import Change, EdgeData, RuleData, ScopeData
from stentor.scopes.definition import encode as encode_graph

KINDS: Final = get_args(m.AnyMessage)
FRAME: Final = 16 * 2**20
#: Subscriptions that one client may have.
CROWD: Final = 10_000
BODIES: Final = (64 * 1024 - 64, 2**20 - 64, 2**20 + 64, FRAME - 64)


class Attack(NamedTuple):
    """One hostile connection."""

    what: str
    role: str
    data: list[bytes]
    name: str = "evil"
    #: Connections that were made before and stay until this one is over.
    before: tuple[Attack, ...] = ()


def _raw(kind: Any, fields: list[Any], more: bytes = b"", extra: int = 0) -> bytes:
    """A frame with these fields; further items of the array follow as they are."""
    tag = kind.__struct_config__.tag
    packed = b"".join(map(msgspec.msgpack.encode, fields))
    count = 1 + len(fields) + extra
    body = b"\xdc" + count.to_bytes(2) + bytes([tag]) + packed + more
    return len(body).to_bytes(4) + body


class Extremes:
    """Makes attacks from a seed."""

    #: The sorts of attacks, by the name of what makes them.
    SORTS: Final = (
        *("of_types", "publications", "floods", "filters", "neighbors", "crowds"),
        *("settlements", "inboxes", "homes", "rendezvous", "inquiries"),
        *("transactions", "detections", "moments", "graphs"),
    )

    def __init__(
        self, seed: int, streams: tuple[str, ...] = ("b1#0",), sorts: tuple[str, ...] = SORTS
    ) -> None:
        self.rng = random.Random(seed)
        self._sorts = sorts
        self._streams = streams
        self._names = 0

    # -- from types

    def _modest(self, kind: msgspec.inspect.Type) -> Any:
        match kind:
            case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
                return self.rng.choice([0, 1, 7])
            case msgspec.inspect.BoolType():
                return self.rng.random() < 0.5
            case msgspec.inspect.StrType():
                return self.rng.choice(["", "x > 1", "g", "offers", *self._streams])
            case msgspec.inspect.BytesType():
                return self.rng.choice([b"", self._event(1)])
            case msgspec.inspect.ListType(item_type=item):
                return [self._modest(item)]
            case msgspec.inspect.DictType(key_type=key, value_type=value):
                return {self._modest(key): self._modest(value)}
            case msgspec.inspect.TupleType(item_types=items):
                return [self._modest(item) for item in items]
            case msgspec.inspect.UnionType(types=types):
                return self._modest(self.rng.choice(types))
            case msgspec.inspect.StructType(fields=fields):
                return [self._modest(field.type) for field in fields]
        return None

    def _small(self, kind: msgspec.inspect.Type, i: int) -> bytes:
        """The shortest value of a type; different ones for keys."""
        match kind:
            case msgspec.inspect.StrType():
                return msgspec.msgpack.encode(self.rng.choice([f"x = {i}", str(i)]))
            case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
                return msgspec.msgpack.encode(i)
        return msgspec.msgpack.encode(self._modest(kind))

    def _blown_up(self, kind: msgspec.inspect.Type, room: int) -> Iterator[tuple[str, bytes]]:
        """Encodings of a value of the type, each as large as some limit or the room allows."""
        match kind:
            case msgspec.inspect.UnionType(types=types):
                for each in types:
                    yield from self._blown_up(each, room)
            case msgspec.inspect.StrType(max_length=limit):
                for size in {min(limit or room, room), room}:
                    yield f"{size} characters", b"\xdb" + size.to_bytes(4) + b"x" * size
                yield "many parts", _text(" or ".join(f"x={i}" for i in range(room // 10))[:room])
            case msgspec.inspect.BytesType():
                yield f"{room} bytes", b"\xc6" + room.to_bytes(4) + bytes(room)
            case msgspec.inspect.ListType(item_type=item, max_length=limit):
                one = self._small(item, 1)
                for count in {min(limit or room, room // len(one)), room // len(one)}:
                    items = one * count
                    yield f"{count} items", b"\xdd" + count.to_bytes(4) + items
            case msgspec.inspect.DictType(key_type=key, value_type=value, max_length=limit):
                one = self._small(value, 1)
                for count in {min(limit or 200_000, room // 12), min(200_000, room // 12)}:
                    pairs = b"".join(self._small(key, i) + one for i in range(count))
                    if len(pairs) < FRAME - 1024:
                        yield f"{count} entries", b"\xdf" + count.to_bytes(4) + pairs
            case msgspec.inspect.AnyType() | msgspec.inspect.NoneType():
                for byte in (b"\x80", b"\x90", b"\xc0", b"\x01"):
                    yield f"{room} of {byte.hex()}", b"\xdd" + room.to_bytes(4) + byte * room
        yield "nested", b"\x91" * (room - 1) + b"\xc0"

    def of_types(self) -> Iterator[Attack]:
        """For each message and each of its fields, one that is blown up; and too many fields."""
        for kind in KINDS:
            fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
            roles = _roles(kind)
            for at in range(len(fields) + 1):
                room = self.rng.choice(BODIES)
                before = [self._modest(field.type) for field in fields[:at]]
                if before and kind in (m.Publish, m.Subscribe, m.Advertise, m.Ask, m.Read):
                    before[0] = self.rng.randrange(1, 1_000_000)
                field = fields[at].type if at < len(fields) else msgspec.inspect.AnyType()
                name = fields[at].name if at < len(fields) else "unknown fields"
                for how, data in self._blown_up(field, room):
                    hurting = _raw(kind, before, data, extra=1)
                    what = f"{kind.__name__}.{name}: {how}"
                    yield Attack(what, self.rng.choice(roles), [hurting])
            count = 65_535
            body = b"\xdc" + count.to_bytes(2) + bytes([kind.__struct_config__.tag])
            body += b"\x01" * (count - 1)
            data = len(body).to_bytes(4) + body
            yield Attack(f"{kind.__name__} with {count} fields", self.rng.choice(roles), [data])

    # -- by hand

    def _event(
        self, sequence: int, attributes: dict[str, Any] | None = None, **parts: Any
    ) -> bytes:
        """An event of the client whose attack is being made."""
        id = NotificationId(f"evil-{self._names}", 1, sequence)
        return encode(Notification(attributes or {"x": sequence}, id=id, **parts))

    def _of(self, attributes: Any) -> Callable[[int], bytes]:
        """Makes events with these attributes, which are encoded once."""
        packed = b"\x97" + msgspec.msgpack.encode(attributes) + b"\xc0" * 4

        def make(i: int) -> bytes:
            header = packed + msgspec.msgpack.encode((f"evil-{self._names}", 1, i)) + b"\xc0"
            return struct.pack(">BII", 1, len(header), 0) + header

        return make

    def _published(self, make: Callable[[int], bytes], most: int = 20_000) -> m.Publish:
        items: list[bytes] = []
        room = FRAME - 1024
        while len(items) < most:
            item = make(len(items))
            room -= len(item) + 5
            if room < 0:
                break
            items.append(item)
        rng = self.rng
        retain = {i: f"k{i}" for i in range(len(items))} if rng.random() < 0.2 else {}
        return m.Publish(1, items, rng.random() < 0.3, rng.random() < 0.4, retain)

    def publications(self) -> Iterator[Attack]:
        rng = self.rng
        wide = {f"a{i}": 1 for i in range(1024)}
        deep = {".".join(["b"] * 31) + f".{i}": i for i in range(200)}
        odd = [f"n{rng.randrange(10**9)}" for _ in range(1024)]
        makers: dict[str, Callable[[int], bytes]] = {
            "smallest": self._event,
            "empty": lambda i: b"",
            "rubbish": lambda i: b"\x01" + bytes(20),
            "strange ids": lambda i: encode(
                Notification({"x": 1}, id=NotificationId(f"p{i}", 2**62, i))
            ),
            "wide": self._of(wide),
            "wide and new": lambda i: self._of({f"{n}{i}": 1 for n in odd})(i),
            "deep": self._of(deep),
            "long lists": self._of({f"l{j}": [1] * 65_000 for j in range(30)}),
            "lists": self._of({"l": list(range(1000))}),
            "short lists": self._of({f"l{j}": [1] for j in range(1000)}),
            "mixed lists": self._of({"l": [1, "a", 1.5, True] * 5_000}),
            "sets": self._of({f"s{j}": _set([*range(60_000)]) for j in range(9)}),
            "long texts": self._of({"a": "x" * 1_000_000}),
            "wide texts": self._of({"a": "ü" * 500_000}),
            "payloads": lambda i: self._event(i, payload=bytes(1_000_000)),
            "types": lambda i: self._event(i, type=f"t{i}." + ".".join("abcdefgh")),
            "repeats": lambda i: self._event(1),
        }
        for what, make in makers.items():
            self._names += 1
            name = f"evil-{self._names}"
            publish = self._published(make)
            yield Attack(f"Publish: {what}", "client", [frame(publish)], name)
        self._names += 1
        name = f"evil-{self._names}"
        frames = []
        for number in range(12):
            publish = m.Publish(number + 1, [self._event(number * 1000 + i) for i in range(1000)])
            frames.append(frame(publish))
        yield Attack("Publish: many frames", "client", frames, name)
        forward = m.Forward("evil#s", [*range(1, 20_001)], [self._event(i) for i in range(20_000)])
        up = m.Streams([m.Origin("evil#s", "evil")], [])
        yield Attack("Forward: many", "broker", [frame(up), frame(forward)])

    def floods(self) -> Iterator[Attack]:
        """Very many small requests, in one go."""
        rng = self.rng
        stream = rng.choice(self._streams)
        for what, message in {
            "Ping": m.Ping(),
            "Credit": m.Credit(1, 1),
            "Confirm": m.Confirm(1, {stream: 1}, 7),
            "Renew": m.Renew(1),
            "Unsubscribe": m.Unsubscribe(9),
            "Unadvertise": m.Unadvertise(9),
            "Ask offers": m.Ask(1, "offers", {"overlapping": "x > 1"}),
            "Ask streams": m.Ask(1, "streams", {"since": 1}),
            "Ask status": m.Ask(1, "status"),
            "Read": m.Read(1, stream, 1, 0, "x > 1"),
            "empty Publish": m.Publish(1, []),
        }.items():
            begin = frame(m.Subscribe(1, "x > 0", 10, durable=f"evil-{what}"))
            data = frame(message)
            yield Attack(f"flood of {what}", "client", [begin, data * (2**20 // len(data))])
        for what, make in {
            "everything": lambda i: m.Subscribe(i, "", 1_000_000),
            "the past": lambda i: m.Subscribe(i, "", 1_000_000, since=0),
            "different": lambda i: m.Subscribe(i, f"x > {i} and y < {i}", 10),
            "groups": lambda i: m.Subscribe(i, "x > 1", 10, group=f"g{i}"),
            "leases": lambda i: m.Subscribe(i, "x > 1", 10, lease=0.2),
            "retained": lambda i: m.Subscribe(i, "x > 1", 10, retained=True),
            "offers": lambda i: m.Advertise(i, f"x > {i}", demand=True),
        }.items():
            messages = [make(i) for i in range(1, 3_000)]
            ending = [frame(m.Goodbye())]
            yield Attack(f"many: {what}", "client", [*map(frame, messages), *ending])

    def filters(self) -> Iterator[Attack]:
        room = m.MAX_FILTER
        texts = {
            "or": " or ".join(f"x = {i}" for i in range(4_000)),
            "and": " and ".join(f"a{i} > {i}" for i in range(4_000)),
            "both": " and ".join(f"(a{i} = 1 or b{i} = 2)" for i in range(12)),
            "in": f"x in ({', '.join(map(str, range(8_000)))})",
            "not": "not " * 1_000 + "x = 1",
            "parentheses": "(" * 10_000 + "x = 1" + ")" * 10_000,
            "like": " or ".join(f"a like '%{i}%b%c%'" for i in range(500)),
            "text": f"a = '{'x' * (room - 20)}'",
        }
        for what, text in texts.items():
            for kind in (m.Subscribe(1, text[:room], 10), m.Read(1, self._streams[0], 1, 0, text)):
                yield Attack(f"{type(kind).__name__}: filter of {what}", "client", [frame(kind)])

    def neighbors(self) -> Iterator[Attack]:
        many = m.MAX_STREAMS - 5
        origins = [m.Origin(f"evil#{i}", f"e{i}") for i in range(many)]
        added = [(f"y > {i}", f"y > {i}") for i in range(5_000)]
        names = [f"group-{i}" for i in range(m.MAX_GROUPS)]
        own = m.Streams([m.Origin("evil#s", "evil")], [])
        yield Attack("many Streams", "broker", [frame(m.Streams(origins, []))])
        yield Attack("many Subscriptions", "broker", [frame(m.Subscriptions(added, []))])
        yield Attack("many Advertisements", "broker", [frame(m.Advertisements(added, []))])
        groups = frame(m.Groups("evil#s", names)) * 20
        yield Attack("Groups", "broker", [frame(own), groups])
        for message in (
            m.Probe("evil#s", 1),
            m.Echo("evil#s", 1, {"evil#s": 1}),
            m.Mark("evil#s", 7),
            m.Fetch(self._streams[0], "evil#s", 1, "x > 1", 1),
            m.Chunk("evil#s", 1, "x", [], [], 1, 1),
            m.Streams([m.Origin("evil#s", "evil")], []),
            m.Subscriptions([("x > 1", "x > 1")], []),
            m.Groups("evil#s", ["g"]),
            m.Credit(0, 1),
        ):
            data = frame(message)
            flood = data * (2**19 // len(data))
            yield Attack(f"flood of {type(message).__name__}", "broker", [frame(own), flood])

    def crowds(self) -> Iterator[Attack]:
        """As many filters as one client may have, and what concerns them all at once."""
        rng = self.rng
        shapes: dict[str, Callable[[int], str]] = {
            "everything": lambda i: "",
            "nested": lambda i: f"x > {i}",
            "boxes": lambda i: f"x > {i} and y < {i}",
            "different values": lambda i: f"x = {i}",
            "different names": lambda i: f"a{i} = 1",
        }
        others = m.Streams([m.Origin(f"evil#{i}", f"e{i}") for i in range(9)], [])
        for shape, text in shapes.items():
            self._names += 1
            name = f"evil-{self._names}"
            filters = [text(i) for i in range(1, CROWD)]
            rng.shuffle(filters)
            wish = [frame(m.Subscribe(i, f, 10)) for i, f in enumerate(filters, 1)]
            entries = frame(m.Subscriptions([(f, f) for f in dict.fromkeys(filters)], []))
            offers = frame(m.Advertisements([(f, f) for f in dict.fromkeys(filters)], []))
            crowd = Attack("crowd", "client", wish, "crowd")
            other = Attack("other", "broker", [frame(others)], "other")
            event = self._event(1, {"x": 5000, "y": 5000, "a7": 1})
            publish = frame(m.Publish(1, [event]))
            more = frame(m.Publish(2, [self._event(i, {"x": i}) for i in range(2, 1000)]))
            cover = [frame(m.Subscribe(0, "", 1)), frame(m.Unsubscribe(0))] * 2
            demand = [frame(m.Advertise(i, text(i), demand=True)) for i in range(1, 3_000)]
            data = {
                "published to": [*wish, publish, more],
                "covered": [*wish, *cover],
                "in demand": [*wish, *demand[:20], publish],
            }
            for what, sent in data.items():
                yield Attack(f"crowd of {shape}, {what}", "client", sent, name, (other,))
            for what, role, sent in (
                ("demanded", "client", demand),
                ("asked for", "broker", [frame(others), entries]),
                ("offered", "broker", [offers, offers]),
                ("linked", "broker", [frame(others)] * 3),
            ):
                yield Attack(f"crowd of {shape}, {what}", role, sent, name, (crowd,))

    def settlements(self) -> Iterator[Attack]:
        """What is said of as many notifications as one subscription may leave unsettled."""
        stream, count = self._streams[0], 9_000
        every = [*range(1, count + 1)]
        refused = [m.Refused(stream, offset) for offset in every]
        nothing = {f"s{i}": [1] * 100 for i in range(4_000)}
        for what, message in {
            "done": m.Settle(1, {stream: every}, request=9),
            "begun and refused": m.Settle(1, {}, {stream: every}, refused, request=9),
            "refused from the last on": m.Settle(1, {}, refused=refused[::-1]),
            "extended": m.Settle(1, {}, extended=[(stream, i, 0.01) for i in every]),
            "begun again": m.Settle(1, {}, again=[(stream, i, 1) for i in every]),
            "nothing": m.Settle(1, nothing, nothing, refused=[m.Refused("x", 1)] * 50_000),
        }.items():
            for overtake in (False, True):
                self._names += 1
                name = f"evil-{self._names}"
                terms = m.Settlement(3, 0.0, 0.1, 0.05, True, overtake)
                wish = m.Subscribe(1, "", 100_000, durable=name, since=0, settlement=terms)
                events = [self._event(i) for i in range(count)]
                parts = [
                    m.Publish(i + 2, events[start : start + 1_000])
                    for i, start in enumerate(range(0, count, 1_000))
                ]
                data = [frame(wish), *map(frame, parts), frame(message), frame(message)]
                data.append(frame(m.Unsubscribe(1, forget=self.rng.random() < 0.8)))
                yield Attack(f"Settle: {what}", "client", data, name)

    def inboxes(self) -> Iterator[Attack]:
        """As many filters as an inbox takes, which come and go."""
        shapes: dict[str, Callable[[int], str]] = {
            "nested": lambda i: f"x > {i}",
            "boxes": lambda i: f"x > {i} and y < {i}",
            "different names": lambda i: f"a{i} = 1",
        }
        for shape, text in shapes.items():
            for durable in (None, f"inbox-{self.rng.randrange(3)}"):
                first, second = ([text(i) for i in range(at, at + 500)] for at in (0, 500))
                wish = m.Subscribe(1, first, 1_000, durable=durable)
                amends = [
                    m.Amend(2 + i, 1, *((first, second) if i % 2 else (second, first)))
                    for i in range(20)
                ]
                many = [
                    m.Subscribe(50 + i, [f"{t} and z = {i}" for t in first], 9) for i in range(9)
                ]
                messages = [wish, *amends, *many, m.Unsubscribe(1, forget=True)]
                yield Attack(f"inbox of {shape}", "client", [*map(frame, messages)])

    def homes(self) -> Iterator[Attack]:
        """Where durable subscriptions live, and what others keep of them."""
        rng = self.rng
        self._names += 1
        name = f"evil-{self._names}"
        own, origin = m.Streams([m.Origin("evil#s", "evil")], []), m.Origin("evil#s", "evil")
        durables = [m.Subscribe(i, f"x > {i}", 9, durable=f"d{i}") for i in range(1_000)]
        crowd = Attack("durables", "client", [*map(frame, durables)], name)
        homes = [m.Home(f"d{i}", rng.randrange(1, 2**40), origin, owner=None) for i in range(1_000)]
        moved = [frame(m.Homes([home])) for home in homes]
        stream = self._streams[0]
        for what, words in {
            "many Homes": [m.Homes(homes)],
            "Homes that are gone": [m.Homes([m.Home(h.name, h.term + 1, None) for h in homes])],
            "Claims": [m.Claim(home.name, stream, "evil#s") for home in homes],
            "Seeks": [m.Seek(home.name, "evil#s", i) for i, home in enumerate(homes)],
            "Copies": [m.Copy(home.name, home.term, rng.randbytes(2_000)) for home in homes],
            "Wanted": [m.Wanted(stream, f"evil#{i}", 1.0, 1.0) for i in range(5_000)],
        }.items():
            data = [frame(own), b"".join(map(frame, words))]
            yield Attack(what, "broker", data, before=(crowd,))
        yield Attack("Homes one by one", "broker", [frame(own), b"".join(moved)], before=(crowd,))
        data = [*map(frame, durables)]
        data += [frame(m.Unsubscribe(i, forget=True)) for i in range(1_000)]
        yield Attack("durables that are forgotten", "client", data, name)

    def rendezvous(self) -> Iterator[Attack]:
        """Who has what, on an overlay where brokers meet by types."""
        names = [f"t{i}.a" for i in range(CROWD)]
        keys = names[: m.MAX_KEYS]
        own = frame(m.Streams([m.Origin("evil#s", "evil")], []))
        for what, message in {
            "many Types": m.Types("evil#s", [(key, 0) for key in keys], [], {"evil#s": 1}),
            "many Watches": m.Watch(keys, []),
            "Watches that are gone": m.Watch([], keys),
            "many Sources": m.Sources([(key, ["evil#s", "x"]) for key in keys]),
        }.items():
            yield Attack(what, "broker", [own, frame(message), frame(message)])
        wish = [frame(m.Subscribe(i, f"isa {key}", 9)) for i, key in enumerate(names)]
        offers = [frame(m.Advertise(i, f"isa {key}")) for i, key in enumerate(names)]
        yield Attack("many types asked for", "client", wish)
        yield Attack("many types offered", "client", offers)

    def inquiries(self) -> Iterator[Attack]:
        """Questions why a client has an event or not, of which very much is known."""
        self._names += 1
        name, stream = f"evil-{self._names}", self._streams[0]
        names = [f"attribute_{i}" for i in range(1_000)]
        shapes: dict[str, Callable[[int], str]] = {
            "nested": lambda i: f"x > {i}",
            "different names": lambda i: f"attribut_{i} = 1",
            "many names": lambda i: " or ".join(f"attribut_{i}_{j} = 1" for j in range(300)),
            "long lists": lambda i: f"x in ({', '.join(str(i + j) for j in range(3_000))})",
        }
        events = {
            "small": self._event(1, {"x": 5}),
            "wide": self._event(2, dict.fromkeys(names, 2)),
            "long": self._event(3, {"x": "y" * 1_000_000, "l": [*range(50_000)]}),
        }
        ended = [m.Subscribe(i, f"x > {i} or y < {i}", 9) for i in range(1, 2_000)]
        ended += [m.Unsubscribe(i) for i in range(1, 2_000)]
        known = [m.Publish(i, [self._event(100 * i + j) for j in range(100)]) for i in range(1, 99)]
        gone = Attack("gone", "client", [*map(frame, ended), *map(frame, known)], name)
        for shape, text in shapes.items():
            count = 100 if "many" in shape or "long" in shape else CROWD - 1
            wish = [m.Subscribe(i, text(i), 10) for i in range(1, count)]
            kept = [m.Subscribe(CROWD + i, "x >= 0", 9, durable=f"d{i}") for i in range(50)]
            crowd = Attack("crowd", "client", [*map(frame, wish), *map(frame, kept)], "crowd")
            for what, data in events.items():
                asked = [
                    {"client": client, "stream": stream, "offset": offset, "data": data}
                    for client in ("crowd", name, "d7")
                    for offset in (1, 2**62)
                ]
                asked += [{"notification": f"{name}:1:{at}"} for at in (105, 2**40)]
                asks = [frame(m.Ask(i, "why", a)) for i, a in enumerate(asked)]
                before = (crowd, gone)
                yield Attack(f"why: {shape}, {what}", "operator", asks, "asker", before)

    def transactions(self) -> Iterator[Attack]:
        """As much as one may take and publish, of what is held, refused, or given to nobody."""
        stream, count = self._streams[0], 9_000
        every = [*range(1, count + 1)]
        refused = [m.Refused(stream, offset, 0.0) for offset in every[1:]]
        for what, before, taken in (
            ("what is held", [], every[:5_000]),
            ("from the last on", [], every[:-5_001:-1]),
            ("what was refused", [m.Settle(1, {}, refused=refused[::-1])], every[:5_000]),
            ("of many lines", [m.Settle(1, {}, refused=refused[::2])], every[:5_000]),
            ("too much", [], every),
            ("the same very often", [], [1] * 5_000),
            ("what nobody knows", [], [*range(10**6, 10**6 + 5_000)]),
        ):
            for overtake in (False, True):
                self._names += 1
                name = f"evil-{self._names}"
                terms = m.Settlement(3, 0.0, 0.1, 0.05, True, overtake)
                wish = m.Subscribe(1, "x >= 0", 100_000, durable=name, since=0, settlement=terms)
                events = [self._event(i) for i in range(count)]
                parts = [
                    m.Publish(i + 2, events[start : start + 1_000])
                    for i, start in enumerate(range(0, count, 1_000))
                ]
                made = [self._event(count + i) for i in range(20_000)]
                commits = [
                    m.Commit(20 + i, made[: self.rng.choice([0, 20_000])], {1: {stream: taken}}, n)
                    for i, n in enumerate([(name, 1, 1), (name, 1, 1), (name, 1, 2)])
                ]
                messages = [wish, *parts, *before, *commits, m.Unsubscribe(1, forget=True)]
                yield Attack(f"Commit: {what}", "client", [*map(frame, messages)], name)

    def detections(self) -> Iterator[Attack]:
        """Patterns that are hard to read, to compile, to feed, and to end."""
        rng = self.rng
        plain = {"A": "x = 0", "B": "x = 1", "C": "x = 2"}
        hard = " or ".join(f"(s contains 'k{i}' and x = {i})" for i in range(16))
        lists = {
            f"E{i}": f"x in ({', '.join(str(2 * j + i) for j in range(150))})" for i in range(50)
        }
        sums = " and ".join(
            f"B.x + sum(A.x) + avg(A.x) + distinct(A.x) > {i} + max(A.x)" for i in range(10)
        )

        def levels(depth: int) -> dict[str, Any]:
            if not depth:
                return {"pattern": "A{1,30} || B{1,30}", "events": plain}
            inner = levels(depth - 1)
            return {"pattern": "P{1,9} ; Q", "events": {"P": inner, "Q": inner, "A": "x = 0"}}

        shapes: dict[str, tuple[str, dict[str, Any]]] = {
            "pairs": ("A ; B", plain),
            "partitions": ("(A ; B) within 1s partition by k", plain),
            "what does not come": ("A not followed by C within 1s partition by k", plain),
            "nested counts": ("A{1,50}{1,50}", plain),
            "large counts": ("A{4000}", plain),
            "counts": ("(A || B){1,60}", plain),
            "branches": ("(A{1,20} ; A{1,20} ; A{1,20}) ; C", plain),
            "side by side": (" || ".join("ABCABCAB"), plain),
            "alternatives": ("(" + " | ".join(["A ; B"] * 45) + ") ; C", plain),
            "optional": (" ; ".join(f"E{i}{{0,1}}" for i in range(50)), lists),
            "nested": ("(" * 49 + "A" + " | B ; C)" * 49, plain),
            "sums": (f"(A{{1,190}} ; B) where {sums}", plain),
            "hard filters": (
                " | ".join(f"E{i}" for i in range(40)),
                {f"E{i}": hard.replace("k", f"k{i}_") for i in range(40)},
            ),
            "long filters": (" | ".join(lists), lists),
            "patterns of patterns": ("P", {"P": levels(rng.choice([1, 2, 7]))}),
            "a window": (f"sequence({', '.join('ABC' * 30)})", plain),
            "rubbish": ("(" * 20_000, plain),
        }
        for shape, (text, events) in shapes.items():
            self._names += 1
            name = f"evil-{self._names}"
            said = msgspec.json.encode({"pattern": text, "events": events}).decode()
            wishes = [
                m.Subscribe(
                    i + 1,
                    "",
                    rng.choice([0, 100_000]),
                    durable=rng.choice([None, f"{name}-{i}"]),
                    detect=m.Detection(said, policy, lateness, mode=mode),
                )
                for i, (policy, lateness, mode) in enumerate(
                    (
                        ("best_effort", 2.0, "standing"),
                        ("guaranteed", 0.0, "standing"),
                        ("probabilistic", float("nan"), "standing"),
                        ("best_effort", float("inf"), "one_shot"),
                    )
                )
            ]
            start = datetime.now(UTC) - timedelta(seconds=rng.choice([0, 5]))
            items = [
                self._event(
                    i,
                    {"x": rng.choice([i % 3, 0, 1]), "k": i % 1_900},
                    time=start + timedelta(microseconds=i % 7),
                )
                for i in range(6_000)
            ]
            parts = [
                m.Publish(n + 2, items[at : at + 1_000])
                for n, at in enumerate(range(0, len(items), 1_000))
            ]
            ending = [m.Unsubscribe(i + 1, forget=True) for i in range(len(wishes))]
            messages = [*wishes, *parts, *ending]
            data = [*map(frame, messages[: -len(ending)])]
            late = [frame(m.Read(99, self._streams[0], 1, 0, "x > 99")) * 5, *map(frame, ending)]
            yield Attack(f"detect {shape}", "client", [*data, *late], name)

    def moments(self) -> Iterator[Attack]:
        """Times, priorities and numbers at the ends of what can be said."""
        rng = self.rng
        floats = [0.0, -1.0, 5e-324, 1e18, 1e300, float("inf"), float("-inf"), float("nan")]
        now = datetime.now(UTC)
        soon, last = now + timedelta(seconds=0.2), datetime.max.replace(tzinfo=UTC)
        first = datetime.min.replace(tzinfo=UTC)
        for what, parts in {
            "soon": {"deliver_at": soon},
            "never": {"deliver_at": last},
            "long ago": {"deliver_at": first},
            "expired": {"expires": first},
            "expires soon": {"expires": soon, "priority": 9},
            "all at once": {"deliver_at": soon, "expires": last, "priority": 0},
        }.items():
            self._names += 1
            name = f"evil-{self._names}"
            terms = m.Settlement(0, 0.0, 0.1, 0.05, False, False, True)
            asks = [
                m.Subscribe(1, "", 100, durable=name, settlement=terms, expires=0.2),
                m.Subscribe(2, "x > 1", 100_000, expires=1e300, retained=True),
            ]
            events = [self._event(i, **parts) for i in range(20_000)]
            retain = {i: f"k{i}" for i in range(0, 20_000, 2)}
            publish = m.Publish(3, events, retain=retain)
            cancel = [m.Ask(9 + i, "cancel", {"id": f"{name}:1:{i}"}) for i in range(500)]
            messages = [*asks, publish, *cancel]
            yield Attack(f"handled {what}", "client", [*map(frame, messages)], name)
        for number in floats:
            self._names += 1
            name = f"evil-{self._names}"
            whole = rng.choice([2**63 - 1, -(2**63), 2**64 - 1, 0])
            stream = self._streams[0]
            terms = m.Settlement(rng.choice([0, 2**40]), number, number, 0.1)
            messages = [
                m.Subscribe(1, "", rng.choice([9, 2**63 - 1]), lease=number, limit=whole),
                m.Subscribe(2, "", 9, expires=number, since=number),
                m.Subscribe(3, "", 9, durable=name, settlement=terms, takeover=number),
                m.Subscribe(4, "", 9_000, durable=f"{name}b", settlement=m.Settlement(0, 0.0)),
                m.Publish(1, [self._event(i) for i in range(1_000)]),
                m.Settle(4, {}, refused=[m.Refused(stream, i, number) for i in range(1_000)]),
                m.Settle(4, {}, extended=[(stream, i, number) for i in range(1_000)]),
                m.Confirm(1, {stream: whole}, whole),
                m.Settle(4, {stream: [whole] * 99, "x": [whole]}, request=whole),
                m.Ask(5, "streams", {"since": number}),
                m.Read(6, stream, whole, whole),
            ]
            yield Attack(f"numbers like {number}", "client", [*map(frame, messages)], name)

    def graphs(self) -> Iterator[Attack]:
        """Scope graphs of many scopes, deep ones, and rules, while clients come and go."""
        count = 500
        scopes = [ScopeData(f"s{i}") for i in range(count)]
        shapes: dict[str, list[Any]] = {
            "flat": [],
            "deep": [EdgeData(f"s{i}", f"s{i + 1}") for i in range(count - 1)],
            "wide": [EdgeData(f"s{i}", "s0") for i in range(1, count)],
            "rules": [RuleData(f"s{i}", "r", f"x = {i}") for i in range(count)],
            "rules of all": [RuleData(f"s{i}", "r", "name prefix 'e'") for i in range(20)],
        }
        events = frame(m.Publish(1, [self._event(i) for i in range(1_000)]))
        crowd = [frame(m.Subscribe(i, f"x > {i}", 9)) for i in range(1_000)]
        for shape, more in shapes.items():
            data = encode_graph(Change([*scopes, *more]))
            asks = [
                frame(m.Ask(1, "scopes", {"deploy": data})),
                frame(m.Ask(2, "scopes", {"change": encode_graph(Change([], ["scope s7"]))})),
                frame(m.Ask(3, "scopes")),
                frame(m.Ask(4, "scopes", {"deploy": encode_graph(Change())})),
            ]
            standing = Attack("members", "client", [*crowd, events], f"evil-{shape}")
            yield Attack(f"graph, {shape}", "operator", asks, "deployer", (standing,))

    def __iter__(self) -> Iterator[Attack]:
        """All of them, for ever, in another order each time."""
        while True:
            sorts = [getattr(self, sort)() for sort in self._sorts]
            while sorts:
                sort = self.rng.choice(sorts)
                attack = next(sort, None)
                if attack is None:
                    sorts.remove(sort)
                else:
                    yield attack


def _set(elements: list[int]) -> msgspec.msgpack.Ext:
    packed = sorted(map(msgspec.msgpack.encode, elements))
    return msgspec.msgpack.Ext(1, msgspec.msgpack.encode([msgspec.Raw(each) for each in packed]))


def _text(text: str) -> bytes:
    return msgspec.msgpack.encode(text)


def _roles(kind: Any) -> list[str]:
    roles = []
    if kind in get_args(m.FromClient):
        roles.append("client")
    if kind in get_args(m.BetweenBrokers):
        roles.append("broker")
    return roles or ["client", "broker", "operator", "stranger"]
