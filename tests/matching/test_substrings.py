"""Texts within strings: all that a string contains are found, whatever they stand beside."""

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor import Filter
from stentor.matching import Index
from stentor.matching.index.plan import PART_LIMIT
from stentor.matching.index.substrings import Substrings

#: Few letters, so that texts overlap, begin and end like each other: also beyond 16 bits.
ALPHABETS = ("ab", "abc", "aé😀", "\0a\U0010ffff")
randoms = st.integers(0, 2**32 - 1).map(Random)


def some_text(random: Random, alphabet: str, least: int, most: int) -> str:
    return "".join(random.choices(alphabet, k=random.randint(least, most)))


@settings(max_examples=120)
@given(randoms)
def test_all_texts_are_found_and_each_once(random: Random) -> None:
    alphabet = random.choice(ALPHABETS)
    longest = random.choice((2, 4, 70))
    texts = list(
        {some_text(random, alphabet, 1, longest) for _ in range(random.choice((1, 9, 99)))}
    )
    substrings = Substrings(texts)
    for _ in range(2):  # what one search leaves behind does not mislead the next
        strings = [
            None if random.random() < 0.1 else some_text(random, alphabet, 0, 100)
            for _ in range(random.choice((0, 1, 30)))
        ]
        counts, found = substrings.within_each(strings)
        each = iter(found.tolist())
        for string, count in zip(strings, counts.tolist(), strict=True):
            expected = [i for i, text in enumerate(texts) if string is not None and text in string]
            assert sorted(next(each) for _ in range(count)) == expected
        assert next(each, None) is None


def test_more_texts_than_there_is_room_for_at_first() -> None:
    texts = ["a" * n for n in range(1, 1_001)]
    counts, found = Substrings(texts).within_each(["a" * 1_000, "b", "a" * 999])
    assert counts.tolist() == [1_000, 0, 999]
    assert sorted(found[:1_000].tolist()) == list(range(1_000))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def random_filter(random: Random, alphabet: str) -> str:
    def text(most: int = 4) -> str:
        return quoted(some_text(random, alphabet, 0, most))

    def condition() -> str:
        name = random.choice("sst")
        return random.choice(
            (
                f"{name} contains {text()}",
                f"{name} contains {text()}",
                f"{name} contains {text()}",
                f"{name} contains {text(2 * PART_LIMIT)}",
                f"{name} not contains {text()}",
                f"{name} prefix {text(2)}",
                f"{name} suffix {text(2)}",
                f"{name} like '%{some_text(random, 'ab_%', 1, 4)}%'",
                f"{name} regex '(?i:{some_text(random, 'aAb.', 1, 3)})'",
                f"{name} != {text()}",
                f"x > {random.randrange(4)}",
                f"x = {random.randrange(4)}",
                f"x != {random.randrange(4)}",
                "t is missing",
            )
        )

    conjunctions = [
        " and ".join(condition() for _ in range(random.choice((1, 1, 2, 3))))
        for _ in range(random.choice((1, 1, 1, 2)))
    ]
    return " or ".join(f"({conjunction})" for conjunction in conjunctions)


@pytest.mark.spec("02/P1")
@settings(max_examples=30)
@given(randoms)
def test_contains_among_other_conditions_equals_brute_force(random: Random) -> None:
    alphabet = random.choice(ALPHABETS)
    held = {i: Filter(random_filter(random, alphabet)) for i in range(random.choice((12, 120)))}
    index = Index(held.items(), background=False)
    index.compact()
    for key in random.sample(sorted(held), len(held) // 4):
        index.remove(key)
        del held[key]
    events = [
        {
            "s": some_text(random, alphabet, 0, 9),
            "t": random.choice((None, 3, some_text(random, alphabet, 0, 200))),
            "x": random.randrange(4),
        }
        for _ in range(8)
    ]
    expected = sorted((i, k) for i, e in enumerate(events) for k, f in held.items() if f.matches(e))
    for batch in (events, [{**event, "t": None} for event in events]):
        if batch is not events:
            expected = sorted(
                (i, k) for i, e in enumerate(batch) for k, f in held.items() if f.matches(e)
            )
            columns = {n: pa.array([event[n] for event in batch]) for n in ("s", "x")}
            encoded = {**columns, "s": columns["s"].dictionary_encode()}
            for table in (columns, encoded):
                rows, keys = index.match_batch(pa.record_batch(table))
                assert sorted(zip(rows.tolist(), keys.tolist(), strict=True)) == expected
        rows, keys = index.match_batch(batch)
        assert sorted(zip(rows.tolist(), keys.tolist(), strict=True)) == expected
        assert sorted((i, k) for i, e in enumerate(batch) for k in index.match(e)) == expected
