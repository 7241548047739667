"""Channels, topics, event types and subject dialects, against enumeration of small namespaces."""

from __future__ import annotations

import doctest
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor import Filter, Notification, StentorError
from stentor.errors import FilterSyntaxError, FilterTypeError
from stentor.filters.addressing import (
    SubjectSpace,
    channel,
    event_type,
    subject,
    subject_like,
    topic,
    type_path,
)
from stentor.filters.addressing.subjects import DIALECTS
from stentor.filters.ranges import Ranges
from stentor.model.event_types import event_types

ROOT = Path(__file__).resolve().parents[2]


def words(alphabet: str, longest: int) -> list[str]:
    return [
        "".join(letters)
        for length in range(1, longest + 1)
        for letters in itertools.product(alphabet, repeat=length)
    ]


def paths(elements: str, deepest: int, separator: str = ".") -> list[str]:
    return [separator.join(word) for word in words(elements, deepest)]


def accepts(f: Filter, name: str) -> bool:
    return f.matches({"_subject": name})


#: Three elements, of which patterns name two, and one level more than patterns have.
TREE = paths("abc", 4)
#: Texts in which separators are characters like others, and longer than the patterns.
TEXTS = words("ab/", 5)


# -- channels and topics ---------------------------------------------------------------------


@pytest.mark.spec("R-01.39", "R-01.45", "R-07.04")
def test_a_channel_gets_everything_in_it_and_nothing_else() -> None:
    f = channel("trades")
    assert f.matches(Notification({"x": 1}, channel="trades"))
    assert not f.matches(Notification({"x": 1}, channel="trade"))
    assert not f.matches(Notification({"x": 1}))
    assert not f.matches(Notification({"channel": "trades"}))


@pytest.mark.spec("R-01.39")
def test_a_channel_can_be_narrowed_by_content() -> None:
    f = channel("trades", "price > 100")
    assert (
        f == channel("trades", Filter("price > 100")) == channel("trades") & Filter("price > 100")
    )
    assert f.matches(Notification({"price": 120}, channel="trades"))
    assert not f.matches(Notification({"price": 90}, channel="trades"))
    assert channel("trades").covers(f)
    assert not f.covers(channel("trades"))


@pytest.mark.spec("R-07.04")
def test_channels_never_interact() -> None:
    names = ["a", "A", "a.b", "a.", "a*", "*"]
    for one, other in itertools.permutations(names, 2):
        assert not channel(one).overlaps(channel(other))
        assert not channel(one).covers(channel(other))


@pytest.mark.spec("R-07.03", "07/P-20", "R-01.43")
def test_a_topic_is_one_equality_on_the_topic_attribute() -> None:
    assert topic("alarms") == Filter("topic = 'alarms'")
    assert topic("alarms", attribute="JMSDestination") == Filter("JMSDestination = 'alarms'")
    assert topic("alarms", "level > 3") == Filter("topic = 'alarms' and level > 3")
    assert topic("alarms").matches({"topic": "alarms", "level": 1})
    assert not topic("alarms").matches(Notification({"x": 1}, channel="alarms"))


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300, "\ud800"])
def test_a_channel_that_no_notification_can_have_is_refused(name: str) -> None:
    with pytest.raises(FilterSyntaxError, match="no notification can carry it"):
        channel(name)


def test_a_channel_is_a_string() -> None:
    with pytest.raises(FilterTypeError, match="not a int"):
        channel(3)  # type: ignore[arg-type]


# -- event types -----------------------------------------------------------------------------


@pytest.mark.spec("R-01.41", "R-07.09", "R-02.22")
def test_a_subscription_to_a_type_accepts_every_subtype_along_all_parents() -> None:
    event_types.declare("dialects.alert", attributes={"severity": "number"})
    event_types.declare("dialects.quote.halt", parents=["dialects.alert"])
    n = Notification({"severity": 4}, type="dialects.quote.halt.sudden")
    for name in ("dialects.quote", "dialects.alert", "dialects.quote.halt", "dialects"):
        assert event_type(name).matches(n)
        assert event_type(name).covers(event_type("dialects.quote.halt"))
    assert not event_type("dialects.quote.open").matches(n)
    assert event_type("dialects.alert", "severity > 3").matches(n)
    assert not event_type("dialects.alert", "severity > 5").matches(n)
    assert not event_type("dialects.quote.halt").covers(event_type("dialects.alert"))
    # An event may be of both types, although neither is declared to be the other.
    assert event_type("dialects.alert").overlaps(event_type("dialects.quote"))


@pytest.mark.spec("R-02.23", "02/T6")
@pytest.mark.parametrize("by_type", [event_type, type_path])
def test_types_respect_the_boundaries_of_segments(by_type: Callable[[str], Filter]) -> None:
    f = by_type("Stock")
    assert f.matches(Notification({"x": 1}, type="Stock"))
    assert f.matches(Notification({"x": 1}, type="Stock.Quote"))
    assert not f.matches(Notification({"x": 1}, type="StockQuote"))
    assert not f.matches(Notification({"x": 1}, type="NoStock"))
    assert not f.matches(Notification({"x": 1}))
    assert f.covers(by_type("Stock.Quote"))
    assert not f.covers(by_type("StockQuote"))


@pytest.mark.spec("R-02.23")
def test_dotted_types_see_a_single_line_of_descent() -> None:
    event_types.declare("dialects.mammal")
    event_types.declare("dialects.pet")
    event_types.declare("dialects.pet.cat", parents=["dialects.mammal"])
    cat = Notification({"x": 1}, type="dialects.pet.cat")
    assert event_type("dialects.mammal").matches(cat)
    assert not type_path("dialects.mammal").matches(cat)
    assert type_path("dialects.pet").matches(cat)
    assert not type_path("dialects.pet").overlaps(type_path("dialects.mammal"))


@pytest.mark.parametrize("by_type", [event_type, type_path])
def test_an_impossible_type_is_refused(by_type: Callable[[str], Filter]) -> None:
    with pytest.raises(FilterSyntaxError, match="empty segment"):
        by_type("a..b")


# -- what each dialect means, element by element ---------------------------------------------


def by_elements(pattern: str, name: str, one: str, deeper: str) -> bool:
    wanted, given = pattern.split("."), name.split(".")
    if wanted[-1] == deeper:
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(
        w in (one, g) for w, g in zip(wanted, given, strict=True)
    )


def by_descent(pattern: str, name: str) -> bool:
    wanted, given = pattern.split("."), name.split(".")
    return given[: len(wanted)] == wanted


def by_glob(pattern: str, name: str) -> bool:
    regex = "".join({"*": "(?s:.*)", "?": "(?s:.)"}.get(c, re.escape(c)) for c in pattern)
    return re.fullmatch(regex, name) is not None


def by_like(pattern: str, name: str) -> bool:
    return by_glob(pattern.replace("%", "*").replace("_", "?"), name)


def by_levels(pattern: str, name: str) -> bool:
    wanted, given = pattern.split("."), name.split(".")
    return len(wanted) == len(given) and all(map(by_like, wanted, given))


Meaning = Callable[[str, str], bool]
MEANINGS: dict[str, Meaning] = {
    "stentor": lambda p, n: by_elements(p, n, "*", "**"),
    "rendezvous": lambda p, n: by_elements(p, n, "*", ">"),
    "survey": by_descent,
    "swiftmq": lambda p, n: by_descent(p, n) or by_descent(n, p),
    "mqps": by_glob,
}


def patterns(dialect: str) -> list[str]:
    if dialect == "mqps":
        return words("a/?*", 3)
    if dialect in ("survey", "swiftmq"):
        return paths("ab", 3)
    tail = "**" if dialect == "stentor" else ">"
    closed = paths("ab*", 3)
    return [*closed, *[p + "." + tail for p in paths("ab*", 2)], tail]


def names(dialect: str) -> list[str]:
    return TEXTS if dialect == "mqps" else TREE


@pytest.mark.spec("R-07.05", "R-01.40", "R-01.45")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_means_what_it_says(dialect: str) -> None:
    for pattern in patterns(dialect):
        f = subject(pattern, dialect)
        for name in names(dialect):
            assert accepts(f, name) is MEANINGS[dialect](pattern, name), (pattern, name)


@pytest.mark.spec("R-07.05", "R-01.40", "02/P5")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_covering_and_overlap_are_exact_between_patterns_of_a_dialect(dialect: str) -> None:
    meaning = MEANINGS[dialect]
    found = [
        (pattern, subject(pattern, dialect), {n for n in names(dialect) if meaning(pattern, n)})
        for pattern in patterns(dialect)
    ]
    for p, f, mine in found:
        for q, g, theirs in found:
            assert f.covers(g) is (mine >= theirs), (p, q)
            assert f.overlaps(g) is (not mine.isdisjoint(theirs)), (p, q)
            assert (f == g) is (mine == theirs), (p, q)


@pytest.mark.spec("R-07.05")
def test_notifications_carry_subjects() -> None:
    n = Notification({"x": 1}, subject="stocks.nyse.IBM")
    assert subject("stocks.*.IBM").matches(n)
    assert not subject("stocks.*").matches(n)
    assert not subject("**").matches(Notification({"x": 1}))
    assert not subject("**").matches(Notification({"subject": "stocks"}))


@pytest.mark.spec("R-07.07")
def test_the_subject_is_filtered_with_or_without_the_content() -> None:
    f = subject("stocks.**", content="price > 100")
    assert f == subject("stocks.**") & Filter("price > 100")
    assert f.matches(Notification({"price": 120}, subject="stocks.nyse.IBM"))
    assert not f.matches(Notification({"price": 1}, subject="stocks.nyse.IBM"))


# -- the worked examples ---------------------------------------------------------------------


@pytest.mark.spec("07/E-01")
def test_rendezvous_example() -> None:
    one = subject("stocks.technology.*", "rendezvous")
    more = subject("stocks.technology.>", "rendezvous")
    assert accepts(one, "stocks.technology.foo")
    assert not accepts(one, "stocks.technology.software.bar")
    assert accepts(more, "stocks.technology.foo")
    assert accepts(more, "stocks.technology.software.bar")
    assert not accepts(more, "stocks.technology")
    assert not accepts(more, "stocks.technologyx.foo")
    assert more.covers(one)


@pytest.mark.spec("07/E-02")
def test_mqps_example() -> None:
    assert accepts(subject("a/?/c", "mqps"), "a/b/c")
    assert not accepts(subject("a/?/c", "mqps"), "a/bb/c")
    assert accepts(subject("a*c", "mqps"), "a/b/c")
    assert accepts(subject("a*c", "mqps"), "ac")


@pytest.mark.spec("07/E-03", "R-07.05")
def test_swiftmq_example() -> None:
    f = subject("iit.sales", "swiftmq")
    for name in ("iit", "iit.sales", "iit.sales.US", "iit.sales.EU"):
        assert accepts(f, name)
    for name in ("iit.projects", "ii", "iit.salesforce", "iit.projects.sales"):
        assert not accepts(f, name)
    assert accepts(subject("iit.sales.US", "swiftmq"), "iit.sales")
    assert accepts(subject("iit.sales.EU", "swiftmq"), "iit.sales")
    # One filter of one conjunct: whatever matches is delivered once.
    assert len(f.conjuncts) == 1


@pytest.mark.spec("R-07.05")
def test_survey_example() -> None:
    assert accepts(subject("a", "survey"), "a.b")
    assert accepts(subject("a.b", "survey"), "a.b")
    assert not accepts(subject("a.b", "survey"), "a")
    assert not accepts(subject("a", "survey"), "ab")


@pytest.mark.spec("07/E-04", "R-07.06")
def test_sql_like_example() -> None:
    f = subject_like("iit.s%s._S")
    assert accepts(f, "iit.sales.US")
    assert not accepts(f, "iit.sales.EU")
    assert not accepts(f, "iit.sales.x.sales.US")
    assert accepts(subject_like("iit.s%s._S", whole=True), "iit.sales.x.sales.US")


@pytest.mark.spec("R-01.40")
def test_star_as_subtree_is_a_switch() -> None:
    plain = subject("/a/b/*", separator="/")
    subtree = subject("/a/b/*", separator="/", star="subtree")
    assert accepts(plain, "/a/b/c")
    assert not accepts(plain, "/a/b/c/d")
    assert accepts(subtree, "/a/b/c")
    assert accepts(subtree, "/a/b/c/d")
    assert not accepts(subtree, "/a/b")
    assert subtree == subject("/a/b/**", separator="/")
    # Elsewhere than at the end a star is one segment under either reading.
    assert subject("a.*.c", star="subtree") == subject("a.*.c")


@pytest.mark.spec("R-01.40", "08/5.1")
def test_a_star_within_a_segment_stays_there() -> None:
    f = subject("economy.exchange.*.MSFT*")
    assert accepts(f, "economy.exchange.nasdaq.MSFT")
    assert accepts(f, "economy.exchange.nasdaq.MSFT2")
    assert not accepts(f, "economy.exchange.nasdaq.MSFT.x")
    assert not accepts(f, "economy.exchange.nasdaq.AMSFT")
    assert not accepts(f, "economy.exchange.MSFT")
    assert subject("economy.**").covers(f)
    assert f.covers(subject("economy.exchange.nyse.MSFT*2"))


def test_rooted_paths_begin_with_the_separator() -> None:
    f = subject("/a/*", separator="/")
    assert accepts(f, "/a/b")
    assert not accepts(f, "a/b")
    assert subject("/**", separator="/").covers(f)
    assert subject("/a", separator="/") == Filter("_subject = '/a'")


@given(
    st.lists(
        st.text(
            st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="./*>?%"),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from("./"),
)
def test_what_is_not_a_wildcard_stands_for_itself(elements: list[str], separator: str) -> None:
    elements = ["x" + element for element in elements]
    name = separator.join(elements)
    tail = {"stentor": "**", "rendezvous": ">"}
    for dialect in ("stentor", "survey", "swiftmq", "rendezvous"):
        assert accepts(subject(name, dialect, separator=separator), name)
        if dialect in tail:
            starred = separator.join(["*", *elements[1:]])
            assert accepts(subject(starred, dialect, separator=separator), name)
            below = subject(name + separator + tail[dialect], dialect, separator=separator)
            assert accepts(below, name + separator + "y")
            assert not accepts(below, name)
    assert accepts(subject(name, "mqps"), name)
    assert not accepts(subject(name, "mqps"), name + "y")
    literal = name.replace("\\", "\\\\").replace("_", "\\_")
    for whole in (True, False):
        f = subject_like(literal, separator=separator, whole=whole, escape="\\")
        assert f == Filter.of_expression(subject(name, "mqps").expression)


@pytest.mark.spec("R-07.06")
@settings(max_examples=36)
@given(
    st.lists(st.text("a_%", min_size=1, max_size=2), min_size=1, max_size=2).map(".".join),
    st.lists(st.text("a_%", min_size=1, max_size=2), min_size=1, max_size=2).map(".".join),
)
def test_like_patterns_level_by_level(p: str, q: str) -> None:
    f, g = subject_like(p), subject_like(q)
    mine = {n for n in LEVELS if by_levels(p, n)}
    theirs = {n for n in LEVELS if by_levels(q, n)}
    assert {n for n in LEVELS if accepts(f, n)} == mine
    assert f.covers(g) is (mine >= theirs)
    assert f.overlaps(g) is (not mine.isdisjoint(theirs))
    whole = subject_like(p, whole=True)
    assert {n for n in LEVELS if accepts(whole, n)} == {n for n in LEVELS if by_like(p, n)}
    assert whole.covers(f)


LEVELS = [
    *words("ab", 4),
    *map(".".join, itertools.product(words("ab", 3), repeat=2)),
    *map(".".join, itertools.product("ab", repeat=3)),
]


@settings(max_examples=36)
@given(
    st.lists(st.text("a*", min_size=1, max_size=3), min_size=1, max_size=2).map(".".join),
    st.lists(st.text("a*", min_size=1, max_size=3), min_size=1, max_size=2).map(".".join),
)
def test_stars_within_segments(p: str, q: str) -> None:
    if "**" in p or "**" in q:
        for pattern in (p, q):
            if re.search(r"\*\*\.|\*\*\*|a\*\*|\*\*a", pattern):
                with pytest.raises(FilterSyntaxError):
                    subject(pattern)
        return
    mine = {n for n in LEVELS if by_levels(p.replace("*", "%"), n)}
    theirs = {n for n in LEVELS if by_levels(q.replace("*", "%"), n)}
    assert {n for n in LEVELS if accepts(subject(p), n)} == mine
    assert subject(p).covers(subject(q)) is (mine >= theirs)
    assert subject(p).overlaps(subject(q)) is (not mine.isdisjoint(theirs))


@pytest.mark.spec("R-01.45")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_filters_of_subjects_print_as_the_language(dialect: str) -> None:
    for pattern in patterns(dialect)[::3]:
        f = subject(pattern, dialect)
        assert Filter(str(f)) == f


@pytest.mark.spec("R-01.45", "R-07.05")
@pytest.mark.parametrize(
    ("pattern", "dialect"),
    [
        ("a.b", "stentor"),
        ("a.**", "stentor"),
        ("a.b.>", "rendezvous"),
        ("a.b", "survey"),
        ("a.b", "swiftmq"),
        ("a/b*", "mqps"),
    ],
)
def test_literal_paths_become_plain_ranges(pattern: str, dialect: str) -> None:
    (conjunct,) = subject(pattern, dialect).conjuncts
    ((_, part),) = conjunct.constraints["_subject"].parts
    assert isinstance(part, Ranges)


# -- mistakes --------------------------------------------------------------------------------


@pytest.mark.spec("07/T-09")
@pytest.mark.parametrize(
    ("pattern", "dialect", "column", "message"),
    [
        ("a.>", "stentor", 3, "neither a wildcard of this dialect"),
        ("a.#", "stentor", 3, "neither a wildcard of this dialect"),
        ("a.**.b", "stentor", 3, "last segment"),
        ("a.b**", "stentor", 4, "whole segment"),
        ("a..b", "stentor", 3, "never empty"),
        ("a.", "stentor", 3, "never empty"),
        ("/a/b/*", "stentor", 1, "pass separator='/'"),
        ("a.**", "rendezvous", 3, "neither a wildcard of this dialect"),
        ("a.b*", "rendezvous", 4, "whole elements only"),
        ("a.>.b", "rendezvous", 3, "last element"),
        ("a.*", "survey", 3, "no wildcard '*'"),
        ("iit.s%", "swiftmq", 6, "subject_like"),
        ("a.+", "survey", 3, "neither a wildcard of this dialect"),
    ],
)
def test_symbols_of_another_dialect_are_refused_with_their_place(
    pattern: str, dialect: str, column: int, message: str
) -> None:
    with pytest.raises(FilterSyntaxError, match=re.escape(message)) as caught:
        subject(pattern, dialect)
    assert caught.value.column == column
    assert "^" in str(caught.value)


def test_options_that_a_dialect_does_not_have_are_refused() -> None:
    with pytest.raises(FilterTypeError, match="known dialects: stentor, survey"):
        subject("a", "amqp")
    with pytest.raises(FilterTypeError, match="no option star"):
        subject("a", "rendezvous", star="subtree")
    with pytest.raises(FilterTypeError, match="'segment' or 'subtree'"):
        subject("a", star="tree")
    with pytest.raises(FilterTypeError, match="not by ':'"):
        subject("a", separator=":")
    with pytest.raises(FilterTypeError, match="mean nothing in MQPS"):
        subject("a", "mqps", separator="/")
    with pytest.raises(FilterTypeError, match="cannot be the escape"):
        subject_like("a", escape=".")
    with pytest.raises(FilterSyntaxError, match="escapes only"):
        subject_like("a!b", escape="!")
    with pytest.raises(FilterSyntaxError, match="never empty"):
        subject_like("a..%")


@given(st.text(max_size=8) | st.text(".*>?%/a", max_size=8), st.sampled_from(list(DIALECTS)))
def test_any_pattern_compiles_or_says_why_not(pattern: str, dialect: str) -> None:
    try:
        f = subject(pattern, dialect)
    except StentorError:
        return
    assert not f.is_never
    assert Filter(str(f)) == f


# -- namespaces ------------------------------------------------------------------------------


@pytest.mark.spec("07/T-09", "R-07.05")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_space_relates_names_and_patterns_to_its_prefix(dialect: str) -> None:
    space = SubjectSpace("ns", dialect)
    for pattern in patterns(dialect)[::5]:
        f = space.filter(pattern)
        assert space.everything().covers(f)
        for name in names(dialect)[::3]:
            assert accepts(f, space.name(name)) is MEANINGS[dialect](pattern, name)
            assert not accepts(f, name)
            assert not accepts(f, "nsx" + space.name(name))


@pytest.mark.spec("07/T-09")
def test_spaces_keep_dialects_apart() -> None:
    stocks = SubjectSpace("stocks", "rendezvous")
    files = SubjectSpace("files", separator="/", star="subtree")
    assert stocks.name("nyse.IBM") == "stocks.nyse.IBM"
    assert files.name("etc/passwd") == "files/etc/passwd"
    assert not stocks.everything().overlaps(files.everything())
    assert accepts(files.filter("etc/*"), "files/etc/ssh/config")
    with pytest.raises(FilterSyntaxError):
        files.filter("etc/>")
    with pytest.raises(FilterSyntaxError):
        stocks.filter("nyse.**")
    with pytest.raises(FilterTypeError, match="belong to the dialect 'swiftmq'"):
        stocks.like("nyse.%")


@pytest.mark.spec("07/T-09", "R-07.05", "R-07.06")
def test_swiftmq_in_a_space_stops_at_the_prefix() -> None:
    space = SubjectSpace("corp.iit", "swiftmq")
    f = space.filter("sales.US")
    assert accepts(f, "corp.iit.sales")
    assert accepts(f, "corp.iit.sales.US.east")
    assert not accepts(f, "corp.iit")
    assert not accepts(f, "corp")
    assert accepts(space.like("s%s._S"), "corp.iit.sales.US")
    assert not accepts(space.like("s%s._S"), "iit.sales.US")
    assert space.like("%", whole=True) == Filter("_subject prefix 'corp.iit.'")


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (SubjectSpace("a"), "b.*"),
        (SubjectSpace("a"), "b*"),
        (SubjectSpace("a"), "b..c"),
        (SubjectSpace("a"), ".b"),
        (SubjectSpace("a"), ""),
        (SubjectSpace("a"), ">"),
        (SubjectSpace("a", "rendezvous"), "b.>"),
        (SubjectSpace("a", "mqps"), "b?"),
        (SubjectSpace("a"), "x" * 1023),
    ],
)
def test_names_that_patterns_could_not_reach_are_refused(space: SubjectSpace, name: str) -> None:
    with pytest.raises(FilterSyntaxError):
        space.name(name)


def test_a_space_without_prefix_is_the_whole_tree() -> None:
    space = SubjectSpace("", separator="/")
    assert space.name("/a/b") == "/a/b"
    assert space.filter("/a/*") == subject("/a/*", separator="/")
    assert space.everything() == subject("**")
    with pytest.raises(FilterSyntaxError):
        SubjectSpace("a.*")
    assert SubjectSpace("a", "rendezvous") == SubjectSpace("a", "rendezvous", ".")


# -- the page for users ----------------------------------------------------------------------


@pytest.mark.parametrize("page", ["addressing.md"])
def test_the_examples_of_the_page_run(page: str) -> None:
    outcome = doctest.testfile(
        str(ROOT / "docs" / page),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
        encoding="utf-8",
    )
    assert outcome.attempted > 20
    assert outcome.failed == 0
