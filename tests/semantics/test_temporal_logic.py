"""The temporal evaluator (A-1), and the specification itself as temporal formulas."""

from functools import reduce
from operator import and_
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporal import Formula, Lasso, always, eventually, next_, statement
from trace_notation import COMPONENTS, TRACES, written

from stentor.errors import InvalidValue
from stentor.filters import Filter
from stentor.model import NotificationId
from stentor.semantics import Action, Condition, Internal, Notify, Oracle, Pub, Trace, check

P: Formula[str] = statement("P", lambda state: "P" in state)
Q: Formula[str] = statement("Q", lambda state: "Q" in state)

FORMULAS = {
    "infinitely often": always(eventually(P)),
    "finally forever": eventually(always(P)),
    "once true stays": always(P.implies(always(P))),
    "every P is followed by Q": always(P.implies(eventually(Q))),
    "at most one place": always(P.implies(next_(always(~P)))),
    "at least one place": eventually(P),
    "not both ever": always(~P) | always(~Q),
    "initial P leads to Q forever": P.implies(eventually(always(Q))),
}
TABLE = {
    "[.]": "--TTT-TT",
    "P [.]": "----TTT-",
    "P P [.]": "-----TT-",
    ". [P]": "TTT--TTT",
    "[P .]": "T----TT-",
    "P [Q]": "---TTT-T",
    "P . Q [.]": "---TTT--",
    "Q P [.]": "----TT-T",
    ". P [PQ]": "TTTT-T-T",
    "[P]": "TTT--TT-",
}


def lasso(text: str) -> Lasso[str]:
    prefix, loop = text.rstrip("]").split("[")
    return Lasso(prefix.split(), loop.split())


@pytest.mark.spec("01/A-1", "01/Q20")
@pytest.mark.parametrize(("trace", "row"), TABLE.items())
def test_table_of_formulas(trace, row):
    verdicts = ["T" if formula.holds(lasso(trace)) else "-" for formula in FORMULAS.values()]
    assert "".join(verdicts) == row


def test_formulas_print_as_they_are_written():
    assert [str(formula) for formula in FORMULAS.values()] == [
        "□◇P",
        "◇□P",
        "□(P ⇒ □P)",
        "□(P ⇒ ◇Q)",
        "□(P ⇒ ○□¬P)",
        "◇P",
        "(□¬P ∨ □¬Q)",
        "(P ⇒ ◇□Q)",
    ]


def test_a_trace_without_a_loop_is_refused():
    with pytest.raises(InvalidValue, match="repeats its last state"):
        Lasso(["P"], [])


_STATES = st.sampled_from([".", "P", "Q", "PQ"])
LASSOS = st.builds(Lasso, st.lists(_STATES, max_size=5), st.lists(_STATES, min_size=1, max_size=4))
GENERATED = st.recursive(
    st.sampled_from([P, Q]),
    lambda inner: st.one_of(
        inner.map(lambda f: ~f),
        inner.map(next_),
        inner.map(eventually),
        inner.map(always),
        st.builds(lambda f, g: f & g, inner, inner),
        st.builds(lambda f, g: f | g, inner, inner),
        st.builds(lambda f, g: f.implies(g), inner, inner),
    ),
    max_leaves=6,
)


@pytest.mark.spec("01/Q20")
@given(formula=GENERATED, trace=LASSOS)
def test_laws(formula, trace):
    def same(left: Formula[str], right: Formula[str]) -> bool:
        return left.truth(trace) == right.truth(trace)

    assert same(eventually(formula), ~always(~formula))
    assert same(always(formula), ~eventually(~formula))
    assert same(always(always(formula)), always(formula))
    assert same(eventually(eventually(formula)), eventually(formula))
    assert same(always(formula), formula & next_(always(formula)))
    assert same(eventually(formula), formula | next_(eventually(formula)))
    assert same(next_(~formula), ~next_(formula))


@given(formula=GENERATED, trace=LASSOS)
def test_a_trace_means_the_same_however_it_is_written(formula, trace):
    """Unrolling the loop once into the prefix, or doubling it, is the same infinite trace."""
    prefix, loop = trace.states[: trace.loop_start], trace.states[trace.loop_start :]
    assert formula.holds(Lasso(prefix + loop, loop)) == formula.holds(trace)
    assert formula.holds(Lasso(prefix, loop + loop)) == formula.holds(trace)


@given(trace=LASSOS)
def test_modalities_are_as_defined(trace):
    """By following the trace from each position for long enough to see all that will come."""
    size = len(trace.states)

    def follow(position: int) -> list[int]:
        path = [position]
        while len(path) < 2 * size:
            position = position + 1 if position + 1 < size else trace.loop_start
            path.append(position)
        return path

    holds = ["P" in state for state in trace.states]
    paths = [follow(position) for position in range(size)]
    assert eventually(P).truth(trace) == [any(holds[i] for i in path) for path in paths]
    assert always(P).truth(trace) == [all(holds[i] for i in path) for path in paths]
    assert next_(P).truth(trace) == [holds[follow(i)[1] if size > 1 else 0] for i in range(size)]


class Moment(NamedTuple):
    """A position of a trace: the state before an action, and the action (R-01.16)."""

    subscriptions: dict[str, list[Filter]]
    published: frozenset[NotificationId]
    action: Action


def moments(trace: Trace) -> list[Moment]:
    oracle = Oracle()
    result = []
    for action in trace:
        held = {
            component: [interval.filter for interval in oracle.subscriptions.active(component)]
            for component in oracle.subscriptions.components()
        }
        result.append(Moment(held, frozenset(oracle.published), action))
        oracle.step(action)
    return result


def notified(component: str, id: NotificationId) -> Formula[Moment]:
    return statement(
        f"notify({component}, {id})",
        lambda now: (
            isinstance(now.action, Notify)
            and (now.action.component, now.action.id) == (component, id)
        ),
    )


def all_of(formulas: list[Formula[Moment]]) -> Formula[Moment]:
    return reduce(and_, formulas, statement("true", lambda now: True))


def safety(trace: Trace) -> Formula[Moment]:
    """Eq 2.1, for all components and notifications of a trace."""
    about = {a.id: a.notification for a in trace if isinstance(a, Pub | Notify)}
    parts = []
    for component in COMPONENTS:
        for id, n in about.items():
            interested = statement(
                "n ∈ N(S_Y)",
                lambda now, y=component, n=n: any(
                    filter.matches(n) for filter in now.subscriptions.get(y, [])
                ),
            )
            published = statement("n ∈ P", lambda now, id=id: id in now.published)
            notify = notified(component, id)
            allowed = interested & published & next_(always(~notify))
            parts.append(always(notify.implies(allowed)))
    return all_of(parts)


@pytest.mark.spec("R-01.16", "R-01.18", "R-01.19", "R-01.20", "01/A-1", "01/A-2")
@given(trace=TRACES)
def test_safety_is_the_formula(trace):
    """Eq 2.1 on the trace, followed by internal actions for ever, says what the oracle says."""
    # The formulas know no altered notification: one of other content is another one.
    altered = {v.position for v in check(trace).violations if v.condition is Condition.ALTERED}
    plain = Trace(action for i, action in enumerate(trace) if i not in altered)
    run = moments(Trace([*plain, Internal()]))
    faults = check(plain, settling=False).conditions - {Condition.REPEATED_PUBLICATION}
    assert safety(plain).holds(Lasso(run[:-1], run[-1:])) == (not faults)


def liveness(trace: Trace, filter: Filter) -> Formula[Moment]:
    """Eq 2.2 for Y and one filter, with the publications quantified inside."""
    subscribed = statement("F ∈ S_Y", lambda now: filter in now.subscriptions.get("Y", []))
    return eventually(always(subscribed)).implies(eventually(always(_answered(trace, filter))))


def _answered(trace: Trace, filter: Filter) -> Formula[Moment]:
    about = {a.id for a in trace if isinstance(a, Pub) and filter.matches(a.notification)}
    return all_of([_answered_one(id) for id in sorted(about)])


def _answered_one(id: NotificationId) -> Formula[Moment]:
    published = statement(
        f"pub({id})", lambda now: isinstance(now.action, Pub) and now.action.id == id
    )
    return published.implies(eventually(notified("Y", id)))


def run(prefix: str, loop: str) -> tuple[Trace, Lasso[Moment]]:
    """A run for ever. Its notifications stand for kinds: those in the loop are published anew."""
    trace = written(f"{prefix} {loop}")
    positions = moments(trace)
    start = len(written(prefix))
    return trace, Lasso(positions[:start], positions[start:])


@pytest.mark.spec("R-01.21", "R-01.22")
@pytest.mark.parametrize(
    ("prefix", "loop", "live"),
    [
        ("sub(Y,F)", "p(A,1) n(Y,1)", True),
        ("sub(Y,F)", "p(A,1) .", False),
        ("sub(Y,F)", "p(A,3) .", True),
        ("sub(Y,F) p(A,1)", ".", True),
        ("sub(Y,F) p(A,1) p(A,2) .", "p(A,1) n(Y,1)", True),
        ("sub(Y,F)", "p(A,1) unsub(Y,F) sub(Y,F)", True),
    ],
    ids=[
        "every one is delivered",
        "none is",
        "nobody asked",
        "a finite number is lost",
        "delivery starts late",
        "interest never lasts",
    ],
)
def test_liveness_formula(prefix, loop, live):
    trace, forever = run(prefix, loop)
    assert liveness(trace, Filter("x in (1, 2)")).holds(forever) == live
