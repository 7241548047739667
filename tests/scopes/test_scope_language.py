"""Reading and printing the scope graph language: sheet 05 §4.1."""

import gc
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidScopeGraph, ScopeSyntaxError
from stentor.filters.expression import Arithmetic, Attribute
from stentor.filters.expression import Constant as ConstantTerm
from stentor.scopes import ScopeGraph, expressions
from stentor.scopes.language import compose, format_script, parse
from stentor.scopes.language import syntax as s

EVERYTHING = """
-- who is where
IMPORT "common.scopes";
DEFINE COMPONENT ticker, clock INTERFACES OUTPUT(Quote), INPUT(0) ROLES source SET floor = 3;
DEFINE TABLE rates (currency, factor) AS ("EUR", 1.0), ("USD", 0.9);
DEFINE ABSTRACT SCOPE owners AS ALL FROM MEMBERS(MEMBERS(site));
DEFINE SCOPE firm AS
  b: [1..1] FROM MEMBERS(site) WHERE IS ROLE(boss) : { INTERFACES OUTPUT(holiday) }  -- one boss
  worker: TOP(experience, 10) FROM * WHERE OUTPUT(need) OR (INPUT(more) AND NOT a PREFIX "x")
  low: TOP(near("A3", floor) ASC, 2) FROM a::b, c
  up: SUPERSCOPES [..2] FROM world WHERE country = "DE"
  SUPERSCOPE FROM roof
  worker: { INTERFACES INPUT(/a/b/*, "price > 100", x.y >= -3, Quote.Stock) }
  *: { MAP OUTWARD { unit = "C", DROP f, KEEP (a, b) } POLICY PUBLISHING only(up) DO "go" }
  INTERFACES INPUT(0), OUTPUT(1)
  ROLES big, old
  SET name = "Acme, Inc.", quote = "a ""b"" c", ok = TRUE, n = -2.5
  MAP OUTWARD { temp = round((temp - 32) * 5 / 9), k = -x, s = concat("a", b) }
  MAP INWARD "package.module:function"
  POLICY DELIVERY round_robin
  POLICY INTERNAL chain(h1, h2)
  POLICY TRAVERSE top_down("all")
  MAINTAIN ON DEVIATION 20
  ADMIT WHERE clearance >= 2
  DUPLICATES ONCE
  DO command(1, "two", three)
  UPDATE ON pub(n: Start) IF n.depth < 3 DO
    CREATE NOW INCLUDE COMPONENT, (ALTER SCOPE SELF SET d = n.depth)
  UPDATE ON con(n: OUTPUT(1)) DO (ALTER SCOPE SELF ADD ALL FROM TRIGGER)
  UPDATE ON join(*, firm) DO (CREATE NOW INCLUDE COMPONENT who)
  UPDATE ON leave(TRIGGER, MEMBERS(firm)) DO ALTER SCOPE x DEL ROLES old
  UPDATE ON sub(Quote) DO CREATE NOW
  UPDATE ON tick(5) DO CREATE NOW;
DEPLOY firm AS acme SUPERSCOPE ALL FROM w BROKERSCOPE(node1.site.org:7411, mode = "once");
DEPLOY SCOPE firm INTEGRATED();
DEPLOY firm ARCHITECTURE hub(size = 3);
ALTER SCOPE definitions::firm ADD ALL FROM c SUPERSCOPES ALL FROM S;
ALTER SCOPE firm DEL INTERFACES INPUT();
ALTER SCOPE firm MAINTAIN EVERY "5m";
DROP SCOPE firm
-- the end
"""


@pytest.mark.spec("05/4.1", "05/P10", "R-05.42")
def test_every_construct_is_read_and_printed():
    script = parse(EVERYTHING)
    printed = format_script(script)
    assert parse(printed) == script
    assert format_script(parse(printed)) == printed
    kinds = {type(each).__name__ for each in script.statements}
    assert kinds == {
        *("Import", "DefineComponent", "DefineTable", "DefineScope", "Deploy", "Alter", "Drop"),
    }
    firm = script.statements[4]
    assert isinstance(firm, s.DefineScope)
    assert {type(each) for each in firm.clauses} == set(s.Clause.__args__)


def test_comments_stay_where_they_belong():
    printed = format_script(parse(EVERYTHING))
    assert printed.startswith("-- who is where\nIMPORT")
    assert "    -- one boss\n    b: [1..1] FROM" in printed
    assert printed.endswith("-- the end\n")
    assert printed.count("--") == EVERYTHING.count("--")


@pytest.mark.spec("05/4.1")
@pytest.mark.parametrize(
    "text",
    [
        "define scope a as all from b",
        "DEFINE SCOPE a AS MEMBER FROM b",
        "DEFINE SCOPE a ALL FROM b;",
        "DEFINE\nSCOPE a -- x\nAS ALL FROM b ; ; ",
    ],
)
def test_what_is_optional_may_be_left_out(text):
    (found,) = parse(text).statements
    assert found == s.DefineScope("a", (s.Selection(False, (s.Reference(("b",)),)),))


#: One text for each alternative of each production of the sheet's grammar: clauses, and statements.
PRODUCTIONS = """
ALL FROM p1, p2, s1
FROM p1
MEMBER ALL FROM p1
MEMBER FROM p1
TOP(load, 3) FROM *
TOP(load ASC, 3) FROM *
TOP(distance(home, 3) DESC, 3) FROM *
[1..1] FROM *
[..] FROM *
[ 1 .. ] FROM *
[..3] FROM *
m: ALL FROM * WHERE has-temp-sensor = 1
m: [1..1] FROM MEMBERS(MEMBERS(site)), a::b, SELF WHERE IS ROLE(boss)
m: FROM a : { INTERFACES OUTPUT(x) }
SUPERSCOPE ALL FROM s1, s2
s: SUPERSCOPES ALL FROM *
s: SUPERSCOPES FROM x WHERE a = 1 OR b.c = "x" AND NOT (d != 1.5)
s: SUPERSCOPES FROM MEMBERS(x) : { INTERFACES OUTPUT(T), INPUT(0) DO x }
MAP OUTWARD { a = b, c = 1 }
ALL FROM * WHERE HAS OUTPUT(need) OR INPUT(more)
ALL FROM * WHERE a < 1 AND a <= 1 AND a > 1 AND a >= 1 AND a = TRUE AND b = FALSE
ALL FROM * WHERE a PREFIX "x" AND b SUFFIX "y" AND c CONTAINS "z" AND d LIKE "q%"
ALL FROM * WHERE near(3, "x", y)
m: { INTERFACES OUTPUT(Temp) }
ALL FROM a *: { INTERFACES OUTPUT(Temp) }
m: { }
INTERFACES INPUT(), OUTPUT()
INTERFACES INPUT(0), OUTPUT(1)
INTERFACES OUTPUT(/news/sport, /a)
INTERFACES OUTPUT(Temp, Alarm)
INTERFACES OUTPUT(x > 1, y = "a" AND z PREFIX "b")
ROLES boss, logger
SET name = "Acme, Inc.", a.b = 3, c = d.e, f = TRUE
MAINTAIN ONCE
MAINTAIN EVERY 30
MAINTAIN ON CHANGE
MAINTAIN ON DEVIATION 20
MAP INWARD "http://x.org/y" MAP OUTWARD foo
MAP INWARD foo(1, bar, "x")
POLICY PUBLISHING "x" POLICY DELIVERY round_robin
POLICY INTERNAL only(a, b) POLICY TRAVERSE top_down
DO "cmd" DO run(1) DO x
UPDATE ON pub(n: Start) DO CREATE NOW
UPDATE ON PUB(n: OUTPUT(Start)) DO CREATE NOW INCLUDE COMPONENT m
UPDATE ON con(n: 1) IF n.depth < 3 DO (ALTER SCOPE SELF ADD ROLES r), CREATE NOW
UPDATE ON con(n: x > 3 AND y = 2) DO ALTER SCOPE SELF ADD ALL FROM TRIGGER
UPDATE ON con(n: /a/b, /c) DO ALTER SCOPE SELF ADD ALL FROM TRIGGER
UPDATE ON sub(INPUT(Temp)) DO (CREATE NOW)
UPDATE ON sub(Temp) DO (CREATE NOW)
UPDATE ON unsub(1) DO (CREATE NOW)
UPDATE ON adv(Temp, Foo) DO (CREATE NOW)
UPDATE ON unadv(Temp) DO (CREATE NOW)
UPDATE ON join(*, *) DO (CREATE NOW)
UPDATE ON join(c, s) DO (CREATE NOW)
UPDATE ON leave(TRIGGER, SELF) DO (CREATE NOW)
UPDATE ON leave(a::b, MEMBERS(s)) DO (CREATE NOW)
UPDATE ON timer(30) DO (CREATE NOW)
"""
OTHER_STATEMENTS = """
DEPLOY x
DEPLOY SCOPE x
DEPLOY SCOPE x AS y
DEPLOY a::x AS y ALL FROM z BROKERSCOPE(localhost)
DEPLOY x BROKERSCOPE(a.b.c:7411, replicas = 3)
DEPLOY x BROKERSCOPE("a.b.c:7411", replicas = 3)
DEPLOY x INTEGRATED()
DEPLOY x INTEGRATED(host, mode = "once")
DEPLOY x INTEGRATED(host)
DEPLOY x INTEGRATED(host, mode = "once", k = TRUE, v = 1.5)
DEPLOY x INTEGRATED(mode = "once")
DEPLOY x INTEGRATED(, mode = "once")
DEPLOY x ARCHITECTURE foo()
DEPLOY x ARCHITECTURE foo(a = 1, b = "c")
DEPLOY t SUPERSCOPE ALL FROM S a:{ INTERFACES OUTPUT(Temp) } BROKERSCOPE(localhost)
ALTER SCOPE x ADD ALL FROM c SUPERSCOPES ALL FROM S
ALTER SCOPE x DEL ALL FROM c
ALTER SCOPE x m: ALL FROM c
ALTER SCOPE definitions::x SET a = 1
ALTER SCOPE x DEL INTERFACES OUTPUT(Draft) ROLES r SET a = 1 MAP INWARD foo POLICY DELIVERY none
ALTER SCOPE SELF ADD ALL FROM c
ALTER SCOPE MEMBERS(x) ADD ALL FROM c
DROP SCOPE x
DROP SCOPE a::b
"""


@pytest.mark.spec("05/4.1")
def test_every_production_of_the_grammar_is_read_and_printed():
    texts = [f"DEFINE SCOPE g AS {clause}" for clause in PRODUCTIONS.strip().splitlines()]
    for text in texts + OTHER_STATEMENTS.strip().splitlines():
        script = parse(text)
        assert parse(format_script(script)) == script, text


@pytest.mark.spec("05/8.16")
def test_the_lexer_keeps_apart_what_looks_alike():
    script = parse(
        "DEFINE SCOPE t AS m: [1..1] FROM has-thermo WHERE has-x = 1 "
        """name: { INTERFACES INPUT("a = 'x, y'") }"""
    )
    (found,) = script.statements
    assert found.clauses[0].qualifier == s.Range(1, 1)
    assert found.clauses[0].base[0].path == ("has-thermo",)
    assert found.clauses[1].label == "name"
    (minus,) = parse("DEFINE SCOPE t AS MAP INWARD { x = temp-32 } ALL FROM acme-1").statements
    assert minus.clauses[0].by.set[0][1] == Arithmetic("-", Attribute("temp"), ConstantTerm(32))
    assert minus.clauses[1].base[0].path == ("acme-1",)
    (odd,) = parse('DEFINE SCOPE t AS ALL FROM "ann@desk", "from", MEMBERS(a::"b.c")').statements
    assert [each.path for each in odd.clauses[0].base] == [("ann@desk",), ("from",), ("a", "b.c")]
    assert parse(format_script(s.Script((odd,)))).statements == (odd,)


@pytest.mark.spec("05/4.1")
def test_words_are_keywords_only_where_they_can_be():
    text = 'DEFINE SCOPE pub AS ALL FROM con, join WHERE once = 1 SET all = "x", now = 2'
    (found,) = parse(text).statements
    assert found.name == "pub"
    assert [each.path[0] for each in found.clauses[0].base] == ["con", "join"]
    assert dict(found.clauses[1].assignments) == {"all": "x", "now": 2}


@pytest.mark.spec("05/4.1", "05/E1")
def test_and_binds_tighter_than_or():
    (found,) = parse("DEFINE SCOPE t AS ALL FROM * WHERE a = 1 AND b = 1 OR c = 1").statements
    where = found.clauses[0].where
    assert isinstance(where, s.AnyOf)
    assert isinstance(where.parts[0], s.AllOf)
    notes = parse("DEFINE SCOPE t AS ALL FROM * WHERE a = 1 AND b = 1 OR c = 1").notes
    assert "parentheses" in notes[0][1]
    assert not parse("DEFINE SCOPE t AS ALL FROM * WHERE (a = 1 AND b = 1) OR c = 1").notes


@pytest.mark.spec("R-05.29", "05/P6", "05/E1")
def test_a_block_may_be_appended_or_given_later():
    from stentor.scopes.language.description import describe

    block = "{ INTERFACES OUTPUT(Temp), INPUT(0) }"
    (one,) = parse(f"DEFINE SCOPE t AS m: ALL FROM a WHERE x = 1 : {block}").statements
    (other,) = parse(f"DEFINE SCOPE t AS m: ALL FROM a WHERE x = 1 m: {block}").statements
    assert describe(one).edges("m") == describe(other).edges("m")


MISTAKES = [
    ("DEFIN SCOPE x", 1, "did you mean DEFINE"),
    ("DEFINE SCOPE x AS ALL a", 23, "expected FROM"),
    ("DEFINE SCOPE x AS ALL FROM a WHERE b = 'c'", 40, "double quotes"),
    ("DEFINE SCOPE x AS ALL FROM a WHERE b == 1", 39, "unexpected"),
    ("DEFINE SCOPE x AS ALL FROM w WHERE c = 1 INTERFACE INPUT(a)", 52, "INTERFACES"),
    ("DEFINE SCOPE x AS MAP y", 23, "INWARD or OUTWARD"),
    ("DEFINE SCOPE x AS [3..1] FROM a", 19, "at least 3 and at most 1"),
    ("DEFINE SCOPE x AS TOP(a, 0) FROM a", 26, "at least 1"),
    ("DEFINE SCOPE x AS INTERFACES INPUT(5)", 36, "0 for nothing or 1"),
    ('DEFINE SCOPE x AS INTERFACES INPUT("price >")', 36, "ends too early"),
    ("DEFINE SCOPE x AS MAP INWARD { t = sine(x) }", 36, "no function 'sine'"),
    ("DEFINE SCOPE x AS MAP INWARD { t = 1, t = 2 }", 19, "set twice"),
    ("DEFINE SCOPE from AS ALL FROM a", 14, "reserved word"),
    ("DEFINE SCOPE x AS MAINTAIN ON DEVIATION 0", 19, "above 0"),
    ("DEFINE TABLE t (a, b) AS (1)", 1, "1 values for 2 columns"),
    ("DEFINE TABLE t (a, b) AS (1, 2), (1, 3)", 1, "t has two rows for 1"),
    ("DEPLOY", 7, "the name of a scope"),
    ('DEFINE SCOPE x AS SET a = "b', 27, "never closed"),
    ("DEFINE SCOPE x AS ALL FROM a # why", 30, "comments begin with --"),
    ("DEFINE SCOPE x AS UPDATE ON pub(n: A) DO ALTER SCOPE x ADD ALL FROM a, CREATE NOW", 72,
     "parentheses"),
    ("DEFINE SCOPE x AS SET a = 99999999999999999999", 27, "too large"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "words"), MISTAKES)
def test_mistakes_are_told_with_their_place(text, column, words):
    with pytest.raises(ScopeSyntaxError, match=words) as raised:
        parse("\n" + text)
    assert (raised.value.line, raised.value.column) == (2, column)
    if column < 60:
        assert str(raised.value).splitlines()[2].index("^") == 4 + column - 1


@pytest.mark.parametrize(
    "text",
    [
        "DEFINE SCOPE x AS ALL FROM a WHERE " + "(" * 100_000,
        "DEFINE SCOPE x AS ALL FROM a WHERE " + "NOT " * 100_000 + "b = 1",
        "DEFINE SCOPE x AS MAP INWARD { a = " + "- " * 100_000 + "1 }",
        "DEFINE SCOPE x AS MAP INWARD { a = 1" + " + 1" * 100_000 + " }",
        "DEFINE SCOPE x AS ALL FROM " + "MEMBERS(" * 100_000,
        "x" * 2_000_000,
    ],
)
def test_hostile_texts_are_refused_at_once(text):
    def refused():
        with pytest.raises(ScopeSyntaxError, match=r"nested too deeply|at most|unexpected"):
            parse(text)

    long = "DEFINE SCOPE x AS ALL FROM " + ", ".join(["a"] * 5_000)
    assert least(refused) < 20 * least(lambda: parse(long))


def test_a_long_text_takes_time_in_proportion():
    def lines(count):
        return "".join(
            f"DEFINE SCOPE s{n} AS ALL FROM a, b -- c\nDEPLOY s{n};\n" for n in range(count)
        )

    short, long = lines(200), lines(2_000)
    assert least(lambda: parse(long)) < 40 * least(lambda: parse(short))


def test_a_deep_graph_is_deployed_in_time_in_proportion():
    def chain(count):
        above = ("", *(f"SUPERSCOPE ALL FROM s{n}" for n in range(count)))
        return "".join(
            f"DEFINE SCOPE s{n} AS ALL FROM c{n} {above[n]}; DEPLOY s{n};" for n in range(count)
        )

    short, long = chain(40), chain(800)
    assert least(lambda: ScopeGraph.loads(long)) < 80 * least(lambda: ScopeGraph.loads(short))


def least(run):
    """The processor time of the best of three, without the collector: its share grows with
    whatever else the process holds."""
    spent = []
    gc.disable()
    try:
        for _ in range(3):
            begun = time.thread_time()
            run()
            spent.append(time.thread_time() - begun)
    finally:
        gc.enable()
    return min(spent)


# -- several files


@pytest.mark.spec("R-05.12", "R-05.17")
def test_files_are_put_together_by_import():
    files = {
        "d/main.scopes": 'IMPORT "parts/a.scopes" IMPORT "parts/b.scopes" DEPLOY x',
        "d/parts/a.scopes": 'IMPORT "../common.scopes" DEFINE SCOPE y AS ALL FROM c',
        "d/parts/b.scopes": 'IMPORT "../common.scopes" DEFINE SCOPE y AS ALL FROM c',
        "d/common.scopes": "DEFINE SCOPE x AS ALL FROM d",
    }
    found = compose("d/main.scopes", files["d/main.scopes"], files.__getitem__)
    assert [getattr(e.statement, "name", "") for e in found.statements] == ["x", "y", ""]


def test_conflicts_between_files_name_both_places():
    files = {"b": "\nDEFINE SCOPE y AS ALL FROM d", "c": 'IMPORT "a"'}
    with pytest.raises(InvalidScopeGraph, match=r"b:2:1: 'y' is defined already, at a:1:1"):
        compose("a", 'DEFINE SCOPE y AS ALL FROM c IMPORT "b"', files.__getitem__)
    with pytest.raises(ScopeSyntaxError, match="a → c → a"):
        compose("a", 'IMPORT "c"', files.__getitem__)
    with pytest.raises(ScopeSyntaxError, match=r"b, line 2, column 8"):
        compose("a", 'IMPORT "b"', {"b": "\nDEFINE x"}.__getitem__)


# -- whatever can be said is printed and read again

WORDS = st.sampled_from(["alpha", "beta", "has-x", "g_1", "delta"])
TEXTS = st.text(
    st.characters(blacklist_characters="\n\r", blacklist_categories=["Cs", "Cc", "Zl", "Zp"]),
    max_size=5,
)
LITERALS = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(-1e9, 1e9, allow_nan=False).map(lambda x: x + 0.0),
)
REFERENCES = st.one_of(
    st.builds(s.Reference, st.tuples(WORDS), st.integers(0, 3)),
    st.builds(s.Reference, st.tuples(WORDS, WORDS)),
    st.builds(s.Reference, st.tuples(TEXTS.filter(lambda text: text not in ("SELF", "TRIGGER")))),
    st.just(s.Reference(("SELF",))),
)
ARGUMENTS = st.one_of(LITERALS, st.builds(s.Name, WORDS))
CALLS = st.builds(s.Call, WORDS, st.lists(ARGUMENTS, min_size=1, max_size=2).map(tuple))
CODES = st.one_of(
    CALLS, st.builds(s.Call, WORDS), st.builds(s.Call, TEXTS, st.just(()), st.just(True))
)
DOTTED = st.lists(WORDS, min_size=1, max_size=2).map(".".join)
TESTS = st.one_of(
    st.builds(s.AttributeTest, DOTTED, st.sampled_from(["=", "!=", "<", ">="]), LITERALS),
    st.builds(s.AttributeTest, DOTTED, st.sampled_from(["prefix", "like"]), TEXTS),
    st.builds(s.RoleTest, WORDS),
    CALLS,
)


def several(part):
    return st.lists(part, min_size=2, max_size=3).map(tuple)


PREDICATES = st.recursive(
    TESTS,
    lambda part: st.one_of(
        st.builds(s.AllOf, several(part)),
        st.builds(s.AnyOf, several(part)),
        st.builds(s.Negation, part),
    ),
    max_leaves=5,
)
FILTERS = st.one_of(
    st.builds(s.Constant, st.booleans()),
    st.builds(s.Kind, DOTTED),
    st.builds(s.Topic, st.lists(st.one_of(WORDS, st.just("*")), min_size=1, max_size=3).map(tuple)),
    st.sampled_from([s.Text("price > 100"), s.Text("a = 'x'")]),
    st.builds(s.Content, PREDICATES),
)
FILTER_LISTS = st.lists(FILTERS, min_size=1, max_size=2).map(tuple)
HALVES = st.builds(s.Half, st.sampled_from(["input", "output"]), FILTER_LISTS)
INTERFACES = st.builds(s.Interfaces, st.lists(HALVES, min_size=1, max_size=2).map(tuple))
EXPRESSIONS = st.recursive(
    st.one_of(st.builds(Attribute, DOTTED), st.builds(ConstantTerm, LITERALS)),
    lambda part: st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*/"), part, part),
        st.builds(lambda a: expressions.Call("round", (a,)), part),
    ),
    max_leaves=5,
)
MAPS = st.builds(
    s.Map,
    st.sampled_from(["inward", "outward"]),
    st.one_of(
        CODES,
        st.builds(
            s.Changes,
            st.dictionaries(DOTTED, EXPRESSIONS, min_size=1, max_size=2).map(
                lambda d: tuple(d.items())
            ),
            st.one_of(st.none(), st.just(("alpha",))),
            st.sampled_from([(), ("beta", "g_1")]),
        ),
    ),
)
POLICIES = st.builds(
    s.Policy, st.sampled_from(["publishing", "delivery", "internal", "traverse"]), CODES
)
ACTIONS = st.one_of(MAPS, POLICIES, st.builds(s.Do, CODES))
PROPERTIES = st.builds(
    s.Properties, st.one_of(st.none(), INTERFACES), st.lists(ACTIONS, max_size=2).map(tuple)
)
SELECTIONS = st.builds(
    s.Selection,
    st.booleans(),
    st.one_of(st.none(), st.lists(REFERENCES, min_size=1, max_size=2).map(tuple)),
    st.one_of(st.just(""), WORDS),
    st.one_of(
        st.just(s.All()),
        st.builds(s.Top, st.one_of(WORDS, CALLS), st.integers(1, 9), st.booleans()),
        st.builds(
            s.Range, st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.just(4))
        ),
    ),
    st.one_of(st.none(), PREDICATES),
    st.one_of(st.none(), PROPERTIES),
)
EVENTS = st.one_of(
    st.builds(s.Event, st.sampled_from(["pub", "con"]), WORDS, FILTER_LISTS),
    st.builds(s.Event, st.sampled_from(["sub", "unadv"]), st.just(""), FILTER_LISTS),
    st.builds(
        lambda a, b: s.Event("join", ends=(a, b)),
        *[st.one_of(st.none(), REFERENCES)] * 2,
    ),
    st.builds(lambda code: s.Event("call", code=code), CALLS),
)
FEATURES = st.one_of(
    st.builds(s.Labelled, st.one_of(WORDS, st.just("*")), PROPERTIES),
    INTERFACES,
    st.builds(s.Roles, several(WORDS)),
    st.builds(s.Set, several(st.tuples(DOTTED, ARGUMENTS))),
    st.builds(s.Maintain, st.sampled_from(["once", "change"])),
    st.builds(s.Maintain, st.sampled_from(["every", "deviation"]), st.integers(1, 99)),
    st.builds(s.Admit, PREDICATES),
    st.just(s.Duplicates()),
    ACTIONS,
)
ALTERS = st.builds(
    s.Alter,
    REFERENCES,
    st.sampled_from(["", "add", "del"]),
    st.lists(st.one_of(SELECTIONS, FEATURES), max_size=2).map(tuple),
)
CREATES = st.one_of(
    st.just(s.Create()), st.builds(s.Create, st.just(True), st.one_of(st.just(""), WORDS))
)
UPDATES = st.builds(
    s.Update,
    EVENTS,
    st.lists(st.one_of(ALTERS, CREATES), min_size=1, max_size=2).map(tuple),
    st.one_of(st.none(), PREDICATES),
)
CLAUSES = st.lists(st.one_of(SELECTIONS, FEATURES, UPDATES), max_size=3).map(tuple)
STATEMENTS = st.one_of(
    st.builds(s.DefineScope, WORDS, CLAUSES, st.booleans()),
    st.builds(
        s.Deploy,
        st.builds(s.Reference, st.tuples(WORDS)),
        st.one_of(st.just(""), WORDS),
        CLAUSES,
        st.sampled_from(
            [None, s.Architecture("integrated"), s.Architecture("hub", "a.b:1", (("x", 2),))]
        ),
    ),
    ALTERS,
    st.builds(s.Drop, REFERENCES),
    st.builds(s.Import, TEXTS),
    st.builds(
        lambda rows: s.DefineTable("t", ("alpha", "beta"), rows),
        st.lists(
            st.tuples(LITERALS, LITERALS), min_size=1, max_size=2, unique_by=lambda row: row[0]
        ).map(tuple),
    ),
)


@pytest.mark.spec("05/P10")
@settings(max_examples=60)
@given(st.lists(STATEMENTS, max_size=2).map(lambda found: s.Script(tuple(found))))
def test_whatever_can_be_said_is_printed_and_read_again(script):
    printed = format_script(script)
    assert parse(printed) == script
    assert format_script(parse(printed)) == printed
