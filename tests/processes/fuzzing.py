"""Hostile connections: what a broken or malicious peer may send, made from a seed.

Random bytes are refused by the first check and reach nothing else. So most of what is made here is
almost right: messages of the true types, with values that mean something to this broker (its
streams, numbers that are in use, filters that parse) or that hurt (the ends of the range of
integers, counts of millions), in any order, in every role; then a few bytes of it are changed, cut
out or repeated.

Run as a program, it attacks a broker with all of that and with what `extremes` makes, and reports
every step of the broker that took longer than it may, and every exception that was not foreseen:

    python tests/processes/fuzzing.py --seconds 600 --seed 1

What counts is processor time; real time is told beside it. But where others use the processor, too,
they also cost it its caches. So an attack with a step that took too long is repeated, and counts if
one does so each time.

With `--witness` the broker is a process of its own, and what counts is its processor time between
the pings of another client and their answers.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from typing import Any, get_args

import msgspec

from stentor.model import Notification, NotificationId, encode
from stentor.protocol import messages as m
from stentor.protocol.frames import frame

Kinds = tuple[type[msgspec.Struct], ...]
KINDS: Kinds = get_args(m.AnyMessage)
#: What is expected of each role. Others end the connection, so they are used less.
FITTING: dict[str, Kinds] = {
    "client": get_args(m.FromClient),
    "operator": get_args(m.FromClient),
    "broker": get_args(m.BetweenBrokers),
}
#: What operators may do is not an attack.
_NOT_ASKED = ("drain", "links")

_WHOLE = (0, 1, 2, 3, -1, 7, 1_000, 2**31, 2**40, 2**53, 2**63 - 1, -(2**63), 2**64 - 1)
_FLOATS = (0.0, -1.0, 0.5, 1e-300, 1e18, 1e300, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "",
    "x",
    "x > 1",
    "symbol = 'IBM' and price > 100",
    "x = ",
    "not (a = 1 or b like '%x%')",
    "client",
    "broker",
    "spill",
    "block",
    "disconnect",
    "round_robin",
    "key:x",
    "status",
    "offers",
    "journal.db",
    "journal.mark",
    "../../x",
    "127.0.0.1:1",
    "unix:/",
    "\x00",
    "ü" * 300,
    "(" * 2_000,
)


class Fuzzer:
    """Makes the bytes of one connection after another."""

    def __init__(self, seed: int, words: tuple[str, ...] = ()) -> None:
        """`words` are texts that mean something to the broker, such as its stream."""
        self.rng = random.Random(seed)
        self._texts = _TEXTS + words * 4
        self._name = 0

    # -- values

    def _text(self) -> str:
        return self.rng.choice(self._texts)

    def _bytes(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.3:
            return rng.randbytes(rng.choice([0, 1, 9, 100]))
        id = NotificationId(rng.choice(["evil", f"evil-{self._name}"]), 1, rng.randrange(9))
        data = encode(Notification({"x": rng.choice(_WHOLE[:7]), "symbol": "IBM"}, id=id))
        return self._mutated(data) if rng.random() < 0.3 else data

    def value(self, kind: msgspec.inspect.Type) -> Any:
        """A value of a type."""
        rng = self.rng
        match kind:
            case msgspec.inspect.BoolType():
                return rng.random() < 0.5
            case msgspec.inspect.IntType():
                return rng.choice(_WHOLE)
            case msgspec.inspect.FloatType():
                return rng.choice(_FLOATS)
            case msgspec.inspect.StrType():
                return self._text()
            case msgspec.inspect.BytesType():
                return self._bytes()
            case msgspec.inspect.ListType(item_type=item):
                return [self.value(item) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
            case msgspec.inspect.DictType(key_type=key, value_type=value):
                return {self.value(key): self.value(value) for _ in range(rng.choice([0, 1, 3]))}
            case msgspec.inspect.TupleType(item_types=items):
                return tuple(map(self.value, items))
            case msgspec.inspect.UnionType(types=types):
                return self.value(rng.choice(types))
            case msgspec.inspect.StructType(fields=fields, cls=cls):
                return cls(**{each.name: self.value(each.type) for each in fields})
        return None

    def message(self, role: str | None = None) -> Any:
        """A message with fields of the right types; one that fits the role, mostly."""
        kinds = KINDS if role is None or self.rng.random() < 0.05 else FITTING[role]
        message = self.value(msgspec.inspect.type_info(self.rng.choice(kinds)))
        if isinstance(message, m.Ask) and message.what in _NOT_ASKED:
            message.what = "status"
        if isinstance(message, m.Subscribe | m.Publish | m.Credit) and self.rng.random() < 0.5:
            message.number = self.rng.choice([1, 2, 3])
        return message

    def hello(self) -> m.Hello:
        """One that is let in."""
        self._name += 1
        role = self.rng.choice(["client", "client", "broker", "operator"])
        stream = f"evil#{self._name}" if self.rng.random() < 0.7 else self._text()
        return m.Hello([1], role, f"evil-{self._name}", stream=stream, addresses=[self._text()])

    # -- bytes

    def _mutated(self, data: bytes) -> bytes:
        rng = self.rng
        broken = bytearray(data)
        for _ in range(rng.choice([1, 1, 3])):
            at = rng.randrange(len(broken) + 1)
            match rng.randrange(5):
                case 0:
                    broken[at:at] = rng.randbytes(rng.randrange(1, 5))
                case 1:
                    del broken[at : at + rng.randrange(1, 9)]
                case 2:
                    odd = rng.choice([0, 0x7F, 0x80, 0xC1, 0xDD, 0xDF, 0xFF])
                    broken[at : at + 1] = bytes([odd])
                case 3:
                    broken[at:at] = broken[: rng.randrange(64)]
                case _:
                    if at < len(broken):
                        broken[at] ^= 1 << rng.randrange(8)
        return bytes(broken)

    def _bomb(self) -> bytes:
        """A small frame that claims to be large."""
        rng = self.rng
        count = struct.pack(">I", rng.choice([2**16, 2**24, 2**31, 2**32 - 1]))
        body = rng.choice(
            [
                b"\xdd" + count,
                b"\x96\x0a\x01\xdd" + count,
                b"\x9d\x0b\x01\xdb" + count,
                b"\x93\x12\x01\xa6status\xdf" + count,
                b"\x91" * 3_000,
                b"\x94\x34\xa0\x90\xdd" + count,
            ]
        )
        claimed = rng.choice([len(body), len(body), 2**24, 2**32 - 1, 0])
        return struct.pack(">I", claimed) + body

    def connection(self) -> list[bytes]:
        """What is sent over one connection, piece by piece."""
        rng = self.rng
        if rng.random() < 0.15:
            return [rng.randbytes(rng.choice([1, 4, 100, 70_000]))]
        hello = self.hello()
        pieces = [frame(hello)] if rng.random() < 0.9 else []
        for _ in range(rng.randrange(1, 20)):
            kind = rng.random()
            if kind < 0.9:
                pieces.append(frame(self.message(hello.role)))
            elif kind < 0.97:
                pieces.append(self._mutated(frame(self.message(hello.role))))
            else:
                pieces.append(self._bomb())
        return pieces


# -- as a program

#: Seconds of processor time for which one step may occupy a broker.
LONGEST = 0.05
#: How often an attack is carried out before a step of it counts as too long.
TRIALS = 4


def main() -> int:
    """Attack for a while; the exit status is 1 if a step has taken too long."""
    from extremes import Attack, Extremes
    from turns import MeasuredBroker, Step, WitnessedBroker

    parser = argparse.ArgumentParser(description="Attack a broker and measure its steps.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=LONGEST)
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    parser.add_argument("--sort", choices=Extremes.SORTS, help="one sort of extremes only")
    parser.add_argument("--witness", action="store_true", help="a process, and one who waits")
    parser.add_argument("--overlay", default="tree", help="the overlay of the broker")
    parser.add_argument("--advertisements", default="none", help="how they steer, if they do")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    worst: dict[str, Step] = {}
    count = faults = 0
    settings = {"overlay": options.overlay, "advertisements": options.advertisements}
    with WitnessedBroker() if options.witness else MeasuredBroker(**settings) as broker:
        fuzzer = Fuzzer(options.seed, (broker.stream, "b1"))
        sorts = (options.sort,) if options.sort else Extremes.SORTS
        for extreme in Extremes(options.seed, (broker.stream,), sorts):
            if time.monotonic() > deadline:
                break
            attacks = [extreme]
            if not options.only and not options.sort and fuzzer.rng.random() < 0.5:
                attacks.append(Attack("fuzz", "stranger", fuzzer.connection()))
            for attack in attacks:
                if options.only not in attack.what:
                    continue
                count += 1
                steps = [broker.suffer(attack)]
                while steps[-1].seconds > options.longest and len(steps) < TRIALS:
                    steps.append(broker.suffer(attack))
                step = min(steps)
                worst[attack.what] = max(step, worst.get(attack.what, step))
                for fault in broker.faults[faults:]:
                    print(f"FAULT by {attack.what}: {fault}", flush=True)
                faults = len(broker.faults)
                if len(steps) > 1:
                    tried = ", then ".join(map(str, steps))
                    print(f"{tried}  {attack.what}: {steps[0].where[:150]}", flush=True)
    slow = {what: step for what, step in worst.items() if step.seconds > options.longest}
    print(f"{count} attacks of {len(worst)} kinds, {len(slow)} too long; the longest steps:")
    for what, step in sorted(worst.items(), key=lambda item: item[1], reverse=True)[:20]:
        print(f"{step}  {what}: {step.where[:150]}")
    return 1 if slow or faults else 0


if __name__ == "__main__":
    sys.exit(main())
