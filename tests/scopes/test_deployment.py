"""Statements carried out on a graph: sheet 05 §3.3, §4.2 to §4.5 and the examples E1."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidScopeGraph, UnknownScope
from stentor.model import Notification
from stentor.scopes import ScopeGraph
from stentor.scopes.interfaces import OPEN
from stentor.scopes.language import (
    Deployment,
    parse,
    register_architecture,
    register_filter_model,
    register_test,
)
from stentor.scopes.language.checks import findings
from stentor.scopes.mappings import register_mapping


def deployed(text, *more, **options):
    """What statements make of an empty graph."""
    found = Deployment(**{"assume": True} | options)
    for each in (text, *more):
        found.run(parse(each))
    return found


def edges(deployment):
    nodes = deployment.graph.nodes.values()
    return {(n.id, p) for n in nodes for p in deployment.graph.parents(n.id)}


def typed(kind, **more):
    return Notification({"type": kind, **more})


def receivers(deployment, publisher, n):
    found = deployment.graph.deliveries(n, publisher)
    return sorted(d.consumer for d in found if d.consumer != publisher)


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SITE = """
DEFINE COMPONENT x SET has-thermo = 1;
DEFINE COMPONENT y SET has-thermo = 0;
DEFINE COMPONENT A SET has-thermo = 1;
DEFINE COMPONENT B SET has-thermo = 0;
DEFINE SCOPE site AS ALL FROM x, y INTERFACES INPUT(1), OUTPUT(1); DEPLOY site;
DEFINE SCOPE S1 AS ALL FROM s1; DEPLOY S1;
DEFINE SCOPE S2 AS ALL FROM s2; DEPLOY S2;
"""


@pytest.mark.spec("05/E1", "R-05.22", "R-05.10")
def test_a_definition_runs_nothing():
    d = deployed("DEFINE SCOPE g AS ALL FROM p1, p2, s1")
    assert not d.graph.nodes
    d.run(parse("DEPLOY g"))
    assert set(d.graph.members("g")) == {"p1", "p2", "s1"}
    assert d.graph.node("g").definition == "g"


@pytest.mark.spec("05/E1", "R-05.23", "R-05.21", "05/8.14")
def test_where_is_asked_of_every_element_of_the_base_set():
    d = deployed(
        SITE, "DEFINE SCOPE t AS ALL FROM MEMBERS(site), A, B WHERE has-thermo = 1 DEPLOY t"
    )
    assert set(d.graph.members("t")) == {"x", "A"}
    d = deployed(SITE, "DEFINE SCOPE t AS ALL FROM MEMBERS(MEMBERS(all)) DEFINE SCOPE all AS "
                 "ALL FROM site, A DEPLOY all DEPLOY t")  # fmt: skip
    assert set(d.graph.members("t")) == {"x", "y"}


@pytest.mark.spec("05/E1", "R-05.25", "R-05.28", "R-05.30", "R-05.05", "05/8.13")
def test_superscopes_labels_and_the_defaults_of_interfaces():
    d = deployed(
        SITE,
        """DEFINE SCOPE t AS m: ALL FROM MEMBERS(site), A, B WHERE has-thermo = 1
           s: SUPERSCOPES ALL FROM S1, S2 INTERFACES OUTPUT(Alarm) DEPLOY t""",
    )
    assert {("t", "S1"), ("t", "S2"), ("x", "t"), ("A", "t")} <= edges(d)
    assert "m" not in d.graph
    assert "s" not in d.graph
    assert receivers(d, "A", typed("Alarm")) == ["s1", "s2", "x"]
    assert receivers(d, "A", typed("Log")) == ["x"]
    assert receivers(d, "s1", typed("Alarm")) == []  # INPUT is omitted, which is 0


@pytest.mark.spec("05/E1", "R-05.29", "R-05.30")
def test_what_is_imposed_on_members():
    base = SITE + "DEFINE SCOPE t AS m: ALL FROM A, B "
    d = deployed(base + "m: { INTERFACES OUTPUT(Temp), INPUT(0) } DEPLOY t")
    assert receivers(d, "A", typed("Temp")) == []
    d = deployed(base + "m: { INTERFACES OUTPUT(Temp) } DEPLOY t")
    assert receivers(d, "A", typed("Temp")) == ["B"]
    assert receivers(d, "A", typed("Log")) == []
    d = deployed(base + "*: { INTERFACES OUTPUT(Temp) } DEPLOY t")
    assert receivers(d, "A", typed("Temp")) == ["B"]
    assert receivers(d, "A", typed("Log")) == []


FIRM = """
DEFINE COMPONENT c1, c2, c3;
DEFINE SCOPE staff AS ALL FROM c1, c2, c3 INTERFACES INPUT(some), OUTPUT(other) ROLES boss;
DEFINE COMPONENT w1 INTERFACES OUTPUT(need) SET experience = 7;
DEFINE COMPONENT w2 INTERFACES INPUT(more) SET experience = 9;
DEFINE COMPONENT w3 INTERFACES INPUT(less) SET experience = 99;
DEFINE SCOPE site AS ALL FROM w1, w2, w3;
DEFINE SCOPE firm AS
    b: [1..1] FROM MEMBERS(site) WHERE IS ROLE(boss) : { INTERFACES OUTPUT(holiday) }
    worker: TOP(experience, 10) FROM MEMBERS(site) WHERE OUTPUT(need) OR INPUT(more)
    SET name = "Acme, Inc.";
DEPLOY site;
"""


@pytest.mark.spec("05/E1", "R-05.26", "R-05.27", "R-05.31", "R-05.32", "R-05.15", "05/4.4")
def test_one_boss_and_the_most_experienced_workers():
    d = deployed(FIRM + "DEPLOY staff SUPERSCOPE ALL FROM site; DEPLOY firm")
    assert set(d.graph.members("firm")) == {"staff", "w1", "w2"}
    assert d.graph.node("firm").attributes == {"name": "Acme, Inc."}
    assert any("have nothing in common" in each for each in findings(d))


@pytest.mark.spec("05/E1", "05/4.4", "05/P10")
def test_without_a_boss_nothing_is_deployed_and_of_two_it_is_the_first():
    d = deployed(FIRM)
    before = edges(d), set(d.graph.nodes), len(d.graph.rules)
    with pytest.raises(InvalidScopeGraph, match="needs at least 1 and finds 0"):
        d.run(parse("DEPLOY firm"))
    assert (edges(d), set(d.graph.nodes), len(d.graph.rules)) == before
    d.run(parse("DEPLOY staff AS zz SUPERSCOPE FROM site; DEPLOY staff AS aa SUPERSCOPE FROM site"))
    d.run(parse("DEPLOY firm"))
    assert {"aa"} == set(d.graph.members("firm")) & {"aa", "zz"}


@pytest.mark.spec("05/E1", "R-05.24", "R-05.39", "05/8.14", "05/8.15")
def test_a_star_takes_the_members_of_superscopes():
    d = deployed(
        SITE,
        """DEFINE SCOPE S AS ALL FROM x, y, A; DEPLOY S;
           DEFINE SCOPE t AS a: ALL FROM * WHERE has-thermo = 1;
           DEPLOY t SUPERSCOPE ALL FROM S a: { INTERFACES OUTPUT(Temp) } BROKERSCOPE(localhost)""",
    )
    assert set(d.graph.members("t")) == {"x", "A"}
    assert d.graph.parents("t") == ("S",)
    assert {"x", "A", "t"} <= set(d.graph.members("S"))
    assert d.instances["t"].architecture.host == "localhost"
    assert receivers(d, "x", typed("Temp")) == ["A", "y"]


@pytest.mark.spec("05/E1", "R-05.40", "05/4.5")
def test_alter_adds_members_and_superscopes():
    d = deployed(SITE + "DEFINE SCOPE t AS ALL FROM A DEPLOY t")
    d.run(parse("ALTER SCOPE t ADD ALL FROM c SUPERSCOPES ALL FROM S1"))
    assert {("c", "t"), ("t", "S1"), ("A", "t")} <= edges(d)
    d.run(parse("ALTER SCOPE t DEL ALL FROM c SUPERSCOPES ALL FROM S1"))
    assert not {("c", "t"), ("t", "S1")} & edges(d)
    d.run(parse("ALTER SCOPE t DEL ALL FROM A"))
    assert d.graph.members("t") == ()


@pytest.mark.spec("05/4.5")
def test_alter_replaces_a_labelled_selection_and_changes_features():
    d = deployed(SITE + "DEFINE SCOPE t AS m: ALL FROM A, B SUPERSCOPE ALL FROM S1 DEPLOY t")
    d.run(parse("ALTER SCOPE t m: ALL FROM B, x"))
    assert set(d.graph.members("t")) == {"B", "x"}
    d.run(parse("ALTER SCOPE t ADD INTERFACES OUTPUT(Temp) ROLES r1 SET a = 1"))
    d.run(parse("ALTER SCOPE t ADD INTERFACES OUTPUT(Log)"))
    assert receivers(d, "B", typed("Log")) == ["s1", "x"]
    assert receivers(d, "B", typed("Temp")) == ["s1", "x"]
    d.run(parse("ALTER SCOPE t DEL INTERFACES OUTPUT(Temp)"))
    assert receivers(d, "B", typed("Temp")) == ["x"]
    d.run(parse("ALTER SCOPE t DEL INTERFACES OUTPUT(Log)"))
    assert d.graph.node("t").interface.output == ()  # the last filter of a base half leaves 0
    d.run(parse("ALTER SCOPE t INTERFACES OUTPUT(1) ROLES r2"))
    assert receivers(d, "B", typed("X")) == ["s1", "x"]
    assert d.graph.node("t").roles == {"r2"}
    d.run(parse("ALTER SCOPE t m: { INTERFACES OUTPUT(Temp) }"))
    assert receivers(d, "B", typed("X")) == []
    d.run(parse("ALTER SCOPE t DEL m: { INTERFACES OUTPUT(Temp) }"))
    assert receivers(d, "B", typed("X")) == ["s1", "x"]  # … of an imposed half 1
    with pytest.raises(InvalidScopeGraph, match="name it"):
        d.run(parse("ALTER SCOPE t ALL FROM y"))
    with pytest.raises(InvalidScopeGraph, match="no selection has the label 'k'"):
        d.run(parse("ALTER SCOPE t k: { INTERFACES OUTPUT(Temp) }"))


@pytest.mark.spec("05/P9")
@given(st.lists(st.sampled_from("ABxy"), min_size=1, max_size=3, unique=True))
def test_to_add_and_to_delete_the_same_changes_nothing(names):
    d = deployed(SITE + "DEFINE SCOPE t AS ALL FROM A SUPERSCOPE ALL FROM S1 DEPLOY t")
    before = edges(d)
    clause = f"ALL FROM {', '.join(names)} SUPERSCOPE ALL FROM S2"
    d.run(parse(f"ALTER SCOPE t ADD {clause}"))
    assert {(name, "t") for name in names} <= edges(d)
    d.run(parse(f"ALTER SCOPE t DEL {clause}"))
    assert edges(d) == before


@pytest.mark.spec("R-05.40", "05/4.5")
def test_a_changed_definition_is_for_later_instances():
    d = deployed(SITE + "DEFINE SCOPE t AS m: ALL FROM A DEPLOY t")
    d.run(parse("ALTER SCOPE definitions::t ADD ALL FROM B DEPLOY t"))
    assert d.graph.members("t") == ("A",)
    assert set(d.graph.members("t#2")) == {"A", "B"}
    with pytest.raises(InvalidScopeGraph, match="has instances"):
        d.run(parse("DROP SCOPE definitions::t"))
    d.run(parse("DROP SCOPE t#2".replace("t#2", "t")))
    assert "t" not in d.graph


@pytest.mark.spec("05/E1", "R-05.26", "05/P8", "05/P6")
@pytest.mark.parametrize(
    ("qualifier", "of_five", "of_one"),
    [("[2..3]", 3, None), ("[..3]", 3, 1), ("[2..]", 5, None), ("[..]", 5, 1), ("ALL", 5, 1)],
)
def test_how_many_a_selection_takes(qualifier, of_five, of_one):
    for count, expected in ((5, of_five), (1, of_one)):
        names = ", ".join(f"c{n}" for n in range(count))
        text = f"DEFINE COMPONENT {names} DEFINE SCOPE t AS {qualifier} FROM {names} DEPLOY t"
        if expected is None:
            with pytest.raises(InvalidScopeGraph, match="at least 2"):
                deployed(text)
        else:
            found = deployed(text).graph.members("t")
            assert sorted(found) == [f"c{n}" for n in range(expected)]


@pytest.mark.spec("R-05.26", "R-05.42", "05/4.1")
def test_top_ranks_by_an_attribute_or_by_a_measure_of_ones_own():
    text = """DEFINE COMPONENT a SET load = 5; DEFINE COMPONENT b SET load = 5;
        DEFINE COMPONENT c SET load = 1; DEFINE COMPONENT d; DEFINE SCOPE t AS """
    assert set(deployed(text + "TOP(load, 2) FROM * DEPLOY t").graph.members("t")) == {"a", "b"}
    assert set(deployed(text + "TOP(load, 1) FROM * DEPLOY t").graph.members("t")) == {"a"}
    assert set(deployed(text + "TOP(load ASC, 1) FROM * DEPLOY t").graph.members("t")) == {"c"}
    register_test("distance", lambda facts, to: abs(facts.get("load", 99) - to))
    found = deployed(text + "TOP(distance(2) ASC, 1) FROM * WHERE load >= 0 DEPLOY t")
    assert set(found.graph.members("t")) == {"c"}
    register_test("busy", lambda facts: facts.get("load", 0) > 3)
    found = deployed(text + "ALL FROM * WHERE busy() AND NOT load = 6 DEPLOY t")
    assert set(found.graph.members("t")) == {"a", "b"}
    with pytest.raises(InvalidScopeGraph, match="no condition 'lazy'"):
        deployed(text + "ALL FROM * WHERE lazy() DEPLOY t")


@pytest.mark.spec("05/E1")
@pytest.mark.parametrize(
    ("a", "b", "c", "expected"), [(0, 0, 1, True), (1, 1, 0, True), (1, 0, 0, False)]
)
def test_precedence_decides_who_is_taken(a, b, c, expected):
    d = deployed(
        f"DEFINE COMPONENT m SET a = {a}, b = {b}, c = {c} "
        "DEFINE SCOPE t AS ALL FROM * WHERE a = 1 AND b = 1 OR c = 1 DEPLOY t"
    )
    assert (d.graph.members("t") == ("m",)) is expected


@pytest.mark.spec("05/E1", "R-05.31")
def test_roles_keep_apart_what_has_the_same_interface():
    d = deployed("""DEFINE COMPONENT a INTERFACES INPUT(Temp) ROLES averager;
        DEFINE COMPONENT l INTERFACES INPUT(Temp) ROLES logger;
        DEFINE SCOPE t AS ALL FROM * WHERE IS ROLE(logger) AND HAS INPUT(Temp) DEPLOY t""")
    assert d.graph.members("t") == ("l",)


@pytest.mark.spec("05/E1", "R-05.20", "05/4.3")
def test_the_nearest_name_is_meant():
    g = ScopeGraph()
    for scope in ("own", "up", "side", "top"):
        g.create_scope(scope, interface=OPEN)
    for child, parent in (("own", "up"), ("own", "side"), ("up", "top"), ("side", "top")):
        g.join(child, parent)
    for id, scope in (("z", "own"), ("z-up", "up"), ("q-up", "up"), ("q-side", "side")):
        g.add_component(id, name=id.split("-")[0])
        g.join(id, scope)
    names = Deployment(g).names()
    assert names.find("z", ["own"]) == "z"
    assert names.find("z", ["up"]) == "z-up"
    with pytest.raises(UnknownScope, match=r"'q' is ambiguous: q-side, q-up; write the path"):
        names.find("q", ["own"])
    assert names.resolve(parse("DROP SCOPE up::q").statements[0].target) == ["q-up"]
    with pytest.raises(UnknownScope, match="no scope or component 'sied'; did you mean 'side'"):
        names.find("sied", ["own"])


@pytest.mark.spec("R-05.11", "05/P5")
def test_definitions_may_be_part_of_the_graph_and_change_no_delivery():
    text = (
        SITE
        + "DEFINE SCOPE t AS ALL FROM A, B SUPERSCOPE ALL FROM S1 INTERFACES OUTPUT(1) DEPLOY t"
    )
    plain, reflected = deployed(text), deployed(text, reflect=True)
    assert reflected.graph.members("definitions::t") == ("t",)
    assert "definitions::t" not in plain.graph
    for name in ("A", "s1", "x"):
        assert receivers(plain, name, typed("T")) == receivers(reflected, name, typed("T"))
    plain.run(
        parse("DEPLOY t AS u; DEFINE SCOPE all AS ALL FROM MEMBERS(definitions::t) DEPLOY all")
    )
    assert set(plain.graph.members("all")) == {"t", "u"}


@pytest.mark.spec("R-05.15", "R-05.17", "05/4.2")
def test_names_that_nothing_has_wait_for_a_component():
    d = deployed("DEFINE SCOPE t AS ALL FROM tikcer, ticker DEPLOY t", assume=False)
    assert d.graph.members("t") == ()
    d.graph.add_component("ticker")
    assert d.graph.members("t") == ("ticker",)
    d.graph.remove_component("ticker")
    d.graph.add_component("ticker")
    assert d.graph.members("t") == ("ticker",)
    assert any("'tikcer', which nothing defines" in each for each in findings(d))
    numbered = deployed("DEFINE SCOPE w AS ALL FROM worker1, worker2 DEPLOY w")
    assert not any("did you mean" in each for each in findings(numbered))
    with pytest.raises(UnknownScope, match="there is no scope or component 'wrold'"):
        d.run(parse("DEFINE SCOPE u AS SUPERSCOPE ALL FROM wrold DEPLOY u"))
    with pytest.raises(InvalidScopeGraph, match="'ticker' is a simple component"):
        d.run(parse("DEFINE SCOPE v AS SUPERSCOPE ALL FROM ticker DEPLOY v"))


@pytest.mark.spec("05/4.2", "R-05.02", "05/P7")
def test_cycles_are_refused_and_nothing_is_left():
    d = deployed(
        SITE
        + """DEFINE SCOPE a DEPLOY a; DEFINE SCOPE b AS SUPERSCOPE ALL FROM a DEPLOY b;
        DEFINE SCOPE c AS ALL FROM x, a SUPERSCOPE ALL FROM b INTERFACES INPUT(1)"""
    )
    before = edges(d), set(d.graph.nodes)
    with pytest.raises(InvalidScopeGraph, match="no cycles"):
        d.run(parse("DEPLOY c"))
    assert (edges(d), set(d.graph.nodes)) == before
    with pytest.raises(InvalidScopeGraph, match="no cycles"):
        d.run(parse("ALTER SCOPE b ADD ALL FROM x, a INTERFACES INPUT(1)"))
    assert (edges(d), set(d.graph.nodes)) == before
    assert d.graph.node("b").interface.input is None
    with pytest.raises(InvalidScopeGraph, match="no cycles"):
        d.run(parse("DROP SCOPE S1; DEPLOY c"))
    assert (edges(d), set(d.graph.nodes)) == before


@pytest.mark.spec("R-05.33", "05/4.2")
def test_a_mapping_needs_a_way_back_or_a_closed_door():
    text = SITE + "DEFINE SCOPE t AS ALL FROM A SUPERSCOPE ALL FROM S1 INTERFACES "
    d = deployed(text + "INPUT(1), OUTPUT(1) MAP OUTWARD { c = (f - 32) / 1.8, DROP f } DEPLOY t")
    found = d.graph.deliveries(Notification({"f": 212}), "A")
    assert [dict(e.notification) for e in found if e.consumer == "s1"] == [{"c": 100.0}]
    found = d.graph.deliveries(Notification({"c": 100.0}), "s1")
    assert [dict(e.notification) for e in found if e.consumer == "A"] == [{"f": 212.0}]
    one_way = "MAP OUTWARD { c = round(f) } DEPLOY t"
    with pytest.raises(InvalidScopeGraph, match="write MAP INWARD too"):
        deployed(text + "INPUT(1), OUTPUT(1) " + one_way)
    deployed(text + "OUTPUT(1) " + one_way)
    deployed(text + "OUTPUT(1), INPUT(1) MAP INWARD { f = c } " + one_way)
    register_mapping("test-up", lambda n: n, inverse="test-down")
    register_mapping("test-down", lambda n: n)
    d = deployed(text + 'OUTPUT(1), INPUT(1) MAP OUTWARD "test-up" DEPLOY t')
    assert d.graph.edge("t", "S1").mapping.down.function == "test-down"
    with pytest.raises(InvalidScopeGraph, match="no mapping 'nonsense'"):
        deployed(text + "OUTPUT(1) MAP OUTWARD nonsense DEPLOY t")


@pytest.mark.spec("R-05.33", "R-04.40")
def test_mappings_of_members_of_one_superscope_and_by_table():
    d = deployed("""DEFINE TABLE rooms (room, floor) AS ("R1", 3), ("R2", 4);
        DEFINE SCOPE t AS m: ALL FROM a : { MAP OUTWARD { floor = lookup("rooms", room, "floor") }
        MAP INWARD { x = 1 } } ALL FROM b DEPLOY t""")
    found = d.graph.deliveries(Notification({"room": "R2"}), "a")
    assert [dict(e.notification) for e in found if e.consumer == "b"] == [
        {"room": "R2", "floor": 4}
    ]
    found = d.graph.deliveries(Notification({"k": 2}), "b")
    assert [dict(e.notification) for e in found if e.consumer == "a"] == [{"k": 2, "x": 1}]
    # What a scope says of its own boundary holds on every edge, whoever drew it.
    d = deployed("""DEFINE SCOPE in AS ALL FROM a INTERFACES OUTPUT(1) MAP OUTWARD { k = "in" }
        DEPLOY in DEFINE SCOPE out AS ALL FROM in, b DEPLOY out""")
    found = d.graph.deliveries(Notification({"x": 1}), "a")
    assert [dict(e.notification) for e in found if e.consumer == "b"] == [{"x": 1, "k": "in"}]


@pytest.mark.spec("R-05.34", "R-05.35")
def test_policies_and_commands():
    d = deployed("""DEFINE SCOPE t AS ALL FROM a, b, c SUPERSCOPE ALL FROM w INTERFACES INPUT(1)
        POLICY DELIVERY round_robin DO restart("now"); DEFINE SCOPE w AS ALL FROM p;
        DEPLOY w; DEPLOY t""")
    assert [receivers(d, "p", typed("X")) for _ in range(4)] == [["a"], ["b"], ["c"], ["a"]]
    assert d.instances["t"].description.commands[0].name == "restart"
    d.run(parse('ALTER SCOPE t DEL POLICY DELIVERY round_robin DO restart("now")'))
    assert receivers(d, "p", typed("X")) == ["a", "b", "c"]
    assert d.instances["t"].description.commands == ()
    with pytest.raises(InvalidScopeGraph, match="no policy 'one_of_m'"):
        d.run(parse("ALTER SCOPE t POLICY DELIVERY one_of_m"))
    with pytest.raises(InvalidScopeGraph, match="PUBLISHING policy here"):
        d.run(parse("ALTER SCOPE t ADD k: ALL FROM e : { POLICY DELIVERY none }"))


@pytest.mark.spec("R-05.28", "R-05.42")
def test_names_are_read_by_the_filter_model_of_the_scope():
    base = """DEFINE SCOPE w AS ALL FROM p; DEPLOY w;
        DEFINE SCOPE t AS ALL FROM a SUPERSCOPE ALL FROM w """
    d = deployed(base + 'INTERFACES INPUT(news) SET filter-model = "channels" DEPLOY t')
    assert receivers(d, "p", Notification({"x": 1}, channel="news")) == ["a"]
    assert receivers(d, "p", typed("news")) == []
    d = deployed(base + 'INTERFACES INPUT(/news/*, "x > 5") DEPLOY t')
    assert receivers(d, "p", Notification({"x": 1}, subject="news.sport")) == ["a"]
    assert receivers(d, "p", Notification({"x": 6})) == ["a"]
    assert receivers(d, "p", Notification({"x": 5})) == []
    from stentor.filters import Filter

    register_filter_model("tags", lambda name: Filter(f"tag = '{name}'"))
    d = deployed(base + 'INTERFACES INPUT(hot) SET filter-model = "tags" DEPLOY t')
    assert receivers(d, "p", Notification({"tag": "hot"})) == ["a"]
    with pytest.raises(InvalidScopeGraph, match="no filter model 'colors'"):
        deployed(base + 'INTERFACES INPUT(hot) SET filter-model = "colors" DEPLOY t')
    with pytest.raises(InvalidScopeGraph, match="belong into WHERE"):
        deployed(base + "INTERFACES INPUT(IS ROLE(x)) DEPLOY t")


@pytest.mark.spec("R-05.39", "R-05.42", "R-05.16")
def test_architectures_are_kept_and_unknown_ones_refused():
    with pytest.raises(InvalidScopeGraph, match="no architecture 'hub'"):
        deployed('DEFINE SCOPE t SET qos = "low" DEPLOY t ARCHITECTURE hub(size = 3)')
    register_architecture("test-hub")
    d = deployed('DEFINE SCOPE t SET qos = "low" DEPLOY t ARCHITECTURE test-hub(size = 3)')
    assert d.instances["t"].architecture.parameters == (("size", 3),)
    assert d.graph.node("t").attributes == {"qos": "low"}


@pytest.mark.spec("R-05.39", "R-05.12")
def test_instances_of_one_definition_have_names_of_their_own():
    d = deployed("""DEFINE SCOPE a DEFINE SCOPE b DEPLOY a DEPLOY b DEFINE SCOPE t AS ALL FROM x
        DEPLOY t DEPLOY t DEPLOY t AS team SUPERSCOPE ALL FROM a
        DEPLOY t AS team SUPERSCOPE ALL FROM b""")
    assert d.instances_of("t") == ["t", "t#2", "team", "b::team"]
    assert d.names().resolve(parse("DROP SCOPE b::team").statements[0].target) == ["b::team"]
    with pytest.raises(InvalidScopeGraph, match="'team' is taken"):
        d.run(parse("DEPLOY t AS team SUPERSCOPE ALL FROM a"))
    with pytest.raises(UnknownScope, match="'tt' is not defined"):
        d.run(parse("DEPLOY tt"))


@pytest.mark.spec("R-04.35", "05/P5")
def test_abstract_scopes_admission_and_duplicates_can_be_written():
    d = deployed("""DEFINE COMPONENT low SET clearance = 1; DEFINE COMPONENT high SET clearance = 3;
        DEFINE ABSTRACT SCOPE owners AS ALL FROM low, high SET owner = "ops" DEPLOY owners;
        DEFINE SCOPE vault AS m: ALL FROM high ADMIT WHERE clearance >= 2 DUPLICATES ONCE
        DEPLOY vault""")
    assert set(d.graph.members("owners")) == {"low", "high"}
    assert d.graph.members("vault") == ("high",)
    with pytest.raises(InvalidScopeGraph, match="'vault' does not admit 'low'"):
        d.run(parse("ALTER SCOPE vault ADD ALL FROM low"))
    assert d.graph.members("vault") == ("high",)
    assert d.graph.node("vault").once
    assert not d.graph.visible("low", "high")


@pytest.mark.spec("05/4.2", "R-04.37", "04/T19")
def test_administrators_are_told_what_they_may_not_expect():
    d = deployed("""DEFINE SCOPE z AS ALL FROM e; DEPLOY z;
        DEFINE SCOPE s AS ALL FROM c SUPERSCOPE ALL FROM z INTERFACES OUTPUT(1); DEPLOY s;
        DEFINE SCOPE t AS ALL FROM c : { INTERFACES OUTPUT(A) } SUPERSCOPE ALL FROM z
            INTERFACES OUTPUT(1); DEPLOY t;
        DEFINE SCOPE shut AS ALL FROM e SUPERSCOPE ALL FROM z; DEPLOY shut;
        DEFINE SCOPE m1 AS ALL FROM trader; DEPLOY m1;
        DEFINE SCOPE m2 AS ALL FROM trader; DEPLOY m2""")
    found = "\n".join(findings(d))
    assert "c publishes into s and t, which meet above and treat it differently" in found
    assert "e is a member of shut and of z above it" in found
    assert "nothing crosses between shut and z" in found
    assert "what trader publishes enters m1 and m2" in found


@pytest.mark.spec("R-04.33", "R-05.29")
def test_what_is_imposed_stays_when_another_selection_takes_the_member_in_too():
    d = deployed(SITE + "DEFINE SCOPE t AS m: ALL FROM A, B : { INTERFACES OUTPUT(Temp) } DEPLOY t")
    for clause in ("ALL FROM A", "ALL FROM A WHERE has-thermo = 1", "[1..1] FROM A"):
        d.run(parse(f"ALTER SCOPE t ADD {clause}"))
        assert receivers(d, "A", typed("Log")) == []
        assert receivers(d, "A", typed("Temp")) == ["B"]
    d.run(parse("ALTER SCOPE t m: ALL FROM A, B"))
    d.run(parse("ALTER SCOPE t DEL m: { INTERFACES OUTPUT(Temp) }"))


@pytest.mark.parametrize("name", ["market", "tenants", "building"])
def test_a_graph_that_was_deployed_can_be_sent(name):
    from stentor.scopes.definition import graph_of, records_of

    g = ScopeGraph.load(EXAMPLES / f"{name}.scopes")
    sent = graph_of(records_of(g))
    assert records_of(sent) == records_of(g)
    for id in g.nodes:
        assert set(g.parents(id)) == set(sent.parents(id))
