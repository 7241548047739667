"""Automata against their definition: every string over a small alphabet, and Python's own `re`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.filters import automata
from stentor.filters.automata import (
    Automaton,
    Dfa,
    anything,
    between,
    contains,
    determinize,
    from_regex_tree,
    like,
    literal,
    nothing,
    parse_regex,
    prefix,
    suffix,
)
from stentor.filters.automata import nfa as nfa_module
from stentor.filters.automata.characters import (
    ALL,
    NONE,
    char_set,
    ignoring_case,
    negated,
    only_member,
    single,
)
from stentor.filters.automata.syntax import size


def words(alphabet: str, longest: int) -> list[str]:
    return [
        "".join(letters)
        for length in range(longest + 1)
        for letters in itertools.product(alphabet, repeat=length)
    ]


WORDS = words("abc", 5)
SHORT = words("ab", 2)


def dfa(automaton: Automaton) -> Dfa:
    made = determinize(automaton)
    assert made is not None
    return made


def search(text: str) -> Automaton:
    return from_regex_tree(parse_regex(text), search=True)


def whole(text: str) -> Automaton:
    return from_regex_tree(parse_regex(text))


def assert_language(automaton: Automaton, test: Callable[[str], bool], texts: list[str]) -> None:
    expected = [text for text in texts if test(text)]
    made = dfa(automaton)
    assert [text for text in texts if automaton.accepts(text)] == expected
    assert [text for text in texts if made.accepts(text)] == expected
    assert [text for text in texts if made.minimize().accepts(text)] == expected


# -- sets of characters ----------------------------------------------------------------------


def test_negation_of_a_set_is_exact() -> None:
    assert negated(NONE) == ALL
    assert negated(ALL) == NONE
    assert negated(single("b")) == ((0, 97), (99, 0x10FFFF))
    assert negated(negated(char_set([(5, 9), (100, 200)]))) == ((5, 9), (100, 200))


def test_surrogates_are_in_no_set() -> None:
    assert char_set([(0xD800, 0xDFFF)]) == NONE
    assert char_set([(0, 0xD7FF), (0xE000, 0x10FFFF)]) == ALL
    assert negated(char_set([(0, 0xD7FF), (0xE000, 0x10FFFF)])) == NONE
    assert char_set([(0xD900, 0xE000)]) == ((0xE000, 0xE000),)
    assert only_member(char_set([(0xD7FF, 0xDABC)])) == "\ud7ff"


def test_neighboring_ranges_merge() -> None:
    assert char_set([(3, 4), (1, 2), (7, 9), (8, 8)]) == ((1, 4), (7, 9))


@pytest.mark.parametrize("character", ["a", "Z", "5", "ü", "σ", "ß", "Ǆ", "K"])
def test_case_variants_are_those_of_python(character: str) -> None:
    variants = ignoring_case(single(character))
    texts = [chr(code) for code in range(0x3000) if code != 0x130]
    expected = {text for text in texts if re.fullmatch(f"(?i){character}", text)}
    assert {text for text in texts if any(a <= ord(text) <= b for a, b in variants)} == expected


def test_ascii_case_leaves_other_letters_alone() -> None:
    assert ignoring_case(single("ü"), ascii_only=True) == single("ü")
    assert ignoring_case(single("k"), ascii_only=True) == ((75, 75), (107, 107))
    assert ignoring_case(ALL) == ALL


# -- languages by enumeration ----------------------------------------------------------------


@pytest.mark.spec("02/5.10")
@pytest.mark.parametrize("text", [*words("ab", 3), "abcab", "aabaa", "cc"])
def test_literal_prefix_suffix_and_substring(text: str) -> None:
    assert_language(literal(text), lambda s: s == text, WORDS)
    assert_language(prefix(text), lambda s: s.startswith(text), WORDS)
    assert_language(suffix(text), lambda s: s.endswith(text), WORDS)
    assert_language(contains(text), lambda s: text in s, WORDS)


def like_reference(pattern: str) -> Callable[[str], bool]:
    parts = {"%": "(?s:.*)", "_": "(?s:.)"}
    compiled = re.compile("".join(parts.get(c, re.escape(c)) for c in pattern))
    return lambda text: compiled.fullmatch(text) is not None


@pytest.mark.parametrize("pattern", [*words("a%_", 4), "%ab%ba%", "a%b_c%", "%_%_%", "_ab%c"])
def test_like(pattern: str) -> None:
    texts = words("ab", 5) if pattern.count("c") == 0 else WORDS
    assert_language(like(pattern), like_reference(pattern), texts)


BOUNDS: list[str | None] = [None, *words("ab", 2), "aba", "abb", "bab"]


@pytest.mark.spec("02/5.10")
@pytest.mark.parametrize("low", BOUNDS)
def test_ranges_in_the_order_of_strings(low: str | None) -> None:
    texts = words("abc", 4)
    for high in BOUNDS:
        for low_open, high_open in itertools.product([False, True], repeat=2):

            def inside(
                text: str, high: str | None = high, lo: bool = low_open, ho: bool = high_open
            ) -> bool:
                above = low is None or text > low or (text == low and not lo)
                below = high is None or text < high or (text == high and not ho)
                return above and below

            assert_language(between(low, low_open, high, high_open), inside, texts)


@given(st.text(max_size=3), st.text(max_size=3), st.text(max_size=4), st.booleans(), st.booleans())
def test_ranges_over_all_of_unicode(
    low: str, high: str, text: str, low_open: bool, high_open: bool
) -> None:
    above = text > low or (text == low and not low_open)
    below = text < high or (text == high and not high_open)
    assert between(low, low_open, high, high_open).accepts(text) == (above and below)


REGEXES = [
    "",
    "a",
    "ab|ba",
    "a*",
    "(ab)*c",
    "^a",
    "c$",
    "^a|b$",
    "(^a|b)c",
    "a(b$|c)",
    "^(a|b)*$",
    "^$",
    "$^",
    "a^b",
    "a$b",
    "(^|a)b(c|$)",
    "(a|^)(b|$)",
    "^^ab$$",
    r"\Aab|ca\Z",
    "(a*^)b",
    "b($a*)",
    "(^a)*b",
    "(^a)+b$",
    "(b$)*",
    "[^a]b",
    "[a-b]{2,3}",
    "a{2}",
    "a{2,}?b",
    "a{,2}c",
    "(?:a|b)c*?",
    "(?P<name>a)b",
    "a??b",
    "(a|ab)(c|bcd)",
    "(?i)AB",
    "(?i:A)b",
    "(?s)a.b",
    "a.c",
    "()",
    "(|a)b",
    r"\w\w\wb",
    r"[^\d\s]c",
    "((a|b)(a|c)){2}$",
    "a|b|^c",
    "^(?:a?){3}a{3}$",
    "(?s)^.*ab.*$",
]


@pytest.mark.parametrize("text", REGEXES)
def test_regular_expressions_search_and_match_as_python_does(text: str) -> None:
    compiled = re.compile(text)
    assert_language(search(text), lambda s: compiled.search(s) is not None, WORDS)
    assert_language(whole(text), lambda s: compiled.fullmatch(s) is not None, WORDS)


def regex_texts() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "^", "$", "(?i:B)", r"\n", ""])

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        group = inner.map(lambda part: f"(?:{part})")
        counts = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{0,1}", "{2,}", "{0}"])
        return st.one_of(
            st.tuples(group, group).map("".join),
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
            st.tuples(group, counts).map("".join),
        )

    return st.recursive(atoms, extend, max_leaves=8).map(lambda text: f"(?:{text})")


TEXTS = [*words("abc", 4), "a\nb", "\n", "B", "abB", "\na", "a\n", "cB\n\na"]


@settings(max_examples=120, deadline=None)
@given(regex_texts(), st.booleans())
def test_generated_regular_expressions_agree_with_python(text: str, dot_all: bool) -> None:
    text = f"(?s){text}" if dot_all else text
    # Python's $ also matches before a final newline; ours, like its \Z, does not.
    reference = re.compile(text.replace("$", r"\Z"))
    found, matched = search(text), whole(text)
    for string in TEXTS:
        assert found.accepts(string) == (reference.search(string) is not None), string
        assert matched.accepts(string) == (reference.fullmatch(string) is not None), string


# -- Boolean operations and decisions ----------------------------------------------------------

SAMPLES = [
    nothing(),
    anything(),
    literal(""),
    literal("ab"),
    prefix("a"),
    prefix("ab"),
    suffix("a"),
    suffix("ba"),
    contains("b"),
    contains("ab"),
    like("a%b_"),
    between("a", False, "b", True),
    between("ab", True, None, False),
    search("^(a|b)*$"),
    search("^(ab)+|c$"),
]


@pytest.mark.spec("02/P2", "02/P4", "02/P6")
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_operations_agree_with_enumeration(number: int) -> None:
    # Length 5 tells all these languages apart: no product here has a longer shortest witness.
    left = dfa(SAMPLES[number])
    accepted = {text for text in WORDS if left.accepts(text)}
    assert {text for text in WORDS if left.complement().accepts(text)} == set(WORDS) - accepted
    for sample in SAMPLES:
        right = dfa(sample)
        others = {text for text in WORDS if right.accepts(text)}
        both, either = left.intersection(right), left.union(right)
        assert both is not None
        assert either is not None
        assert {text for text in WORDS if both.accepts(text)} == accepted & others
        assert {text for text in WORDS if either.accepts(text)} == accepted | others
        assert left.intersects(right) == (not both.is_empty()) == bool(accepted & others)
        difference = right.intersection(left.complement())
        assert difference is not None
        assert left.includes(right) == difference.is_empty()
        if left.includes(right):
            assert others <= accepted
        else:
            witness = difference.example()
            assert witness is not None
            assert right.accepts(witness)
            assert not left.accepts(witness)


@pytest.mark.spec("02/P3")
def test_canonical_values_are_equal_exactly_for_equal_languages() -> None:
    automata_of = [dfa(sample) for sample in [*SAMPLES, search("b"), like("ab%"), whole("a*b?")]]
    for left, right in itertools.product(automata_of, repeat=2):
        same = bool(left.includes(right)) and bool(right.includes(left))
        assert (left.canonical() == right.canonical()) == same
        if same:
            assert hash(left.canonical()) == hash(right.canonical())


@settings(max_examples=36, deadline=None)
@given(regex_texts(), regex_texts())
def test_decisions_about_generated_languages_are_consistent(one: str, two: str) -> None:
    left, right = dfa(search(one)), dfa(search(two))
    for made in (left, right):
        smallest = made.minimize()
        assert len(smallest) <= len(made)
        assert smallest.canonical() == made.canonical()
        assert made.complement().complement() == made
    both, either = left.intersection(right), left.union(right)
    assert both is not None
    assert either is not None
    # De Morgan, absorption, and inclusion by two other ways
    dual = left.complement().union(right.complement())
    assert dual is not None
    assert dual.complement().canonical() == both.canonical()
    includes = left.includes(right)
    assert includes == (both.canonical() == right.canonical())
    assert includes == (either.canonical() == left.canonical())
    assert left.intersects(right) == (both.example() is not None)
    for text in TEXTS:
        assert both.accepts(text) == (left.accepts(text) and right.accepts(text))


def test_minimal_automata_have_the_known_number_of_states() -> None:
    assert len(dfa(contains("abc")).minimize()) == 4
    assert len(dfa(suffix("abab")).minimize()) == 5
    assert len(dfa(literal("abc")).minimize()) == 5  # with the state of failure
    assert len(dfa(whole("(?s)(a|b)*a(a|b){3}")).minimize()) == 2**4 + 1
    assert len(dfa(whole("a{0,50}|a{51,}")).minimize()) == 2


def test_minimal_automaton_has_no_needless_cuts() -> None:
    assert dfa(whole("[a-m]|[n-z]")).minimize().cuts == (0, ord("a"), ord("z") + 1)
    assert dfa(anything()).minimize().cuts == (0,)


def test_canonical_value_does_not_depend_on_how_a_language_is_written() -> None:
    one = dfa(search("^(a|b)*abb$"))
    two = dfa(search("^[ab]*?(?:ab{2})$"))
    three = dfa(whole("b*(a(a|ba)*bbb*)*")).intersection(dfa(suffix("abb")))
    assert three is not None
    assert one.canonical() == two.canonical()
    assert one.canonical() == three.canonical()


def test_states_of_substring_and_like_grow_linearly() -> None:
    assert len(dfa(contains("ab" * 50))) == 101
    assert len(dfa(like("%" + "%".join(["aab"] * 30) + "%"))) == 91


@pytest.mark.parametrize(
    ("automaton", "expected"),
    [
        (nothing(), None),
        (anything(), ""),
        (contains("x1"), "x1"),
        (like("_%_"), "aa"),
        (search("^[^a-z]$"), "0"),
        (between("b", True), "c"),
        (between("zz", True), "{"),
    ],
)
def test_example_is_a_shortest_accepted_string(automaton: Automaton, expected: str | None) -> None:
    assert dfa(automaton).example() == expected


def test_emptiness_and_universality() -> None:
    assert dfa(nothing()).is_empty()
    assert dfa(nothing()).complement().complement().is_empty()
    assert dfa(search("a^b")).is_empty()
    assert dfa(search("a*")).complement().is_empty()
    assert not dfa(suffix("a")).is_empty()
    assert not dfa(suffix("a")).complement().is_empty()
    # Everything that is a character: surrogates do not count as missing.
    assert dfa(whole(r"(?s)[\u0000-\ud7ff\ue000-\U0010ffff]*")).complement().is_empty()


# -- the specification's tables for strings ----------------------------------------------------

TESTS: dict[str, tuple[Callable[[str], Automaton], Callable[[str, str], bool]]] = {
    "PRE": (prefix, str.startswith),
    "SUF": (suffix, str.endswith),
    "SUB": (contains, str.__contains__),
}
CONSTANTS = words("ab", 3)


def covers(one: Automaton, two: Automaton) -> bool:
    answer = dfa(one).includes(dfa(two))
    assert answer is not None
    return answer


def overlaps(one: Automaton, two: Automaton) -> bool:
    answer = dfa(one).intersects(dfa(two))
    assert answer is not None
    return answer


def unequal(text: str) -> Dfa:
    return dfa(literal(text)).complement()


@pytest.mark.spec("02/3.4", "02/5.10")
@pytest.mark.parametrize("kind", TESTS)
def test_table_3_5_a_test_covers_the_same_test(kind: str) -> None:
    build, holds = TESTS[kind]
    for one, two in itertools.product(CONSTANTS, repeat=2):
        assert covers(build(one), build(two)) == holds(two, one)


@pytest.mark.spec("02/3.4", "02/5.10")
def test_table_3_5_substring_covers_prefix_and_suffix() -> None:
    for one, two in itertools.product(CONSTANTS, repeat=2):
        assert covers(contains(one), prefix(two)) == (one in two)
        assert covers(contains(one), suffix(two)) == (one in two)


@pytest.mark.spec("02/3.4", "02/5.10")
def test_table_3_5_different_tests_cover_only_if_trivial() -> None:
    for one, two in itertools.product(SHORT, repeat=2):
        for narrow in (suffix, contains):
            assert covers(prefix(one), narrow(two)) == (one == "")
        for narrow in (prefix, contains):
            assert covers(suffix(one), narrow(two)) == (one == "")


@pytest.mark.spec("02/3.4", "02/5.10")
@pytest.mark.parametrize("kind", TESTS)
def test_table_3_5_tests_against_equality_and_inequality(kind: str) -> None:
    build, holds = TESTS[kind]
    for one, two in itertools.product(SHORT, repeat=2):
        assert covers(build(one), literal(two)) == holds(two, one)
        assert dfa(build(one)).includes(unequal(two)) == (one == "")
        assert unequal(one).includes(dfa(build(two))) == (not holds(one, two))


@pytest.mark.spec("02/3.4", "02/5.10")
def test_table_3_5_order_against_prefix() -> None:
    for c, s in itertools.product(CONSTANTS, repeat=2):
        assert covers(between(c), prefix(s)) == (s >= c)
        assert covers(between(c, True), prefix(s)) == (s > c)
        below = c > s and not c.startswith(s)
        assert covers(between(None, False, c, True), prefix(s)) == below
        assert covers(between(None, False, c, False), prefix(s)) == below


@pytest.mark.spec("02/3.4", "02/5.10")
def test_table_3_5_prefix_against_closed_interval() -> None:
    for s in SHORT:
        for low, high in itertools.combinations_with_replacement(sorted(CONSTANTS), 2):
            expected = low.startswith(s) and high.startswith(s)
            assert covers(prefix(s), between(low, False, high, False)) == expected


@pytest.mark.spec("02/3.5")
def test_overlap_of_prefixes_and_of_suffixes() -> None:
    for s, t in itertools.product(CONSTANTS, repeat=2):
        assert overlaps(prefix(s), prefix(t)) == (s.startswith(t) or t.startswith(s))
        assert overlaps(suffix(s), suffix(t)) == (s.endswith(t) or t.endswith(s))


@pytest.mark.spec("02/3.5")
def test_overlap_of_different_tests_is_certain() -> None:
    for s, t in itertools.product(SHORT, repeat=2):
        assert overlaps(prefix(s), suffix(t))
        for build in (prefix, suffix, contains):
            assert overlaps(contains(s), build(t))
            assert unequal(s).intersects(dfa(build(t)))


# -- limits --------------------------------------------------------------------------------------

EXPONENTIAL = "(?s)^.*a.{20}$"  # its smallest deterministic automaton has two million states


def test_determinization_gives_up_within_its_budget() -> None:
    assert determinize(search(EXPONENTIAL)) is None
    assert determinize(search("(?s)^.*a.{5}$"), limit=10) is None
    assert determinize(search("(?s)^.*a.{5}$"), limit=100) is not None


def test_many_classes_count_against_the_budget() -> None:
    text = "".join(chr(0x4E00 + 2 * i) for i in range(400))
    assert determinize(contains(text)) is None


def test_large_states_count_against_the_budget() -> None:
    assert determinize(search("(?s)^.*a(?:[ab]{1,900})c$")) is None


def test_products_give_up_within_their_budget() -> None:
    left, right = dfa(whole("(a{7})*")), dfa(whole("(a{11})*"))
    assert left.intersection(right, limit=20) is None
    assert left.union(right, limit=20) is None
    assert left.includes(right, limit=5) is None
    assert left.complement().intersects(right.complement(), limit=5) is True
    assert dfa(whole("(a{7})+")).intersects(dfa(whole("(a{11})+")), limit=20) is None
    both = left.intersection(right)
    assert both is not None
    assert both.canonical() == dfa(whole("(a{77})*")).canonical()


def test_sinks_keep_products_small() -> None:
    one, two = dfa(prefix("abcdef")), dfa(contains("x" * 50))
    both = dfa(prefix("q" * 40)).intersection(one)
    either = two.union(dfa(anything()))
    assert both is not None
    assert either is not None
    assert (len(both), len(either)) == (1 + 1, 1)


def kept_states(automaton: Automaton) -> int:
    return len(automaton._cache.states) if automaton._cache else 0


@pytest.mark.parametrize("text", ["(a+)+$", "^(a+)+$", "^(a|aa)+$", "^(a*)*$", "(a|a?)+b$"])
def test_no_expression_backtracks(text: str) -> None:
    automaton = search(text)
    # "!" is outside all these languages except where only an ending is asked for.
    assert not automaton.accepts("a" * 10_000 + "!")
    assert kept_states(automaton) <= 10


def test_a_text_makes_few_states_and_only_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    original = Automaton._step

    def counting(self: Automaton, *args: object) -> object:
        nonlocal steps
        steps += 1
        return original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Automaton, "_step", counting)
    automaton, text = search(EXPONENTIAL), "ab" * 5_000 + "a" + "b" * 20
    assert automaton.accepts(text)
    assert 20 < steps < 100  # of the two million states, those along this text
    steps = 0
    assert automaton.accepts(text)
    assert steps == 0
    assert not search("^(a+)+$").accepts("a" * 10_000 + "!" + "a" * 10_000)
    assert steps < 10


def test_states_kept_are_bounded_and_answers_survive_the_clearing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nfa_module, "CACHE_WEIGHT", 200)
    automaton = search("(?s)^.*a.{8}$")
    for text in words("ab", 9):
        assert automaton.accepts(text) == (len(text) == 9 and text[0] == "a")
        assert kept_states(automaton) <= 200 // 8 + 1


@pytest.mark.parametrize("text", [t for t in REGEXES if not t.startswith("^^")])
def test_size_is_known_before_anything_is_built(text: str) -> None:
    tree = parse_regex(text)
    assert len(from_regex_tree(tree)) <= size(tree) + 1  # and the final node
    if "{" in text and "?" not in text:
        assert len(from_regex_tree(tree)) == size(tree) + 1


def test_public_names_exist() -> None:
    assert all(hasattr(automata, name) for name in automata.__all__)


# -- subjects, as regular expressions ------------------------------------------------------------


@pytest.mark.spec("07/E-01", "R-07.05")
def test_rendezvous_subjects() -> None:
    element = r"[^.]+"
    one = search(rf"^stocks\.technology\.{element}$")
    more = search(rf"^stocks\.technology(\.{element})+$")
    assert one.accepts("stocks.technology.foo")
    assert not one.accepts("stocks.technology.software.bar")
    assert more.accepts("stocks.technology.foo")
    assert more.accepts("stocks.technology.software.bar")
    assert not more.accepts("stocks.technology")
    assert covers(more, one)
    assert not covers(one, more)


@pytest.mark.spec("07/E-02", "R-07.05")
def test_mqps_subjects() -> None:
    one, any_run = search("(?s)^a/./c$"), search("(?s)^a.*c$")
    assert one.accepts("a/b/c")
    assert not one.accepts("a/bb/c")
    assert any_run.accepts("a/b/c")
    assert covers(any_run, one)


@pytest.mark.spec("07/E-03", "R-07.05")
def test_swiftmq_subscription_reaches_ancestors_and_descendants() -> None:
    subscription = search(r"^(iit|iit\.sales(\.[^.]+)*)$")
    for subject in ("iit", "iit.sales", "iit.sales.US", "iit.sales.EU"):
        assert subscription.accepts(subject)
    assert not subscription.accepts("iit.projects")
    assert not overlaps(subscription, search(r"^iit\.projects(\.[^.]+)*$"))


@pytest.mark.spec("07/E-04", "R-07.05")
def test_swiftmq_wildcards() -> None:
    pattern = like("iit.s%s._S")
    assert pattern.accepts("iit.sales.US")
    assert not pattern.accepts("iit.sales.EU")
