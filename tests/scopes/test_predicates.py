"""The predicates of the three layers on traces: the printed ones, and runs of the model."""

from random import Random

import pytest
from random_graphs import random_graph, random_notification
from shorthand import graph_of

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.scopes import EdgeMapping, ScopeGraph, mapping_of
from stentor.scopes.view import ScopeView
from stentor.semantics import (
    Action,
    Condition,
    Notify,
    Pub,
    Quiescent,
    Rescoped,
    Sub,
    Trace,
    Unsub,
    check,
    check_scoped,
)

WANTED, OTHER = Filter("kind = 'a'"), "b"


def note(number: int, kind: str = "a", **more: int | str) -> Notification:
    return Notification({"kind": kind, **more}, id=NotificationId("X", 0, number))


def sub(id: str = "f") -> Sub:
    return Sub("Y", id, WANTED)


N1, N2, WRONG = note(1), note(2), note(3, OTHER)
PUB1, TOLD1 = Pub("X", N1), Notify("Y", N1)

#: Table E4: the trace, the conditions of safety that it breaks, and whether something was lost.
PRINTED: dict[str, tuple[list[Action], set[Condition]]] = {
    "what was not published": ([sub(), PUB1, Notify("Y", WRONG)], {Condition.PHANTOM}),
    "after unsubscribing": (
        [PUB1, sub(), Unsub("Y", "f"), TOLD1],
        {Condition.NOT_SUBSCRIBED},
    ),
    "never": ([sub(), Quiescent(), PUB1, Pub("X", N2), Quiescent()], {Condition.LOST}),
    "nobody asked": ([Quiescent(), PUB1, Quiescent()], set()),
    "twice": ([sub(), PUB1, TOLD1, TOLD1], {Condition.DUPLICATE}),
    "subscribing twice is once": (
        [sub(), sub(), Unsub("Y", "f"), PUB1, TOLD1],
        {Condition.NOT_SUBSCRIBED},
    ),
    "withdrawn in time": ([sub(), Quiescent(), PUB1, Unsub("Y", "f"), Quiescent()], set()),
    "an old one to a new subscriber": ([PUB1, sub(), TOLD1], set()),
}


@pytest.mark.spec("04/E4", "R-04.04", "R-04.05", "R-04.11", "04/P7")
@pytest.mark.parametrize("name", PRINTED)
def test_the_printed_traces_of_a_simple_system(name: str) -> None:
    trace, conditions = PRINTED[name]
    scoped = check_scoped(Trace(trace)).conditions
    assert scoped - {Condition.NOT_SUBSCRIBED} == conditions - {Condition.NOT_SUBSCRIBED}
    assert conditions <= scoped
    assert check(Trace(trace)).ok == (not conditions)
    one_root = ScopeView(graph_of("X>S Y>S"))
    assert check_scoped(Trace([Rescoped(one_root), *trace])).conditions == scoped


@pytest.mark.spec("04/E5")
def test_flip_flop_owes_nothing() -> None:
    together, apart = ScopeView(graph_of("X>S Y>S")), ScopeView(graph_of("X>S", "Y"))
    trace = Trace([sub(), Rescoped(together), Quiescent()])
    for number in range(5):
        trace.pub("X", note(number))
        trace.append(Rescoped(apart))
        trace.append(Rescoped(together))
    trace.quiescent()
    report = check_scoped(trace)
    assert report.ok
    assert not report.owed
    trace = Trace([sub(), Rescoped(together), PUB1, Rescoped(apart), TOLD1])
    assert check_scoped(trace).conditions == {Condition.INVISIBLE}


@pytest.mark.spec("04/E6", "R-04.23", "04/T21")
def test_a_delivery_after_the_publisher_has_left() -> None:
    together, apart = ScopeView(graph_of("X>S Y>S")), ScopeView(graph_of("Y>S", "X"))
    late = Trace([Rescoped(together), sub(), PUB1, Rescoped(apart), TOLD1])
    assert check_scoped(late).conditions == {Condition.INVISIBLE}
    assert check_scoped(late, consistency="interval").ok
    assert Condition.NOT_DRAINED in check_scoped(late, consistency="drain").conditions
    drained = Trace([Rescoped(together), sub(), PUB1, TOLD1, Rescoped(apart)])
    assert check_scoped(drained, consistency="drain").ok
    never = Trace([Rescoped(apart), sub(), PUB1, TOLD1])
    assert check_scoped(never, consistency="interval").conditions == {Condition.INVISIBLE}


@pytest.mark.spec("04/T4", "R-04.17")
def test_whoever_subscribes_before_the_publisher_joins_is_owed_what_comes_later() -> None:
    apart, together = ScopeView(graph_of("Y>S", "X")), ScopeView(graph_of("X>S Y>S"))
    trace = Trace([Rescoped(apart), sub(), Rescoped(together), Quiescent(), PUB1, Quiescent()])
    assert check_scoped(trace).conditions == {Condition.LOST}


@pytest.mark.spec("R-04.45", "04/T14", "04/T16", "R-04.48")
def test_what_is_matched_and_owed_is_the_version_that_arrives() -> None:
    g = graph_of("X>S Y>S")
    g.set_edge("Y", "S", mapping=EdgeMapping(down=mapping_of({"kind": "a"})))
    seen = note(3, "a")
    begin = [Rescoped(ScopeView(g)), sub(), Quiescent(), Pub("X", WRONG)]
    assert check_scoped(Trace([*begin, Notify("Y", seen), Quiescent()])).ok
    assert check_scoped(Trace([*begin, Quiescent()])).conditions == {Condition.LOST}
    unmapped = check_scoped(Trace([*begin, Notify("Y", WRONG)])).conditions
    assert unmapped == {Condition.ALTERED, Condition.NOT_SUBSCRIBED}


@pytest.mark.spec("R-04.21", "04/T18", "04/E3")
def test_versions_are_counted_by_the_mode_that_was_chosen() -> None:
    g = graph_of("X>T X>U T>S U>S Y>S")
    for scope in "TU":
        g.set_edge(scope, "S", mapping=EdgeMapping(up=mapping_of({"via": scope})))
    both = [Notify("Y", note(1, via=scope)) for scope in "TU"]
    begin = [Rescoped(ScopeView(g)), sub(), Quiescent(), PUB1]
    assert check_scoped(Trace([*begin, *both, Quiescent()])).ok
    assert check_scoped(Trace([*begin, both[0], Quiescent()])).conditions == {Condition.LOST}
    assert check_scoped(Trace([*begin, both[0], Quiescent()]), duplicates="origin").ok
    assert check_scoped(Trace([*begin, *both]), duplicates="origin").conditions == {
        Condition.DUPLICATE
    }
    assert check_scoped(Trace([*begin, both[0], both[0]]), duplicates="per_path").ok
    with pytest.raises(InvalidConfiguration, match="choose from"):
        check_scoped(Trace(), duplicates="often")


def run(r: Random, g: ScopeGraph) -> list[Action]:
    """A run of the model itself: scopes change, and every delivery is made at once."""
    everyone = sorted(id for id, node in g.nodes.items() if not node.is_scope)
    scopes = sorted(id for id, node in g.nodes.items() if node.is_scope)
    trace: list[Action] = [Rescoped(ScopeView(g))]
    wants = {id: Filter(r.choice(["", "kind = 'a'", "x > 3"])) for id in everyone}
    trace += [Sub(id, "f", filter) for id, filter in wants.items()]
    trace.append(Quiescent())
    view = ScopeView(g)
    for number in range(12):
        if r.random() < 0.2:
            member, scope = r.choice(everyone), r.choice(scopes)
            if scope in g.parents(member):
                g.leave(member, scope)
            else:
                g.join(member, scope)
            view = ScopeView(g)
            trace += [Quiescent(), Rescoped(view)]
        publisher = r.choice(everyone)
        n = random_notification(r).replace(id=NotificationId(publisher, 0, number))
        trace.append(Pub(publisher, n))
        for consumer, version in view.seen(publisher, n):
            if wants[consumer].matches(version):
                trace.append(Notify(consumer, version))
    return [*trace, Quiescent()]


@pytest.mark.spec("04/P8", "04/P9")
@pytest.mark.parametrize("seed", range(4))
def test_the_model_conforms_and_every_fault_in_it_is_found(seed: int) -> None:
    r = Random(seed)
    for _ in range(12):
        g = random_graph(r, mappings=r.random() < 0.5)
        trace = run(r, g)
        for consistency in ("serial", "drain", "interval"):
            assert check_scoped(Trace(trace), consistency=consistency).ok
        told = [place for place, action in enumerate(trace) if isinstance(action, Notify)]
        if not told:
            continue
        place = r.choice(told)
        twice = [*trace[: place + 1], *trace[place:]]
        assert check_scoped(Trace(twice)).conditions == {Condition.DUPLICATE}
        action = trace[place]
        assert isinstance(action, Notify)
        stranger = Notify("stranger", action.notification)
        leaked = [Sub("stranger", "f", Filter()), *trace[:place], stranger, *trace[place:]]
        assert check_scoped(Trace(leaked)).conditions == {Condition.INVISIBLE}
        if not any(isinstance(each, Rescoped) for each in trace[place:]):
            lost = [*trace[:place], *trace[place + 1 :]]
            assert check_scoped(Trace(lost)).conditions == {Condition.LOST}
