"""UPDATE and MAINTAIN: scopes that change as things happen (sheet 05 §4.6, R-05.36 to R-05.41)."""

import pytest
from test_deployment import SITE, deployed, edges

from stentor.filters import Filter
from stentor.model import Notification
from stentor.scopes.language import Automation, Maintenance, parse
from stentor.scopes.language.checks import warnings
from stentor.scopes.language.composition import compose

SESSION = """
DEFINE COMPONENT p INTERFACES INPUT(0);
DEFINE COMPONENT q INTERFACES INPUT(Start);
DEFINE COMPONENT r INTERFACES INPUT(depth = 1);
DEFINE COMPONENT w INTERFACES INPUT(depth = 3);
DEFINE SCOPE S AS ALL FROM p, q, r, w; DEPLOY S;
DEFINE SCOPE ses AS SUPERSCOPE ALL FROM S INTERFACES INPUT(1), OUTPUT(1)
    UPDATE ON pub(n: Start) DO CREATE NOW INCLUDE COMPONENT
    UPDATE ON con(n: 1) IF n.depth < 3 DO (ALTER SCOPE SELF ADD ALL FROM TRIGGER);
"""


@pytest.mark.spec("05/E1", "R-05.36", "R-05.37", "R-05.38", "R-05.18", "05/4.6", "05/8.24")
def test_a_session_grows_with_those_who_take_part_in_it():
    d = deployed(SESSION)
    run = Automation(d)
    run.publish({"type": "Start", "depth": 0}, "p")
    assert set(d.graph.members("ses")) == {"p", "q"}
    run.publish({"depth": 1}, "q")
    assert set(d.graph.members("ses")) == {"p", "q", "r"}
    run.publish({"depth": 3}, "r")
    assert set(d.graph.members("ses")) == {"p", "q", "r"}
    assert not run.reports


@pytest.mark.spec("05/P17", "R-05.18")
def test_a_rule_sees_only_what_its_scope_sees():
    d = deployed(SESSION, "DEFINE SCOPE other AS ALL FROM x, y; DEPLOY other")
    run = Automation(d)
    run.publish({"type": "Start", "depth": 0}, "x")
    assert d.instances_of("ses") == []
    run.publish({"type": "Start", "depth": 0}, "p")
    before = edges(d)
    run.publish({"depth": 0}, "x")  # y consumes it, which nobody in S can see
    assert edges(d) == before


@pytest.mark.spec("R-05.32", "R-05.36")
def test_reactions_may_use_what_they_were_triggered_by():
    d = deployed("""DEFINE COMPONENT a SET level = 4; DEFINE COMPONENT b SET level = 1;
        DEFINE SCOPE s AS ALL FROM a, b SET best = 0
        UPDATE ON pub(n: Score) IF TRIGGER.level > 2 AND n.score > 5 DO
            (ALTER SCOPE SELF ADD SET best = n.score, by = TRIGGER.level);
        DEPLOY s""")
    run = Automation(d)
    run.publish({"type": "Score", "score": 9}, "b")
    assert d.graph.node("s").attributes == {"best": 0}
    run.publish({"type": "Score", "score": 7}, "a")
    assert d.graph.node("s").attributes == {"best": 7, "by": 4}


@pytest.mark.spec("R-05.36", "R-05.42")
def test_events_of_interfaces_edges_and_ones_own():
    d = deployed("""DEFINE COMPONENT a, b, c; DEFINE SCOPE s AS ALL FROM a, b
        UPDATE ON sub(Quote) DO (ALTER SCOPE SELF ADD ROLES wanted)
        UPDATE ON unsub(Quote) DO (ALTER SCOPE SELF DEL ROLES wanted)
        UPDATE ON join(c, SELF) DO (ALTER SCOPE SELF ADD ROLES full)
        UPDATE ON leave(*, s) DO (ALTER SCOPE SELF DEL ROLES full)
        UPDATE ON tick(5) DO (ALTER SCOPE SELF ADD ROLES late); DEPLOY s""")
    run = Automation(d)
    roles = lambda: set(d.graph.node("s").roles)  # noqa: E731
    run.changed_interface("sub", "a", Filter("price > 3"))
    assert roles() == {"wanted"}
    run.changed_interface("unsub", "c", Filter("price > 3"))  # not visible to s
    assert roles() == {"wanted"}
    run.changed_interface("unsub", "b", Filter("price > 3"))
    d.graph.join("c", "s")
    assert roles() == {"full"}
    d.graph.leave("c", "s")
    run.signal("tick", 6, component="a")
    assert roles() == set()
    run.signal("tick", 5, component="a")
    assert roles() == {"late"}


@pytest.mark.spec("05/P17", "05/8.24", "05/4.2")
def test_reactions_to_reactions_end():
    text = """DEFINE SCOPE s AS ALL FROM a UPDATE ON join(*, *) DO CREATE NOW INCLUDE COMPONENT;"""
    d = deployed(text)
    run = Automation(d)
    d.run(parse("DEPLOY s"))
    d.graph.add_component("b")
    d.graph.join("b", "s")
    assert len(d.instances) <= 2**9
    assert any("follow from each other" in each for each in run.reports)
    pub = "DEFINE SCOPE s AS UPDATE ON pub(n: 1) DO CREATE NOW"
    assert any("creates one more s" in words for _, words in warnings(compose("f", pub)))
    loop = "DEFINE SCOPE s AS UPDATE ON join(*, *) DO (ALTER SCOPE SELF ADD ALL FROM TRIGGER)"
    assert any("can cause" in words for _, words in warnings(compose("f", loop)))


def test_a_reaction_that_fails_changes_nothing_and_is_reported():
    d = deployed("""DEFINE SCOPE s AS ALL FROM a UPDATE ON pub(n: X) DO
        (ALTER SCOPE SELF ADD ROLES r), (ALTER SCOPE SELF ADD SUPERSCOPE ALL FROM nowhere);
        DEPLOY s""")
    run = Automation(d)
    run.publish({"type": "X"}, "a")
    assert d.graph.node("s").roles == frozenset()
    assert "there is no scope or component 'nowhere'" in run.reports[0]


# -- maintenance

THERMO = (
    SITE
    + """DEFINE SCOPE S AS ALL FROM x, y, A; DEPLOY S;
    DEFINE SCOPE t AS ALL FROM * WHERE has-thermo >= 1 SUPERSCOPE ALL FROM S """
)


@pytest.mark.spec("05/E1", "R-05.41")
def test_by_default_a_selection_is_evaluated_once():
    d = deployed(THERMO + "DEPLOY t")
    keep = Maintenance(d)
    assert keep.accuracy("t") == 1
    keep.set_attributes("x", {"has-thermo": 0})
    assert set(d.graph.members("t")) == {"x", "A"}
    assert keep.accuracy("t") == pytest.approx(2 / 3)  # the edge to S is right, too
    d = deployed("DEFINE COMPONENT x SET k = 1 DEFINE SCOPE n AS ALL FROM x WHERE k = 1 DEPLOY n")
    Maintenance(d).set_attributes("x", {"k": 0})
    assert d.graph.members("n") == ("x",)


@pytest.mark.spec("05/E1", "R-05.41")
@pytest.mark.parametrize("qualifier", ["ALL", "[0..]"])
def test_on_change_members_come_and_go(qualifier):
    text = THERMO.replace("AS ALL FROM *", f"AS {qualifier} FROM *")
    d = deployed(text + "MAINTAIN ON CHANGE DEPLOY t")
    keep = Maintenance(d)
    keep.set_attributes("x", {"has-thermo": 0})
    assert set(d.graph.members("t")) == {"A"}
    keep.set_attributes("y", {"has-thermo": 2})
    assert set(d.graph.members("t")) == {"A", "y"}
    assert keep.accuracy("t") == 1


@pytest.mark.spec("05/E1", "R-05.41")
def test_on_deviation_small_changes_are_let_be():
    d = deployed("""DEFINE COMPONENT a SET load = 100; DEFINE SCOPE t AS
        ALL FROM * WHERE load < 110 MAINTAIN ON DEVIATION 20; DEPLOY t""")
    keep = Maintenance(d)
    keep.set_attributes("a", {"load": 119})
    assert d.graph.members("t") == ("a",)
    keep.set_attributes("a", {"load": 121})
    assert d.graph.members("t") == ()


@pytest.mark.spec("R-05.41")
def test_every_so_often():
    d = deployed("""DEFINE COMPONENT a SET load = 1; DEFINE SCOPE t AS
        ALL FROM * WHERE load < 5 MAINTAIN EVERY 10; DEPLOY t""")
    keep = Maintenance(d)
    keep.advance(10)
    d.graph.set_attributes("a", {"load": 9})
    keep.advance(19)
    assert d.graph.members("t") == ("a",)
    keep.advance(20)
    assert d.graph.members("t") == ()
    assert keep.accuracy("t") == 1


def test_members_of_members_follow():
    d = deployed(
        SITE + "DEFINE SCOPE t AS ALL FROM MEMBERS(site) WHERE has-thermo = 1 MAINTAIN ON CHANGE "
        "DEPLOY t DEFINE SCOPE u AS ALL FROM MEMBERS(t) MAINTAIN ON CHANGE DEPLOY u"
    )
    assert d.graph.members("u") == ("x",)
    d.graph.join("A", "site")
    assert set(d.graph.members("u")) == {"x", "A"}
    d.graph.leave("x", "site")
    assert set(d.graph.members("u")) == {"A"}
    d.graph.leave("A", "site")
    assert d.graph.members("u") == d.graph.members("t") == ()


def test_a_component_that_connects_later_is_taken_in_by_its_attributes():
    d = deployed(
        'DEFINE SCOPE acme AS ALL FROM * WHERE tenant = "acme" MAINTAIN ON CHANGE DEPLOY acme',
        assume=False,
    )
    d.graph.add_component("c", attributes={"tenant": "acme"})
    d.graph.add_component("d", attributes={"tenant": "globex", "name": "c", "_id": "c"})
    assert d.graph.members("acme") == ("c",)
    assert [x.consumer for x in d.graph.deliveries(Notification({"a": 1}), "c")] == ["c"]
