"""The benchmarks' workloads: known totals, and the index against brute force on each of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from stentor import Filter
from stentor.matching import Index
from stentor.matching.brute import BruteForce
from stentor.matching.counting import Counting
from workloads import KNOWN_MATCHES, SHAPES, Workload, blend, stock
from yardstick import Yardstick

Pairs = set[tuple[int, int]]


def parsed(workload: Workload) -> list[Filter]:
    return [Filter(text) for text in workload.texts()]


def pairs(rows: object, keys: object) -> Pairs:
    """Matches as a set; each must have been reported once."""
    found = list(zip(rows.tolist(), keys.tolist(), strict=True))
    assert len(found) == len(set(found))
    return set(found)


def check_against_brute_force(workload: Workload) -> Pairs:
    filters = parsed(workload)
    brute, counting = BruteForce(), Counting()
    index = Index(enumerate(filters))
    for key, filter_ in enumerate(filters):
        brute.add(key, filter_)
        counting.add(key, filter_)
    expected = pairs(*brute.match_batch(workload.events))
    assert pairs(*counting.match_batch(workload.events)) == expected
    assert pairs(*index.match_batch(workload.events)) == expected
    index.compact()
    assert pairs(*index.match_batch(workload.batch)) == expected
    one_by_one = [(row, key) for row, e in enumerate(workload.events) for key in index.match(e)]
    assert sorted(one_by_one) == sorted(expected)
    return expected


@pytest.mark.spec("02/5.12", "02/P1")
@pytest.mark.parametrize("filters", [1_000, 10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_stock_gives_the_known_number_of_matches(filters: int) -> None:
    workload = stock(filters)
    index = Index(enumerate(parsed(workload)))
    index.compact()
    rows, keys = index.match_batch(workload.batch)
    assert len(rows) == len(keys) == KNOWN_MATCHES[filters]
    assert len(pairs(rows, keys)) == KNOWN_MATCHES[filters]


@pytest.mark.spec("02/5.12")
def test_the_yardstick_finds_the_same_matches_as_the_index() -> None:
    workload = stock(2_000, 5_000)
    index = Index(enumerate(parsed(workload)))
    found = pairs(*index.match_batch(workload.batch))
    assert len(found) > 1_000
    assert pairs(*Yardstick(workload.constraints).match_batch(workload.batch)) == found


@pytest.mark.spec("02/P1")
def test_stock_in_every_engine() -> None:
    assert check_against_brute_force(stock(300, 60))


@pytest.mark.spec("02/P1")
@pytest.mark.parametrize("name", SHAPES)
def test_each_workload_in_every_engine(name: str) -> None:
    # An empty answer would agree with anything: each workload does have matches.
    assert check_against_brute_force(SHAPES[name](120, 80))


@pytest.mark.spec("02/5.12", "02/P1")
@pytest.mark.parametrize(("equality", "sharing"), [(0.0, 0.0), (0.5, 0.95), (1.0, 0.0)])
def test_each_mix_in_every_engine(equality: float, sharing: float) -> None:
    check_against_brute_force(blend(150, 60, equality=equality, sharing=sharing))


@pytest.mark.spec("02/5.12")
def test_sharing_leaves_fewer_distinct_tests() -> None:
    def distinct(sharing: float) -> int:
        mix = blend(300, 0, equality=0.5, sharing=sharing)
        return len({str(test) for constraints in mix.constraints for test in constraints})

    assert distinct(0.95) < distinct(0.5) < distinct(0.0)


@pytest.mark.parametrize("make", [stock, *SHAPES.values()])
def test_workloads_are_the_same_every_time(make: object) -> None:
    assert make(20, 10) == make(20, 10)


def test_more_events_do_not_change_the_filters_or_the_first_events() -> None:
    few, many = stock(50, 10), stock(50, 40)
    assert many.constraints == few.constraints
    assert many.events[:10] == few.events
    with pytest.raises(ValueError, match="only 100000 events are drawn"):
        stock(1, 100_001)
