"""A statement that fails changes nothing, whatever was done before it failed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stentor.errors import StentorError
from stentor.scopes.language import Deployment, parse

NAMES = ["a", "b", "c", "d", "S", "T", "U", "V"]


class Statements:
    """Statements about few names, so that they meet each other."""

    def __init__(self, r):
        self.r = r

    def selection(self):
        r = self.r
        some = ", ".join(r.sample(NAMES, r.randint(1, 3)))
        return " ".join(
            [
                r.choice(["", "", "m:", "s:"]),
                r.choice(["", "", "SUPERSCOPE"]),
                r.choice(["ALL", "ALL", "[1..2]", "TOP(k, 2)"]),
                "FROM",
                r.choice(["*", some, some, some, f"MEMBERS({r.choice(NAMES)})"]),
                r.choice(["", "", "WHERE k = 1", "WHERE IS ROLE(r)", "WHERE HAS INPUT(A)"]),
                r.choice(
                    [
                        *("", "", ": { INTERFACES OUTPUT(A) }"),
                        ": { MAP OUTWARD { x = y + 1, DROP y } }",
                        ": { MAP OUTWARD { x = round(y) } }",
                    ]
                ),
            ]
        )

    def feature(self):
        return self.r.choice(
            [
                *("INTERFACES OUTPUT(A, B)", "INTERFACES INPUT(1), OUTPUT(1)", "ROLES r"),
                *("SET k = 1", "MAINTAIN ON CHANGE", "POLICY DELIVERY round_robin"),
                *("DUPLICATES ONCE", "ADMIT WHERE k = 1", "MAP OUTWARD { z = w, DROP w }"),
                *("*: { INTERFACES OUTPUT(B) }", "m: { INTERFACES INPUT(0) }"),
            ]
        )

    def clauses(self, least, most):
        kinds = [self.selection, self.selection, self.feature]
        return " ".join(self.r.choice(kinds)() for _ in range(self.r.randint(least, most)))

    def statement(self):
        r, scope = self.r, self.r.choice("STUV")
        match r.randrange(10):
            case 0 | 1:
                return f"DEFINE SCOPE {scope} AS {self.clauses(0, 3)}"
            case 2:
                return f"DEFINE COMPONENT {r.choice('abcd')} SET k = {r.randint(0, 2)} ROLES r"
            case 3 | 4 | 5:
                name = r.choice(["", f"AS {r.choice('STUV')}"])
                return f"DEPLOY {scope} {name} {self.clauses(0, 2)}"
            case 9:
                return f"DROP SCOPE {r.choice(['', 'definitions::'])}{scope}"
        which = r.choice(["", "definitions::"])
        return f"ALTER SCOPE {which}{scope} {r.choice(['ADD', 'DEL', ''])} {self.clauses(1, 3)}"


def picture(d):
    """Everything that a statement could have changed."""
    nodes = d.graph.nodes.values()
    return (
        {
            n.id: (n.name, n.is_scope, n.abstract, dict(n.attributes), n.roles, n.interface)
            for n in nodes
        },
        {n.id: (n.everyone, dict(n.policies), n.once, n.admits, n.definition) for n in nodes},
        {
            (n.id, scope): (e.selective, e.imposed, e.mapping, set(e.labels))
            for n in nodes
            for scope, e in (*n.parents.items(), *n.groups.items())
        },
        {rule.key: rule for rule in d.graph.rules},
        {name: repr(each) for name, each in d.definitions.items()},
        {name: repr(each.description) for name, each in d.instances.items()},
        d.graph.is_plain,
        {name: set(d.graph.named(name)) for name in NAMES},
    )


@pytest.mark.spec("05/P7", "05/P10", "05/4.4", "05/4.5")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_a_statement_that_fails_changes_nothing(r):
    d = Deployment(assume=r.random() < 0.7, reflect=r.random() < 0.2)
    write = Statements(r)
    for _ in range(12):
        text = "; ".join(write.statement() for _ in range(r.randint(1, 3)))
        before = picture(d)
        try:
            d.run(parse(text))
        except StentorError:
            assert picture(d) == before
        for id, node in d.graph.nodes.items():
            assert id not in d.graph.parents(id)
            assert all(d.graph.node(each).is_scope for each in d.graph.parents(id)), node
