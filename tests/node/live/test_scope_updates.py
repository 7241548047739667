"""UPDATE rules that brokers carry out: sessions that begin and grow while events flow (05/4.6)."""

from __future__ import annotations

from typing import Any

import pytest
from overlay import Overlay

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.model.codec import decode_header
from stentor.scopes.definition import records_of
from stentor.scopes.language import Deployment, compose
from stentor.scopes.language.automation import automate
from stentor.simulation.client import Client, SimulatedInbox

SESSIONS = pytest.mark.spec("05/E1", "R-05.36", "R-05.37", "R-05.38", "R-05.18", "05/P17")

#: A session begins with whoever says Start on the floor, and takes in who consumes what it sees.
FLOOR = """
DEFINE SCOPE floor AS ALL FROM * WHERE room = "floor" MAINTAIN ON CHANGE;
DEPLOY floor;
DEFINE SCOPE session AS
    SUPERSCOPE ALL FROM floor
    INTERFACES INPUT(1), OUTPUT(1)
    UPDATE ON pub(n: Start) DO CREATE NOW INCLUDE COMPONENT
    UPDATE ON con(n: 1) IF n.depth < 3 DO (ALTER SCOPE SELF ADD ALL FROM TRIGGER);
"""


class World:
    """Brokers a, b and c in a row: p at a, q and r at b, w at c, and somebody who is elsewhere."""

    def __init__(self, text: str = FLOOR, **options: Any) -> None:
        self.sim = Overlay([("a", "b"), ("b", "c")], **options)
        self.clients: dict[str, Client] = {}
        self.inboxes: dict[str, SimulatedInbox] = {}
        for id, at, room, filter in (
            ("p", "a", "floor", ""),
            ("q", "b", "floor", "type = 'Start'"),
            ("r", "b", "floor", "depth = 1"),
            ("w", "c", "floor", "depth = 3"),
            ("x", "c", "cellar", "type = 'Start' or depth < 9"),
        ):
            client = self.clients[id] = self.sim.client(id=id)
            client.attributes = {"room": room}
            client.connect(self.sim.hosts[at])
            if options:
                client.offer(Filter("exists depth"))
            if filter:
                self.inboxes[id] = client.open(filter)
        self.sim.settle()
        self.deploy(text)

    def deploy(self, text: str, at: str = "a", *, take_over: bool = False) -> None:
        deployment = Deployment(assume=True)
        compose("", text).deploy(deployment)
        automate(deployment)
        answers: list[StentorError | None] = []
        host = self.sim.hosts[at]
        records = records_of(deployment.graph)
        host.core.scoping.deploy(records, answers.append, take_over=take_over)
        self.sim.carry_out(host)
        self.settle()
        assert answers == [None]

    def say(self, id: str, **attributes: Any) -> None:
        self.clients[id].send([attributes])
        self.settle()

    def settle(self) -> None:
        self.sim.settle()
        self.sim.tick(2)
        self.sim.settle()

    def members(self, scope: str = "session", at: str = "c") -> set[str]:
        """Who is taken in by a rule of the scope, as a broker has it."""
        graph = self.sim.hosts[at].core.scopes.entry.graph
        if scope not in graph:
            return set()
        rules = graph.rules.of_scope(scope)
        everybody = {id: {"_id": id, "name": id} for id in self.clients}
        return {id for id, f in everybody.items() if any(rule.where.matches(f) for rule in rules)}

    def sessions(self, at: str = "c") -> list[str]:
        nodes = self.sim.hosts[at].core.scopes.entry.graph.nodes
        return sorted(id for id, node in nodes.items() if node.definition == "session")

    def given(self, id: str) -> list[dict[str, Any]]:
        logs = {host.log.stream: host.log for host in self.sim.hosts.values()}
        found = self.inboxes[id].given
        return [
            dict(decode_header(logs[stream].entries[at - 1][0]).facts) for stream, at, _ in found
        ]


@SESSIONS
@pytest.mark.parametrize("options", [{}, {"advertisements": "covering"}])
def test_a_session_begins_and_grows_in_the_network(options: dict[str, Any]) -> None:
    world = World(**options)
    assert world.sessions() == []
    world.say("p", type="Start", depth=0)
    assert world.members() == {"p", "q"}, "q has consumed what began it"
    world.say("q", depth=1)
    assert world.members() == {"p", "q", "r"}
    world.say("r", depth=3)
    assert world.members() == {"p", "q", "r"}, "IF bounds it"
    for at in "abc":
        assert world.members(at=at) == {"p", "q", "r"}
    assert world.given("x") == [], "nobody hears of it elsewhere"
    assert len(world.given("w")) == 1


@SESSIONS
def test_nobody_begins_a_session_from_elsewhere() -> None:
    world = World()
    world.say("x", type="Start", depth=0)
    assert world.sessions() == []
    world.say("p", type="Start", depth=0)
    world.say("x", depth=1)
    assert world.members() == {"p", "q"}


@SESSIONS
def test_each_event_is_dealt_with_once_whatever_is_started_anew() -> None:
    world = World()
    world.say("p", type="Start", depth=0)
    world.say("p", type="Start", depth=0)
    assert world.sessions() == ["session", "session#2"]
    for at in "abc":
        world.sim.crash(at)
        world.sim.advance()
        world.sim.restart(at)
        world.settle()
    assert world.sessions() == ["session", "session#2"]
    world.sim.heal()
    for client in world.clients.values():
        if client.broker is None:
            client.connect(world.sim.hosts[client.homes[-1]])
    world.settle()
    world.say("q", depth=1)
    assert world.members() == world.members("session#2") == {"p", "q", "r"}


@SESSIONS
def test_what_happens_while_the_owner_is_away_is_dealt_with_later() -> None:
    world = World()
    world.sim.crash("a")
    world.clients["q"].send([{"type": "Start", "depth": 0}])
    world.sim.advance(30)
    assert world.sessions() == []
    world.sim.restart("a")
    world.sim.heal()
    world.settle()
    assert world.sessions(at="a") == world.sessions() == ["session"]
    assert "q" in world.members()


@SESSIONS
def test_who_takes_over_goes_on_where_the_owner_was() -> None:
    world = World()
    world.say("p", type="Start", depth=0)
    assert world.members() == {"p", "q"}
    world.sim.crash("a")
    world.settle()
    answers: list[StentorError | None] = []
    host = world.sim.hosts["b"]
    host.core.scoping.deploy(host.core.scopes.entry.records, answers.append, take_over=True)
    world.sim.carry_out(host)
    world.settle()
    assert answers == [None]
    world.say("q", depth=1)
    assert world.sessions() == ["session"]
    assert world.members() == {"p", "q", "r"}


@SESSIONS
def test_without_rules_nothing_is_said_to_brokers() -> None:
    world = World()
    world.say("p", type="Start", depth=0)
    world.deploy(FLOOR.split("DEFINE SCOPE session")[0])
    assert world.sessions() == []
    before = len(world.sim.hosts["a"].log.entries)
    world.say("p", type="Start", depth=0)
    assert len(world.sim.hosts["a"].log.entries) == before + 1
    assert len(world.sim.hosts["a"].core.subscriptions) == 0


@SESSIONS
def test_sessions_go_on_while_their_rules_do() -> None:
    world = World()
    world.say("p", type="Start", depth=0)
    assert world.members() == {"p", "q"}
    before = world.sim.hosts["c"].core.scopes.entry.epoch
    world.deploy(FLOOR)
    assert world.sim.hosts["c"].core.scopes.entry.epoch == before, "nothing has changed"
    world.deploy(FLOOR + "DEFINE SCOPE other AS ALL FROM x; DEPLOY other")
    world.say("q", depth=1)
    assert world.members() == {"p", "q", "r"}
    world.say("p", type="Start", depth=0)
    world.deploy(FLOOR.replace("n.depth < 3", "n.depth < 9") + "DEPLOY session AS mine")
    assert world.sessions() == ["mine"]


@SESSIONS
def test_what_changes_nothing_is_not_said_to_brokers() -> None:
    world = World()
    world.say("p", type="Start", depth=0)
    world.say("q", depth=1)
    before = sum(len(host.log.entries) for host in world.sim.hosts.values())
    world.say("q", depth=1)  # all who consume it are members
    world.say("q", depth=3)  # whoever consumes it is not to be one
    world.say("x", type="Start", depth=0)  # nobody in the session sees it
    assert sum(len(host.log.entries) for host in world.sim.hosts.values()) == before + 3


@SESSIONS
def test_members_that_the_graph_names_take_part_as_well() -> None:
    world = World(FLOOR.replace("ALL FROM * WHERE", "ALL FROM q, r ALL FROM * WHERE"))
    world.say("p", type="Start", depth=0)
    assert world.members() == {"p", "q"}
    world.say("q", depth=1)
    assert world.members() == {"p", "q", "r"}
    assert len(world.given("r")) == 1


@pytest.mark.spec("R-05.32")
def test_reactions_may_set_what_they_were_triggered_by() -> None:
    world = World(
        """
        DEFINE SCOPE floor AS ALL FROM * WHERE room = "floor" MAINTAIN ON CHANGE
            SET best = 0
            UPDATE ON pub(n: Score) IF n.score > SELF.best DO
                (ALTER SCOPE SELF ADD SET best = n.score, by = TRIGGER.room);
        DEPLOY floor""".replace("n.score > SELF.best", "n.score > 5")
    )
    world.say("p", type="Score", score=3)
    world.say("p", type="Score", score=7)
    node = world.sim.hosts["c"].core.scopes.entry.graph.node("floor")
    assert node.attributes == {"best": 7, "by": "floor"}
    world.say("q", depth=1)
    assert len(world.given("r")) == 1, "and everybody is a member as before"


@pytest.mark.spec("R-04.13", "04/P16")
@pytest.mark.parametrize(
    "name",
    ["board", "SELF", "TRIGGER", "definitions", "session", "floor::board", "x') or true or ('y"],
)
def test_nobody_gets_anywhere_by_the_name_that_it_has_chosen(name: str) -> None:
    world = World(
        FLOOR
        + """DEFINE SCOPE board AS ALL FROM * WHERE room = "board" MAINTAIN ON CHANGE
            INTERFACES INPUT(1), OUTPUT(1); DEPLOY board; DEPLOY board AS board SUPERSCOPE ALL FROM
            floor"""
    )
    spy = world.sim.client(id=name)
    spy.attributes = {"room": "floor"}
    spy.connect(world.sim.hosts["a"])
    chair = world.clients["chair"] = world.sim.client(id="chair")
    chair.attributes = {"room": "board"}
    chair.connect(world.sim.hosts["b"])
    inbox = world.inboxes["spy"] = spy.open("depth >= 5")
    world.settle()
    spy.send([{"type": "Start", "depth": 0}])
    world.settle()
    for id in world.sessions(at="b"):
        graph = world.sim.hosts["b"].core.scopes.entry.graph
        assert not any(edge.child.is_scope for edge in graph.node(id).children.values())
        others = [{"_id": id, "name": id} for id in ("x", "chair", "y")]
        rules = graph.rules.of_scope(id)
        assert not any(rule.where.matches(facts) for rule in rules for facts in others)
    chair.send([{"depth": 5}])
    world.settle()
    assert inbox.given == []


@pytest.mark.spec("R-04.13", "04/P16")
def test_what_brokers_tell_each_other_is_for_them_alone() -> None:
    world = World()
    everything = world.clients["p"].open("")
    numbered = world.clients["x"].open("exists number", since=0.0)
    world.say("p", type="Start", depth=0)
    world.settle()
    logs = {host.log.stream: host.log for host in world.sim.hosts.values()}
    given = [logs[stream].entries[at - 1][0] for stream, at, _ in everything.given]
    assert len(given) == 1, "nothing but what it has said itself"
    assert numbered.given == []
