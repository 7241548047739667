"""Mappings of scopes where subscriptions go only where something is advertised (R-03.27)."""

from __future__ import annotations

import random

import pytest
from overlay import Overlay

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.protocol import messages as m
from stentor.scopes import Interface, MembershipRule, ScopeGraph, mapping_of
from stentor.scopes.definition import records_of
from stentor.scopes.mappings import EdgeMapping
from stentor.simulation.client import Client, SimulatedInbox

STEERED = pytest.mark.spec("R-03.27", "R-04.49", "R-05.02")
EVENTS = "not exists z"


def rooms(*, mapped: bool) -> ScopeGraph:
    """Of what `inner` says, `outer` hears z = 7, if the edge is mapped."""
    graph = ScopeGraph()
    graph.create_scope("outer")
    graph.create_scope("inner", interface=Interface.of(True, True))
    for scope in ("inner", "outer"):
        graph.add_rule(MembershipRule(scope, Filter(f"room = '{scope}'"), "r"))
    mapping = EdgeMapping(mapping_of({"z": 7}), None) if mapped else EdgeMapping()
    graph.join("inner", "outer", mapping=mapping)
    return graph


class World:
    """Two brokers, a publisher in `inner` at one, and a subscriber in `outer` at the other."""

    def __init__(self) -> None:
        self.sim = Overlay([("a", "b")], advertisements="covering")
        self.near, self.far = self.client("inner", "a"), self.client("outer", "b")
        self.inbox: SimulatedInbox = self.far.open("z = 7")
        self.offer = self.near.offer(Filter(EVENTS))
        self.sim.settle()

    def client(self, room: str, broker: str) -> Client:
        client = self.sim.client(id=room)
        client.attributes = {"room": room}
        client.connect(self.sim.hosts[broker])
        return client

    def deploy(self, graph: ScopeGraph) -> None:
        answers: list[StentorError | None] = []
        host = self.sim.hosts["a"]
        host.core.scoping.deploy(records_of(graph), answers.append)
        self.sim.carry_out(host)

    @property
    def given(self) -> int:
        return len(self.inbox.given)


@STEERED
def test_what_a_mapping_makes_reaches_those_who_asked_for_what_nobody_advertised() -> None:
    assert not Filter(EVENTS).overlaps(Filter("z = 7"))
    world = World()
    world.deploy(rooms(mapped=True))
    world.sim.settle()
    world.near.send([{"x": 1}])
    world.sim.settle()
    assert world.given == 1


@STEERED
@pytest.mark.parametrize("seed", range(8))
def test_what_is_published_right_after_an_edge_was_mapped_is_not_missed(seed: int) -> None:
    """The members of both scopes stay what they are; only what crosses the edge is another."""
    world, rng = World(), random.Random(seed)
    world.deploy(rooms(mapped=False))
    world.sim.settle()
    world.deploy(rooms(mapped=True))
    for _ in range(20):  # some before anybody knows of it, some while it is on its way
        world.near.send([{"x": 1}])
        for _ in range(rng.randrange(4)):
            world.sim.happen(*rng.choice(world.sim.choices()))
    world.sim.settle()
    translated = [data for data, _ in world.sim.hosts["a"].log.entries if b"@1@" in data]
    assert world.given == len(translated) > 0


@STEERED
def test_without_a_mapping_nobody_is_asked_for_what_nobody_advertises() -> None:
    world = World()
    world.deploy(rooms(mapped=True))
    world.sim.settle()
    assert asked_for(world) == ["z = 7"]
    world.deploy(rooms(mapped=False))
    world.sim.settle()
    assert asked_for(world) == []


@STEERED
def test_the_places_of_a_publisher_that_is_gone_are_asked_for_no_longer() -> None:
    world = World()
    world.deploy(rooms(mapped=True))
    world.sim.settle()
    world.sim.hosts["a"].core.heard(world.near.session, m.Unadvertise(world.offer))
    world.sim.carry_out(world.sim.hosts["a"])
    world.sim.settle()
    assert asked_for(world) == []


def asked_for(world: World) -> list[str]:
    """What the publisher's broker was asked for by the other one, without the places."""
    router = world.sim.hosts["a"].core.routing.router
    found = [str(each) for each in router.interests() if "z = 7" in str(each)]
    return ["z = 7"] * bool(found)
