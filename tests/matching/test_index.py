"""The production index: equal to brute force, whatever is held, removed, compiled or published."""

import gc
import pickle
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import events, filter_of, filter_texts

import stentor.matching.index.index as index_module
import stentor.matching.index.search as search_module
import stentor.matching.index.table as table_module
from stentor import Filter, Notification
from stentor.errors import DuplicateKey, InvalidValue, UnknownKey, UnsupportedColumn
from stentor.filters import Operator, register_operator
from stentor.matching import Index
from stentor.model import decode_headers, encode
from stentor.model.values import ValueType, register_value_type


def pairs(index: Index[Any], batch: Any) -> list[tuple[int, Any]]:
    rows, keys = index.match_batch(batch)
    assert np.all(rows[1:] >= rows[:-1]), "matches come ordered by row"
    found = list(zip(rows.tolist(), keys.tolist(), strict=True))
    assert len(set(found)) == len(found), "a filter matches a notification once"
    if isinstance(batch, list):
        by_key = index.match_by_key(batch)
        assert len({key for key, _ in by_key}) == len(by_key), "a key comes once"
        assert all(rows == sorted(set(rows)) for _, rows in by_key), "its rows come in order"
        assert sorted((row, key) for key, rows in by_key for row in rows) == sorted(found)
    return sorted(found)


def expected(held: dict[Any, Filter], batch: Sequence[Any]) -> list[tuple[int, Any]]:
    return sorted((row, k) for row, n in enumerate(batch) for k, f in held.items() if f.matches(n))


def index_of(*texts: str) -> Index[str]:
    return Index((text, Filter(text)) for text in texts)


@pytest.fixture(params=[1, 3, 64], ids=lambda common: f"common={common}")
def tiny_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a few filters, so that small examples reach every stage of an index."""
    monkeypatch.setattr(index_module, "GROWING_LIMIT", 8)
    monkeypatch.setattr(index_module, "TIER", 3)
    monkeypatch.setattr(index_module, "RECENT_LEAST", 5)
    monkeypatch.setattr(index_module, "ABSORBED", 3)
    monkeypatch.setattr(index_module, "SINGLY", 1)
    monkeypatch.setattr(index_module, "TESTS_LIMIT", 4)
    monkeypatch.setattr(index_module, "TESTS_PER_BOX", 4)
    monkeypatch.setattr(table_module, "COMMON", request.param)
    if request.param == 1:
        monkeypatch.setattr(search_module, "FEW_AXES", 0)


@pytest.mark.spec("02/P1", "02/P9", "R-02.18")
@pytest.mark.usefixtures("tiny_parts")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_equals_brute_force_through_all_its_stages(data: st.DataObject) -> None:
    index: Index[int] = Index(background=False)
    held: dict[int, Filter] = {}
    published = data.draw(st.lists(events, min_size=1, max_size=5))
    for number, text in enumerate(data.draw(st.lists(filter_texts(), max_size=30))):
        held[number] = filter_of(text)
        index.add(number, held[number])
        step = data.draw(st.sampled_from(("add", "add", "remove", "match", "batch", "compact")))
        if step == "remove":
            key = data.draw(st.sampled_from(sorted(held)))
            index.remove(key)
            del held[key]
        elif step == "match":
            one = data.draw(st.sampled_from(published))
            assert sorted(index.match(one)) == sorted(k for k, f in held.items() if f.matches(one))
        elif step == "batch":
            assert pairs(index, published) == expected(held, published)
        elif step == "compact":
            index.compact()
    assert pairs(index, published) == expected(held, published)
    index.compact()
    assert pairs(index, published) == expected(held, published)
    assert len(index) == len(held)


@pytest.mark.spec("02/P1")
@settings(max_examples=36)
@given(st.lists(filter_texts(), min_size=1, max_size=40), st.lists(events, min_size=1, max_size=8))
def test_one_segment_equals_brute_force(texts: list[str], published: list[dict[str, Any]]) -> None:
    held = {number: filter_of(text) for number, text in enumerate(texts)}
    index = Index(held.items())
    index.compact()
    assert pairs(index, published) == expected(held, published)
    for row, one in enumerate(published):
        assert sorted(index.match(one)) == [k for r, k in expected(held, published) if r == row]
    assert pairs(index, [Notification(n) for n in published if n and any(n.values())]) == expected(
        held, [n for n in published if n and any(n.values())]
    )


# -- trees of boxes


def boxes(rng: np.random.Generator, kind: str, count: int) -> list[str]:
    """Filters of one kind, enough of them for several levels of nodes."""

    def end() -> int:
        return int(rng.integers(0, 1_000))

    def interval(name: str) -> str:
        low, size = end(), int(2 ** rng.uniform(0, 10))
        return f"{name} between {low} and {low + size}"

    makers = {
        "interval": lambda: interval("x"),
        "two intervals": lambda: f"{interval('x')} and {interval('y')}",
        "corner": lambda: f"x > {end()} and y < {end()}",
        "hole": lambda: f"x not between {end()} and {end()}",
        "hole and interval": lambda: f"x != {end()} and {interval('y')}",
        "three": lambda: f"{interval('x')} and {interval('y')} and z >= {end()}",
        "equality": lambda: f"k = {end() % 7} and {interval('x')} and y <= {end()}",
        "equalities": lambda: f"k = {end() % 7} and z = {end() % 5} and x < {end()}",
        "only equalities": lambda: f"k = {end() % 7} and z = {end() % 5}",
        "mixed": lambda: rng.choice([interval("x"), f"x > {end()}", f"x < {end()}", "exists x"]),
    }
    return [str(makers[kind]()) for _ in range(count)]


@pytest.mark.spec("02/P1")
@pytest.mark.parametrize("dead", [0, 3], ids=["all alive", "every third removed"])
@pytest.mark.parametrize(
    "kind",
    [
        "interval",
        "two intervals",
        "corner",
        "hole",
        "hole and interval",
        "three",
        "equality",
        "equalities",
        "only equalities",
        "mixed",
    ],
)
def test_large_groups_equal_brute_force(kind: str, dead: int) -> None:
    rng = np.random.default_rng(len(kind))
    held = {number: Filter(text) for number, text in enumerate(boxes(rng, kind, 6_000))}
    index = Index(held.items())
    index.compact()
    for number in list(held)[:: dead or len(held)][: len(held) if dead else 0]:
        index.remove(number)
        del held[number]
    values = rng.integers(-5, 1_030, (12, 4))
    batch = [{"x": int(x), "y": int(y), "z": int(z) % 9, "k": int(k) % 9} for x, y, z, k in values]
    batch += [{"x": 5}, {"x": 700.5, "y": 3.25, "z": -1, "k": 2.0}, {"x": float("inf"), "y": 0}]
    assert pairs(index, batch) == expected(held, batch)


@pytest.mark.spec("02/P1")
@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(1, 400))
def test_many_rare_shapes_equal_brute_force(rng: Random, count: int) -> None:
    def condition(name: str) -> str:
        low = rng.randrange(50)
        return rng.choice(
            [
                f"{name} between {low} and {low + rng.randrange(40)}",
                f"{name} > {low}",
                f"{name} <= {low}",
                f"{name} = {low % 5}",
                f"{name} != {low}",
                f"exists {name}",
                f"{name} is missing",
            ]
        )

    names = [f"a{i}" for i in range(8)]
    held = {
        number: Filter(" and ".join(condition(n) for n in rng.sample(names, rng.randint(1, 4))))
        for number in range(count)
    }
    index = Index(held.items())
    index.compact()
    batch = [{n: rng.randrange(60) for n in names if rng.random() < 0.8} for _ in range(6)]
    assert pairs(index, batch) == expected(held, batch)


# -- record batches


@pytest.mark.spec("R-02.08")
def test_nulls_and_nans_are_absent_attributes() -> None:
    index = index_of("x > 1", "x != 7", "exists x", "x is missing", "s = 'a'", "not s = 'a'")
    batch = pa.record_batch({"x": [2.0, None, float("nan")], "s": ["a", None, "b"]})
    assert pairs(index, batch) == sorted(
        [
            *((0, text) for text in ("x > 1", "x != 7", "exists x", "s = 'a'")),
            (1, "x is missing"),
            *((2, text) for text in ("x is missing", "not s = 'a'")),
        ]
    )


ARROW_TYPES = [
    (pa.int8(), [1, 2, None]),
    (pa.uint64(), [1, 2, None]),
    (pa.float16(), [np.float16(1), np.float16(2), None]),
    (pa.float32(), [1, 2, None]),
    (pa.int64(), [1, 2**53 + 1, None]),
    (pa.bool_(), [True, False, None]),
    (pa.string(), ["a", "ab", None]),
    (pa.large_string(), ["a", "ab", None]),
    (pa.string_view(), ["a", "ab", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "ab", None]),
    (pa.dictionary(pa.int32(), pa.int64()), [1, 2, None]),
    (pa.binary(), [b"a", b"ab", None]),
    (pa.large_binary(), [b"a", b"ab", None]),
    (pa.binary(2), [b"aa", b"ab", None]),
    (pa.timestamp("ns"), [datetime(2026, 1, 1), datetime(2026, 1, 2), None]),
    (pa.timestamp("s", "Europe/Berlin"), [datetime(2026, 1, 1, tzinfo=UTC), None]),
    (pa.list_(pa.int64()), [[1, 2], [], None]),
    (pa.large_list(pa.string()), [["a", None], ["ab"], None]),
    (pa.list_(pa.float64(), 2), [[1, 2], [3, 4], None]),
    (pa.null(), [None, None]),
]
QUESTIONS = (
    "v = 1",
    "v >= 2",
    "v > 9007199254740992",
    "v != 1",
    "v = true",
    "v = 'a'",
    "v prefix 'a'",
    "v suffix 'b'",
    "v contains 'b'",
    "v = x'6161'",
    "v prefix x'61'",
    "v < time '2026-01-01T12:00:00Z'",
    "v has 1",
    "v has 'a'",
    "v overlaps (2, 'ab')",
    "v subset of (1, 2, 'a')",
    "exists v",
    "v is missing",
    "v is number",
    "v is not string",
    "some v > 1",
)


@pytest.mark.parametrize(("arrow_type", "values"), ARROW_TYPES, ids=lambda v: str(v)[:40])
def test_every_arrow_type_means_the_same_as_its_python_values(
    arrow_type: pa.DataType, values: list[Any]
) -> None:
    array = pa.array(values, arrow_type)
    held = {text: Filter(text) for text in QUESTIONS}
    rows = []
    for value in (
        array.cast(pa.timestamp("us", "UTC")).to_pylist()
        if pa.types.is_timestamp(arrow_type)
        else array.to_pylist()
    ):
        value = [v for v in value if v is not None] if isinstance(value, list) else value
        rows.append({} if value is None else {"v": value})
    index = Index(held.items())
    index.compact()
    assert pairs(index, pa.record_batch({"v": array})) == expected(held, rows)


@pytest.mark.spec("R-02.07")
def test_structs_are_nested_names_and_a_flat_column_comes_first() -> None:
    index = index_of("pos.x = 1", "a.b.c = 1", "exists pos", "pos.x is missing")
    batch = pa.table(
        {
            "pos": [{"x": 1, "y": 2}, {"x": None, "y": 2}, None],
            "a.b": [{"c": 1}, {"c": 2}, None],
        }
    )
    assert pairs(index, batch) == sorted(
        [(0, "pos.x = 1"), (0, "a.b.c = 1"), (1, "pos.x is missing"), (2, "pos.x is missing")]
    )


def test_a_column_may_mix_types() -> None:
    types = pa.array([0, 1, 0], pa.int8())
    offsets = pa.array([0, 0, 1], pa.int32())
    union = pa.UnionArray.from_dense(types, offsets, [pa.array([5, 6]), pa.array(["5"])])
    index = index_of("v = 5", "v = '5'", "v is number", "v > 5")
    assert pairs(index, pa.record_batch({"v": union})) == sorted(
        [(0, "v = 5"), (0, "v is number"), (1, "v = '5'"), (2, "v > 5"), (2, "v is number")]
    )


def test_tables_of_many_chunks_keep_their_row_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "ROWS_AT_A_TIME", 7)
    chunk = pa.record_batch({"x": list(range(10))})
    table = pa.Table.from_batches([chunk, chunk.slice(3), chunk.slice(0, 0), chunk])
    rows, keys = Index([("k", Filter("x in (4, 9)"))]).match_batch(table)
    assert rows.tolist() == [4, 9, 11, 16, 21, 26]
    assert set(keys) == {"k"}


def test_an_unsuitable_column_is_an_error_only_if_a_filter_asks_for_it() -> None:
    batch = pa.record_batch({"d": pa.array([1], pa.time32("s")), "x": [1]})
    index = index_of("x = 1")
    assert pairs(index, batch) == [(0, "x = 1")]
    index.add("d", Filter("exists d"))
    with pytest.raises(UnsupportedColumn, match=r"column 'd' has the Arrow type time32"):
        index.match_batch(batch)
    index.remove("d")
    assert pairs(index, batch) == [(0, "x = 1")]


def test_an_integer_beyond_64_bits_is_an_error() -> None:
    batch = pa.record_batch({"x": pa.array([2**64 - 1], pa.uint64())})
    with pytest.raises(InvalidValue, match="column 'x'"):
        index_of("x > 1").match_batch(batch)


def test_an_empty_batch_and_an_empty_index_give_nothing() -> None:
    empty = pa.record_batch({"x": pa.array([], pa.int64())})
    assert pairs(index_of("x = 1"), empty) == []
    assert pairs(Index(), pa.record_batch({"x": [1]})) == []
    assert pairs(Index(), []) == []
    assert Index().match({"x": 1}) == []


def test_a_dictionary_that_uses_all_its_codes_may_have_nulls() -> None:
    words = [f"w{i}" for i in range(128)]
    array = pa.DictionaryArray.from_arrays(pa.array([0, 127, None] * 700, pa.int8()), words)
    index = index_of("s = 'w127'", "s is missing")
    assert pairs(index, pa.record_batch({"s": array}))[:2] == [
        (1, "s = 'w127'"),
        (2, "s is missing"),
    ]


def test_times_without_a_zone_are_utc_in_lists_too() -> None:
    times = pa.array([[datetime(2026, 1, 1)]], pa.list_(pa.timestamp("us")))
    index = index_of("t has time '2026-01-01T00:00:00Z'")
    assert len(pairs(index, pa.record_batch({"t": times}))) == 1


def test_keys_that_are_no_names_are_no_attributes() -> None:
    assert index_of("x = 1").match({1: 2, "x": 1}) == ["x = 1"]  # type: ignore[dict-item]


# -- meaning at the edges


@pytest.mark.spec("02/T9")
@pytest.mark.parametrize("value", [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, float(2**53)])
def test_integers_beyond_doubles_are_exact(value: float) -> None:
    edges = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1]
    held = {
        text: Filter(text)
        for edge in edges
        for text in (f"x {op} {edge}" for op in ("=", "!=", "<", "<=", ">", ">="))
    }
    held["gap"] = Filter(f"x > {2**53} and x < {2**53 + 2}")
    index = Index(held.items())
    index.compact()
    assert pairs(index, [{"x": value}]) == expected(held, [{"x": value}])
    assert pairs(index, pa.record_batch({"x": [value]})) == expected(held, [{"x": value}])


def test_negative_zero_is_zero_and_true_is_not_one() -> None:
    index = index_of("x = 0", "x = -0.0", "x = 1", "x = true", "x >= 0")
    index.compact()
    assert sorted(index.match({"x": -0.0})) == ["x = -0.0", "x = 0", "x >= 0"]
    assert index.match({"x": True}) == ["x = true"]
    assert sorted(index.match({"x": 1.0})) == ["x = 1", "x >= 0"]


def test_infinities_have_their_place() -> None:
    index = index_of("x > 1e308", "x < 0", "x = number 'inf'", "x < number 'inf'")
    index.compact()
    assert sorted(index.match({"x": float("inf")})) == ["x = number 'inf'", "x > 1e308"]
    assert sorted(index.match({"x": float("-inf")})) == ["x < 0", "x < number 'inf'"]


def test_long_prefixes_and_short_strings() -> None:
    prefixes = ["a", "ab", "abcdefgh", "abcdefghi", "abcdefghij", "\U0010ffff", "é"]
    held = {p: Filter(f"s prefix '{p}'") for p in prefixes}
    index = Index(held.items())
    index.compact()
    strings = ["", "a", "ab", "abcdefgh", "abcdefghx", "abcdefghijk", "\U0010ffffz", "éa"]
    published = [{"s": s} for s in strings]
    assert pairs(index, published) == expected(held, published)


def test_wide_disjunctions_and_large_sets() -> None:
    many = Filter("x in (" + ", ".join(str(2 * i) for i in range(5_000)) + ")")
    wide = Filter(" or ".join(f"(x = {i} and y > {i})" for i in range(300)))
    crossed = Filter(
        "x in ("
        + ", ".join(map(str, range(40)))
        + ") and y in ("
        + ", ".join(map(str, range(40)))
        + ") and z not in ("
        + ", ".join(map(str, range(40)))
        + ")"
    )
    held = {"many": many, "wide": wide, "crossed": crossed}
    index = Index(held.items())
    index.compact()
    published = [{"x": x, "y": y, "z": z} for x in (0, 3, 8, 9998) for y in (0, 9) for z in (0, 50)]
    assert pairs(index, published) == expected(held, published)


def test_registered_types_and_operators() -> None:
    class Grade:
        def __init__(self, name: str) -> None:
            self.name = name

        def __lt__(self, other: "Grade") -> bool:
            return self.name > other.name  # A is above B

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Grade) and self.name == other.name

        def __hash__(self) -> int:
            return hash(self.name)

    register_value_type(ValueType("grade", (Grade,), parse=Grade, format=lambda grade: grade.name))
    register_operator(Operator("near", "number", lambda value, place: abs(value - place) <= 1))
    held = {
        text: Filter(text)
        for text in ("g >= grade 'B'", "g = grade 'A'", "x near 5", "x near 5 and g < grade 'C'")
    }
    index = Index(held.items())
    index.compact()
    published = [{"g": Grade(g), "x": x} for g in "ABCD" for x in (3, 4, 6.0)]
    assert pairs(index, published) == expected(held, published)


@pytest.mark.parametrize("name", ["head", "token", "present", "typed", "far", "other"])
def test_a_registered_type_may_have_any_name(name: str) -> None:
    class Level(int):
        pass

    register_value_type(ValueType(name, (Level,), parse=Level))
    held = {text: Filter(text) for text in (f"x > {name} '2'", f"x = {name} '3'", "x > 2")}
    index = Index(held.items())
    index.compact()
    published = [{"x": kind(i)} for i in range(5) for kind in (int, Level)]
    assert pairs(index, published) == expected(held, published)


# -- bad calls


def test_a_key_in_use_is_refused_and_nothing_changes() -> None:
    index = index_of("x = 1")
    with pytest.raises(DuplicateKey, match="'x = 1'"):
        index.add("x = 1", Filter("x = 2"))
    assert index.match({"x": 1}) == ["x = 1"]
    assert index.match({"x": 2}) == []
    assert len(index) == 1


def test_an_unknown_key_is_refused_and_nothing_changes() -> None:
    index = index_of("x = 1")
    with pytest.raises(UnknownKey, match="no filter under 'other'"):
        index.remove("other")
    index.remove("x = 1")
    with pytest.raises(UnknownKey):
        index.remove("x = 1")
    assert len(index) == 0


def test_a_filter_that_cannot_be_indexed_leaves_nothing_behind() -> None:
    class Moody:
        """Ordered and equal like any other value, but it can't be hashed twice."""

        hashed = 0

        def __lt__(self, other: object) -> bool:
            return False

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Moody)

        def __hash__(self) -> int:
            if Moody.hashed:
                raise RuntimeError("not now")
            return 1

    register_value_type(ValueType("moody", (Moody,), parse=lambda _: Moody()))
    index = index_of("x = 1")
    filter_ = Filter("x = 1 and m = moody ''")
    Moody.hashed = 1
    with pytest.raises(RuntimeError, match="not now"):
        index.add("bad", filter_)
    assert "bad" not in index
    assert index.match({"x": 1}) == ["x = 1"]
    index.compact()
    assert index.match({"x": 1}) == ["x = 1"]
    assert len(index) == 1


def test_constants_that_cannot_be_compared_are_refused_when_they_are_added() -> None:
    class Version(tuple[Any, ...]):
        __slots__ = ()

    def parse(text: str) -> Version:
        return Version(int(p) if p.isdigit() else p for p in text.split("."))

    register_value_type(ValueType("version", (Version,), parse=parse))
    index = Index([("good", Filter("v = version '1.2'"))])
    with pytest.raises(TypeError):
        index.add("bad", Filter("v = version '1.rc'"))
    index.compact()
    assert index.match({"v": Version((1, 2))}) == ["good"]
    assert not index._slots._searches


def test_waiting_for_the_background_thread_is_safe_at_any_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "GROWING_LIMIT", 8)
    index: Index[int] = Index()
    done = threading.Event()
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            while not done.is_set():
                index.settle()
        except BaseException as error:
            failed.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    for i in range(3_000):
        index.add(i, Filter(f"x = {i}"))
    done.set()
    waiter.join()
    assert not failed


def test_a_filter_that_nothing_matches_is_held_and_removed() -> None:
    index = Index([("never", Filter("x = 1 and x = 2"))])
    assert "never" in index
    assert index.match({"x": 1}) == []
    index.remove("never")
    index.add("never", Filter("true"))
    assert index.match({"x": 1}) == ["never"]


def test_integer_keys_come_as_an_integer_array() -> None:
    index: Index[Any] = Index([(7, Filter("x = 1"))])
    assert index.match_batch([{"x": 1}])[1].dtype == np.int64
    index.add("seven", Filter("x = 1"))
    assert sorted(map(str, index.match_batch([{"x": 1}])[1])) == ["7", "seven"]


# -- change


@settings(max_examples=20)
@given(st.lists(filter_texts(), max_size=20), st.lists(events, min_size=1, max_size=4))
def test_a_pickled_copy_answers_the_same(texts: list[str], batch: list[dict[str, Any]]) -> None:
    held = {i: filter_of(text) for i, text in enumerate(texts) if "multiple_of" not in text}
    index = Index(held.items())
    for key in list(held)[::3]:
        index.remove(key)
        del held[key]
    copy: Index[int] = pickle.loads(pickle.dumps(index))
    assert pairs(copy, batch) == expected(held, batch)
    copy.add(-1, Filter("true"))
    assert -1 in copy.match(batch[0])
    assert -1 not in index


@pytest.mark.usefixtures("tiny_parts")
def test_memory_is_proportional_to_what_is_held() -> None:
    index: Index[int] = Index(background=False)
    sizes = []
    for round_ in range(6):
        for i in range(200):
            index.add(1_000 * round_ + i, Filter(f"x = {i} and y > {round_}"))
        for i in range(200):
            index.remove(1_000 * round_ + i)
        sizes.append(len(index._slots.alive))
    assert len(index) == 0
    assert sizes[-1] == sizes[1], "slots of removed filters are used again"
    assert index.segment_count <= 1


def test_matching_goes_on_while_segments_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters come and go in one thread, others match: what is always held is always found."""
    monkeypatch.setattr(index_module, "GROWING_LIMIT", 64)
    index: Index[int] = Index((-i, Filter(f"x = {i} and y >= 0")) for i in range(1, 100))
    batch = pa.record_batch({"x": list(range(1, 100)), "y": [1] * 99})
    done = threading.Event()
    wrong: list[Any] = []

    def read() -> None:
        while not done.is_set():
            rows, keys = index.match_batch(batch)
            found = {k for k in keys.tolist() if k < 0}
            if found != set(range(-99, 0)):
                wrong.append(found)
            for row, key in zip(rows.tolist(), keys.tolist(), strict=True):
                if (-key if key < 0 else key % 1_000) != row + 1:
                    wrong.append((row, key))

    rows_of = [{"x": x, "y": 1} for x in range(1, 100)]

    def read_by_key() -> None:
        while not done.is_set():
            by_key = dict(index.match_by_key(rows_of))
            if {key for key in by_key if key < 0} != set(range(-99, 0)):
                wrong.append(sorted(by_key))
            for key, rows in by_key.items():
                if rows != [(-key if key < 0 else key % 1_000) - 1]:
                    wrong.append((key, rows))

    readers = [threading.Thread(target=target) for target in (read, read_by_key)]
    for reader in readers:
        reader.start()
    for key in range(1_000, 9_000):
        if key % 1_000:
            index.add(key, Filter(f"x = {key % 1_000} and y > 0"))
            if key > 2_000 and (key - 1_000) % 1_000:
                index.remove(key - 1_000)
    done.set()
    for reader in readers:
        reader.join()
    index.settle()
    assert not wrong
    assert sorted(k for k in index.match({"x": 5, "y": 1})) == [-5, 8_005]


@pytest.mark.spec("02/P9")
def test_memory_is_reported_and_grows_with_the_filters() -> None:
    index: Index[int] = Index()
    for i in range(10_000):
        index.add(i, Filter(f"x = {i} and y > 5"))
    index.compact()
    assert index.segment_count == 1
    assert 10_000 * 16 < index.memory.segments < 10_000 * 1_000
    assert index.memory.total >= index.memory.segments + index.memory.keys


# -- work


class Work:
    """Counts how many boxes are compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boxes = self.compilations = 0
        segment = index_module.Segment

        def counted_segment(table: Any) -> Any:
            self.boxes += len(table)
            self.compilations += 1
            return segment(table)

        monkeypatch.setattr(index_module, "Segment", counted_segment)


def test_many_unsearched_filters_are_compiled_by_the_first_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index: Index[int] = Index()
    work = Work(monkeypatch)
    for i in range(1_000):
        index.add(i, Filter(f"x = {i}"))
    assert not work.compilations
    for i in range(2_000):
        assert index.match({"x": i}) == ([i] if i < 1_000 else [])
    assert work.compilations == 1


def test_an_index_that_is_made_of_filters_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    index: Index[int] = Index((i, Filter(f"x = {i}")) for i in range(10_000))
    assert index.segment_count == 1
    work = Work(monkeypatch)
    rows, keys = index.match_batch([{"x": i} for i in range(20_000)])
    assert keys.tolist() == rows.tolist() == list(range(10_000))
    assert not work.compilations


def test_searches_between_changes_find_one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has to be compiled is compiled by changes, as far as earlier searches let it foresee."""
    index: Index[int] = Index((i, Filter(f"x = {i}")) for i in range(3_000))
    work = Work(monkeypatch)
    batch = [{"x": i} for i in range(8_000)]
    in_searches = 0
    for turn in range(10):
        before = work.compilations
        index.match_batch(batch)
        in_searches += work.compilations - before
        assert index.segment_count == 1
        for i in range(600):
            index.remove(600 * turn + i)
            index.add(3_000 + 600 * turn + i, Filter(f"x = {i}"))
    assert work.compilations > 10
    assert not in_searches


def test_without_a_background_only_small_segments_are_joined_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever calls can do nothing else meanwhile."""
    monkeypatch.setattr(index_module, "GROWING_LIMIT", 64)
    monkeypatch.setattr(index_module, "AT_ONCE_ALONE", 1_000)
    largest: dict[str, int] = {}
    segment = index_module.Segment

    def watched_segment(table: Any) -> Any:
        name = threading.current_thread().name
        largest[name] = max(largest.get(name, 0), len(table))
        return segment(table)

    monkeypatch.setattr(index_module, "Segment", watched_segment)
    index: Index[int] = Index(background=False)
    for i in range(5_000):
        index.add(i, Filter(f"x = {i}"))
        assert index.match({"x": i}) == [i]
    index.settle()
    here = threading.current_thread().name
    assert 64 < largest.pop(here) <= 1_000
    assert max(largest.values()) > 1_000


@pytest.mark.parametrize(
    "text",
    [
        "a{0} = 1",
        pytest.param("a like '%x{0}%y'", marks=pytest.mark.slow),
        pytest.param("a regex 'x{0}.*y'", marks=pytest.mark.slow),
    ],
)
def test_what_takes_long_to_compile_is_joined_in_the_background(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns, and attributes that only few filters mention, weigh more than others."""
    joined: dict[bool, list[int]] = {True: [], False: []}
    join = Index._join

    def watched_join(index: Index[int], chosen: Any) -> None:
        here = threading.current_thread() is threading.main_thread()
        joined[here].append(sum(len(held.segment) for held in chosen))
        join(index, chosen)

    monkeypatch.setattr(Index, "_join", watched_join)
    index: Index[int] = Index()
    for i in range(5_000):
        index.add(i, Filter(text.format(i)))
        if not i % 50:
            index.match({"x": 1})
    index.settle()
    assert max(joined[True], default=0) < 1_000
    assert max(joined[False]) > 1_000


def test_a_few_filters_are_never_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    index: Index[int] = Index((i, Filter(f"x = {i}")) for i in range(100))
    work = Work(monkeypatch)
    batch = [{"x": i} for i in range(100)]
    for _ in range(200):
        assert len(index.match_by_key(batch)) == len(index)
    assert not work.compilations


def test_recent_filters_without_an_equality_are_compiled_once_searches_have_paid_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index: Index[int] = Index((i, Filter(f"x > {i}")) for i in range(100))
    work = Work(monkeypatch)
    batch = [{"x": 1_000}] * 100
    for _ in range(20):
        assert len(index.match_by_key(batch)) == len(index)
    assert work.compilations == 1


def test_compiling_anew_makes_no_objects_for_each_filter() -> None:
    """Many new ones would set off a search for garbage, and stop every thread while it lasts."""
    texts = (f"a = {i} and b < c" for i in range(4_000))
    index: Index[int] = Index(enumerate(map(Filter, texts)))
    index.remove(0)
    searches: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        searches.append(phase)

    thresholds = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(note)
    gc.set_threshold(1_000)
    try:
        index.compact()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(note)
    assert not searches


@pytest.mark.spec("02/P9")
def test_matching_between_additions_takes_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a match after each addition, what an addition costs does not grow with the filters."""
    monkeypatch.setattr(index_module, "GROWING_LIMIT", 256)
    work = Work(monkeypatch)
    index: Index[int] = Index(background=False)
    costs = []
    for portion in range(12):
        before = work.boxes
        for i in range(1_000 * portion, 1_000 * (portion + 1)):
            index.add(i, Filter(f"x = {i}"))
            assert index.match({"x": i}) == [i]
        costs.append(work.boxes - before)
    assert max(costs) <= 1_000 * 50


def test_searches_have_segments_of_all_sizes_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "GROWING_LIMIT", 64)
    index: Index[int] = Index()
    for i in range(300):
        index.add(i, Filter(f"x = {i}"))
    index.settle()
    assert index.segment_count > 1
    batch = [{"x": i} for i in range(100)]
    for _ in range(20):
        assert len(index.match_by_key(batch)) == 100
        index.settle()
    assert index.segment_count == 1
    index.add(-1, Filter("x = 5"))
    assert sorted(index.match({"x": 5})) == [-1, 5]


def test_by_key_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "ROWS_AT_A_TIME", 4)
    for compiled in (False, True):
        index = index_of("x > 2", "x in (1, 9)")
        if compiled:
            index.compact()
        found = dict(index.match_by_key([{"x": i} for i in range(10)]))
        assert found == {"x > 2": [3, 4, 5, 6, 7, 8, 9], "x in (1, 9)": [1, 9]}


@settings(max_examples=40)
@given(st.lists(filter_texts(), max_size=12), st.lists(events, min_size=1, max_size=8))
def test_envelopes_match_as_notifications_do(texts: list[str], batch: list[dict[str, Any]]) -> None:
    ns = [Notification({**event, "always": 1}, type="quote") for event in batch]
    envelopes = decode_headers([encode(n) for n in ns])
    held = {i: filter_of(text) for i, text in enumerate(texts)}
    for more in ({}, {-1: Filter("isa quote"), -2: Filter("_type = 'trade'")}):
        index = Index((held | more).items())
        for _ in range(2):
            assert pairs(index, envelopes) == pairs(index, ns) == expected(held | more, ns)
            for envelope, n in zip(envelopes, ns, strict=True):
                assert sorted(index.match(envelope)) == sorted(index.match(n))
            index.compact()
        copy: Index[int] = pickle.loads(pickle.dumps(Index(more.items())))
        assert [copy.match(e) for e in envelopes] == [copy.match(n) for n in ns]
