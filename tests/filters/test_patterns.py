"""Pattern values: construction, normal forms, matching, and what an index can use of them."""

from __future__ import annotations

import itertools
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import UnsupportedPattern
from stentor.filters.automata import determinize
from stentor.filters.patterns import (
    Anything,
    Exactly,
    Pattern,
    Plain,
    StartsWith,
    contains,
    like,
    regex,
    suffix,
)


def words(alphabet: str, longest: int) -> list[str]:
    return [
        "".join(letters)
        for length in range(longest + 1)
        for letters in itertools.product(alphabet, repeat=length)
    ]


def matches(plain: Plain, text: str) -> bool:
    match plain:
        case Anything():
            return True
        case Exactly(exact):
            return text == exact
        case StartsWith(start):
            return text.startswith(start)
        case Pattern():
            return plain.matches(text)


def pattern(plain: Plain) -> Pattern:
    assert isinstance(plain, Pattern)
    return plain


# -- the plainest form -----------------------------------------------------------------------


@pytest.mark.spec("02/3.4")
def test_empty_texts_are_no_condition() -> None:
    assert suffix("") == contains("") == like("%") == regex("") == Anything()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Exactly("")),
        ("abc", Exactly("abc")),
        ("IB%", StartsWith("IB")),
        ("%x", Pattern("suffix", "x")),
        ("%x%", Pattern("contains", "x")),
        ("%%%", Anything()),
        ("IB%%", StartsWith("IB")),
        ("a%b", Pattern("like", "a%b")),
        ("%_%_", Pattern("like", "__%")),
        ("a_%_b%", Pattern("like", "a__%b%")),
        ("_", Pattern("like", "_")),
        (r"a\%", StartsWith("a\\")),  # without an escape character a backslash is itself
        (r"\_%x", Pattern("like", r"\\_%x")),
    ],
)
def test_plainest_form_of_like(text: str, expected: Plain) -> None:
    assert like(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc", Pattern("contains", "abc")),
        ("^abc", StartsWith("abc")),
        ("^abc$", Exactly("abc")),
        (r"\Aabc\Z", Exactly("abc")),
        ("abc$", Pattern("suffix", "abc")),
        ("^", Anything()),
        ("^$", Exactly("")),
        ("a*", Anything()),
        ("x*abc(y|z)*", Pattern("contains", "abc")),
        ("(a+)+$", Pattern("suffix", "a")),
        ("^ab{3}c$", Exactly("abbbc")),
        (r"^(a)(?:\.b)", StartsWith("a.b")),
        ("(?s)^a.c$", Pattern("like", "a_c")),
        ("(?s)a.*b", Pattern("like", "%a%b%")),
        ("(?s)^.*ab", Pattern("contains", "ab")),
        (r"(?s)50%.\\", Pattern("like", r"%50\%_\\%")),
        ("^.*ab", Pattern("regex", "^.*ab")),  # the dot is no newline
        ("ab|cd", Pattern("regex", "ab|cd")),
        ("^a|b$", Pattern("regex", "^a|b$")),
        ("(?i)a", Pattern("regex", "(?i)a")),
        ("(?i)^12$", Exactly("12")),
    ],
)
def test_plainest_form_of_regular_expressions(text: str, expected: Plain) -> None:
    assert regex(text) == expected


@given(st.text(alphabet="ab%_\\!", max_size=8), st.sampled_from(["\\", "!", "#", "a", "%", "_"]))
def test_escape_characters_do_not_change_what_a_pattern_is(text: str, escape: str) -> None:
    # Write the pattern, in which a backslash escapes, with another escape character.
    items = re.findall(r"\\[%_\\]|[^\\]", text, re.DOTALL)

    def written(item: str) -> str:
        if item[0] == "\\":
            literal = item[1]
            return escape + literal if literal in ("%", "_", escape) else literal
        if item in ("%", "_"):
            return item
        return escape + item if item == escape else item

    if escape in ("%", "_"):  # the wildcard itself cannot be written any more
        items = [item for item in items if item != escape]
    normal = like("".join(items), escape="\\")
    assert like("".join(map(written, items)), escape=escape) == normal
    if isinstance(normal, Pattern) and normal.kind == "like":
        assert like(normal.literal, escape=normal.escape) == normal


@pytest.mark.parametrize(
    ("text", "escape", "message"),
    [
        ("abc!", "!", "position 3 must be followed by"),
        ("a!bc", "!", "position 1 must be followed by"),
        ("abc", "", "one character"),
        ("abc", "!!", "one character"),
        ("%a" * 5_001, None, "longer than 10,000"),
        ("a\ud800", None, "surrogate pair at position 1"),
    ],
)
def test_like_patterns_that_are_refused(text: str, escape: str | None, message: str) -> None:
    with pytest.raises(UnsupportedPattern, match=message):
        like(text, escape)


def test_half_a_surrogate_pair_is_refused_everywhere() -> None:
    for build in (suffix, contains, regex):
        with pytest.raises(UnsupportedPattern, match="surrogate"):
            build("\udc00")
    with pytest.raises(UnsupportedPattern, match="surrogate"):
        regex(r"\ud800")


# -- the dialect -------------------------------------------------------------------------------


@pytest.mark.spec("R-02.19")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"(a)b\1", "backreference at position 4"),
        ("(?P<n>a)(?P=n)", "backreference at position 8"),
        ("ab(?=c)", "lookaround at position 2"),
        ("ab(?!c)", "lookaround at position 2"),
        ("(?<=a)b", "lookaround at position 0"),
        ("(?<!a)b", "lookaround at position 0"),
        (r"foo\b", "word boundary at position 3"),
        (r"\Bfoo", "word boundary at position 0"),
        ("a(?>b)", "atomic group at position 1"),
        ("ba++", "possessive repetition at position 2"),
        ("a{2,3}+", "possessive repetition at position 1"),
        ("(a)(?(1)b|c)", "conditional group at position 3"),
        ("(?m)^a", "flag other than i, s and a at position 0"),
        ("(?x) a", "flag other than i, s and a at position 0"),
        ("b(?im:a)", "flag other than i, s and a at position 1"),
        ("x[[:alpha:]]", "POSIX class at position 1"),
        ("[a&&b]", "set operation"),
        ("(a", "not a regular expression: .* at position 0"),
        ("a**", "not a regular expression: multiple repeat at position 2"),
        ("[b-a]", "not a regular expression: bad character range"),
        ("*a", "not a regular expression: nothing to repeat"),
        ("(" * 101 + ")" * 101, "nested deeper than 100 at position 100"),
        ("(a{1000}){1000}", "more than 2,000 states"),
        ("(((a{99}){99}){99}){99}", "more than 2,000 states"),
        ("(){4000000000}", "more than 2,000 states"),
        ("a{99999999999}", "not a regular expression"),
        ("a{" + "9" * 9_000 + "}", "not a regular expression"),
        ("a" * 10_001, "longer than 10,000"),
        ("[" * 10_000, "set operation"),
        ("(?" + "i" * 9_990, "not a regular expression"),
    ],
)
def test_unsupported_expressions_say_what_and_where(text: str, message: str) -> None:
    with pytest.raises(UnsupportedPattern, match=message):
        regex(text)


@pytest.mark.parametrize(
    "text", [r"[\b]", r"\\b", r"[(?=]", r"\(?=", r"a\++", "(?#(?=)x", r"\101x"]
)
def test_look_alikes_of_unsupported_constructs_are_accepted(text: str) -> None:
    made = regex(text)
    compiled = re.compile(text)
    for sample in ["", "\b", "\\b", "a", "(=", "(", "=", "a++", "a+", "x", "Ax", "?"]:
        assert matches(made, sample) == (compiled.search(sample) is not None)


def test_dollar_is_the_end_of_the_text_only() -> None:
    made = pattern(regex("abc$"))
    assert made.matches("abc")
    assert not made.matches("abc\n")
    assert not matches(regex("^abc$"), "abc\n")
    assert not matches(regex("(a|b)c$"), "ac\n")


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        (r"^\d$", "5", "\u0665"),  # an Arabic-Indic digit
        (r"^\w$", "_", "ü"),
        (r"^\s$", "\t", "\u00a0"),
        (r"^\D$", "\u0665", "5"),
        (r"^\W$", "ü", "w"),
        (r"^\S$", "\u00a0", "\v"),
        ("(?i)^ü$", "Ü", "u"),
        ("(?i)^stra[S]e$", "STRASE", "strae"),
        ("(?i)^[^a]$", "b", "A"),
        ("(?ia)^ü$", "ü", "Ü"),
        ("^(?i:a)b$", "Ab", "AB"),
        ("(?i)^(?-i:a)b$", "aB", "AB"),
        ("^a.b$", "a\u2028b", "a\nb"),
        ("(?s)^a.[b]$", "a\nb", "ab"),
        ("^(?s:.).[a]$", "\nxa", "x\na"),
        (r"^[\w-]+@[a-z]+\.com$", "a-b@c.com", "a b@c.com"),
    ],
)
def test_classes_and_flags(text: str, yes: str, no: str) -> None:
    made = regex(text)
    assert matches(made, yes)
    assert not matches(made, no)


# -- matching ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [t for t in words("ab%_", 4) if t.count("%") + t.count("_") <= 3])
def test_like_by_enumeration(text: str) -> None:
    made = like(text)
    parts = {"%": "(?s:.*)", "_": "(?s:.)"}
    compiled = re.compile("".join(parts.get(c, c) for c in text))
    for string in words("ab", 5):
        expected = compiled.fullmatch(string) is not None
        assert matches(made, string) == expected
        if isinstance(made, Pattern):
            assert made.automaton.accepts(string) == expected


@pytest.mark.parametrize("text", words("ab", 3)[1:])
def test_suffix_and_substring_by_enumeration(text: str) -> None:
    ends, holds = pattern(suffix(text)), pattern(contains(text))
    for string in words("abc", 5):
        assert ends.matches(string) == ends.automaton.accepts(string) == string.endswith(text)
        assert holds.matches(string) == holds.automaton.accepts(string) == (text in string)


@pytest.mark.parametrize(
    "text", ["a|b", "^a*$", "a|^$", "(ab|c)+$", "^(a|b)?c", "a.?c", "a[bc]{2}", "^[^c]*$", "c$|^b"]
)
def test_regular_expressions_by_enumeration(text: str) -> None:
    made = regex(text)
    for string in words("abc", 6):
        assert matches(made, string) == (re.search(text, string) is not None)


@pytest.mark.spec("07/E-09")
def test_like_of_message_selectors() -> None:
    phone = pattern(like("12%3"))
    assert phone.matches("123")
    assert phone.matches("12993")
    assert not phone.matches("1234")


def test_segments_may_not_overlap() -> None:
    assert not pattern(like("ab%bc")).matches("abc")
    assert pattern(like("ab%bc")).matches("abbc")
    assert not pattern(like("a%a%a")).matches("aa")


def test_pattern_built_directly_matches_too() -> None:
    assert Pattern("like", r"a\%").matches("a%")
    assert Pattern("regex", "abc").matches("xabcx")
    with pytest.raises(UnsupportedPattern, match="no pattern kind 'glob'"):
        Pattern("glob", "*")


# -- values and facts ------------------------------------------------------------------------


def test_patterns_are_values() -> None:
    one, two = pattern(like("a_c%", None)), pattern(like("a_c%%", "!"))
    assert one.matches("abc")  # which fills its caches
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two, pattern(contains("a"))}) == 2
    assert one.automaton is one.automaton
    copied = pickle.loads(pickle.dumps(one))
    assert copied == one
    assert vars(copied) == {"kind": "like", "text": "a_c%"}


def test_text_to_print() -> None:
    escaped = pattern(like("100!%_%", "!"))
    assert (escaped.literal, escaped.escape) == (r"100\%_%", "\\")
    plain = pattern(like("a%b"))
    assert (plain.literal, plain.escape) == ("a%b", None)
    assert pattern(regex(r"\d")).escape is None


@pytest.mark.parametrize(
    ("made", "prefix", "required"),
    [
        (suffix(".com"), "", (".com",)),
        (contains("abc"), "", ("abc",)),
        (like("ab%cd_e%"), "ab", ("ab", "cd", "e")),
        (like("%a%abc%b%"), "", ("abc",)),
        (like(r"x!%%y", "!"), "x%", ("x%", "y")),
        (regex("^ab[cd]"), "ab", ("ab",)),
        (regex("^(abc|abd)x"), "ab", ("ab", "x")),
        (regex("^(ab|ac)+$"), "a", ("a",)),
        (regex("^(abc)+$"), "abc", ("abc",)),
        (regex("^(abc)*x$"), "", ("x",)),
        (regex("^(foo.bar|x*bar)$"), "", ("bar",)),
        (regex("error.*code [0-9]+"), "", ("error", "code ")),
        (regex("a|b"), "", ()),
        (regex("^aa*$"), "a", ("a",)),
        (regex("^(a|a?b)c"), "", ("c",)),
    ],
)
def test_facts_for_an_index(made: Plain, prefix: str, required: tuple[str, ...]) -> None:
    assert pattern(made).literal_prefix == prefix
    assert pattern(made).required == required


@given(
    st.text(alphabet="abc|*+?()^$.[]", max_size=10),
    st.lists(st.text(alphabet="abc", max_size=7), max_size=20),
)
def test_facts_hold_for_everything_accepted(text: str, strings: list[str]) -> None:
    try:
        made = regex(text)
    except UnsupportedPattern:
        return
    if not isinstance(made, Pattern):
        return
    made_dfa = determinize(made.automaton)
    assert made_dfa is not None
    example = made_dfa.example()
    for string in [*strings, *([] if example is None else [example])]:
        if made.matches(string):
            assert string.startswith(made.literal_prefix)
            assert all(part in string for part in made.required)


@given(
    st.text(alphabet="abc|*+?()^$.[]{}12,-", max_size=12),
    st.lists(st.text(alphabet="abc", max_size=6), max_size=20),
)
def test_any_text_means_what_it_means_in_python_or_is_refused(
    text: str, strings: list[str]
) -> None:
    try:
        made = regex(text)
    except UnsupportedPattern:
        return  # any other error would fail the test
    compiled = re.compile(text)
    for string in strings:
        assert matches(made, string) == (compiled.search(string) is not None)
