"""Connections are cut at every boundary of a session; nothing is lost and nothing comes twice."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import World, run

import stentor
from stentor.model import decode

FAST = (0.001, 0.01)


async def session(world: World, brokers: int, durable: bool) -> list[int]:
    """Publish in every way there is, and receive it; what was received, in order."""
    async with AsyncExitStack() as stack:
        addresses = [
            (await stack.enter_async_context(world.broker())).address for _ in range(brokers)
        ]
        consumer = stentor.connect(*reversed(addresses), name="consumer", delays=FAST)
        producer = stentor.connect(*addresses, name="producer", delays=FAST)
        await stack.enter_async_context(consumer)
        await stack.enter_async_context(producer)
        received: list[int] = []
        options: dict[str, Any] = {"durable": "desk"} if durable else {}
        async with consumer.subscribe("k >= 0", window=8, **options) as sub:
            await producer.publish({"k": 0}, ack=True)
            for k in range(1, 4):
                await producer.publish({"k": k})
            await producer.publish({"other": 1})
            async with producer.transaction() as transaction:
                for k in range(4, 7):
                    await transaction.publish({"k": k})
            await producer.publish_many([{"k": k} for k in range(7, 20)], ack=True)
            async for n in sub:
                received.append(n["k"])
                if len(received) == 20:
                    break
            await producer.flush()
            # Whatever could come twice has come before what is published now.
            await producer.publish({"k": 20}, ack=True)
            assert (await sub.get())["k"] == 20
            received.append(20)
    return received


def check(world: World, received: list[int]) -> None:
    assert sorted(received) == list(range(21))
    published = Counter(n["k"] for n in world.all() if "k" in n)
    assert set(published) == set(range(21)), "everything acknowledged is in a journal"
    for journal in world.journals.values():
        ids = [decode(item).id for item in journal]
        assert ids == sorted(set(ids)), "a journal holds everything once, and in order"
    if len(world.brokers) == 1:
        # Journals are read independently of each other, so a publisher that changes its broker may
        # be overtaken by itself.
        assert received == list(range(21))


def test_without_faults_every_message_is_counted() -> None:
    world = World()
    check(world, run(session(world, 1, durable=False)))
    assert world.cut == 0
    assert world.messages > 30


@pytest.mark.spec("R-01.20", "R-01.96", "01/A-7", "01/A-13", "R-07.39")
@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "aborted"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "plain"])
def test_one_cut_at_every_boundary(durable: bool, flush: bool) -> None:
    calm = World()
    run(session(calm, 1, durable))
    cuts = 0
    for boundary in range(1, calm.messages + 1):
        world = World([boundary], flush=flush)
        check(world, run(session(world, 1, durable)))
        cuts += world.cut
    assert cuts > calm.messages // 2


@pytest.mark.spec("R-01.20", "01/A-7")
@settings(max_examples=60)
@given(
    st.sets(st.integers(1, 120), max_size=12),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)
def test_many_cuts_and_several_brokers(
    cuts: set[int], brokers: int, durable: bool, flush: bool, outage: int
) -> None:
    world = World(cuts, flush=flush, outage=outage)
    check(world, run(session(world, brokers, durable)))


@pytest.mark.spec("01/A-7")
def test_what_two_brokers_have_journaled_is_delivered_once() -> None:
    """A publisher that goes to another broker publishes there what may not have been stored."""
    calm = World()
    run(session(calm, 2, durable=True))
    twice = 0
    for boundary in range(1, calm.messages + 1):
        world = World([boundary], outage=1)
        check(world, run(session(world, 2, durable=True)))
        twice += sum(count > 1 for count in Counter(str(n.id) for n in world.all()).values())
    assert twice > 0, "it has happened, and nobody noticed"


@pytest.mark.spec("R-07.40", "01/A-7")
@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=8),
    st.sets(st.integers(1, 150), max_size=6),
)
def test_a_durable_consumer_that_fails_sees_again_only_what_it_was_working_on(
    lives: list[tuple[int, bool]], cuts: set[int]
) -> None:
    async def live(bus: stentor.Bus, count: int, fails: bool, seen: list[int]) -> None:
        async with bus.subscribe("k >= 0", durable="desk") as sub:
            for _ in range(count):
                seen.append((await sub.get())["k"])
            if fails:
                raise ZeroDivisionError

    async def test() -> None:
        async with world.broker() as broker, stentor.connect(broker, delays=FAST) as bus:
            await live(bus, 0, False, [])
            await bus.publish_many([{"k": k} for k in range(50)], ack=True)
            following = 0
            for count, fails in lives:
                seen: list[int] = []
                if fails:
                    with pytest.raises(ZeroDivisionError):
                        await live(bus, count, fails, seen)
                else:
                    await live(bus, count, fails, seen)
                assert seen == list(range(following, following + count))
                following += count - (1 if fails and count else 0)

    world = World(cuts)
    run(test())
