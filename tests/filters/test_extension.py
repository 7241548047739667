"""New value types and operators (R-02.16 to R-02.19), and what happens without an operation."""

import pickle
from dataclasses import dataclass
from datetime import date

import pytest

from stentor import Notification
from stentor.errors import FilterTypeError
from stentor.filters import Filter, Operator, merge_all, register_operator
from stentor.filters.expression import And, Atom, Not, Or
from stentor.model.values import ValueType, register_value_type

# -- an ordered type: the person of the specification


@dataclass(frozen=True)
class Person:
    """Only the order is given, by `<` alone: the birth date, then the name."""

    first: str
    second: str
    born: date
    place: str

    def __lt__(self, other: "Person") -> bool:
        return (self.born, self.second, self.first) < (other.born, other.second, other.first)


def _write(p: Person) -> str:
    return f"{p.first}/{p.second}/{p.born.isoformat()}/{p.place}"


def _read(text: str) -> Person:
    first, second, born, place = text.split("/")
    return Person(first, second, date.fromisoformat(born), place)


register_value_type(ValueType("person", (Person,), format=_write, parse=_read))

ADA = Person("Ada", "Lovelace", date(1815, 12, 10), "London")
BOOLE = Person("George", "Boole", date(1815, 11, 2), "Lincoln")
TURING = Person("Alan", "Turing", date(1912, 6, 23), "London")
ADA_TEXT = f"person '{_write(ADA)}'"
TURING_TEXT = f"person '{_write(TURING)}'"


class TestPerson:
    @pytest.mark.spec("R-02.16", "R-02.17")
    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ("= {}", [ADA]),
            ("!= {}", [BOOLE, TURING]),
            ("< {}", [BOOLE]),
            ("<= {}", [BOOLE, ADA]),
            ("> {}", [TURING]),
            (">= {}", [ADA, TURING]),
            ("in ({})", [ADA]),
            ("not in ({})", [BOOLE, TURING]),
            ("between {} and " + TURING_TEXT, [ADA, TURING]),
            ("not between {} and " + TURING_TEXT, [BOOLE]),
        ],
    )
    def test_an_order_gives_every_comparison(self, text, accepted):
        f = Filter("x " + text.format(ADA_TEXT))
        assert [p for p in (BOOLE, ADA, TURING) if f.matches({"x": p})] == accepted
        assert Filter(str(f)) == f
        assert pickle.loads(pickle.dumps(f)) == f
        assert not f.matches({"x": 1})
        assert not f.matches({})

    @pytest.mark.spec("R-02.17")
    def test_and_the_whole_algebra(self):
        younger, ada = Filter(f"x > {ADA_TEXT}"), Filter(f"x = {ADA_TEXT}")
        assert Filter(f"x >= {ADA_TEXT}").covers(younger)
        assert not younger.overlaps(ada)
        assert younger.merge(ada) == Filter(f"x >= {ADA_TEXT}")
        assert younger.merge(Filter(f"x <= {ADA_TEXT}")) == Filter("x is person")
        assert Filter(f"x > {ADA_TEXT} and x < {TURING_TEXT}").covers(
            Filter(f"x > {ADA_TEXT} and x < {ADA_TEXT}")
        )
        assert Filter(f"x has {ADA_TEXT}").matches({"x": [TURING, ADA]})
        assert Filter(f"some x < {TURING_TEXT}").matches({"x": [TURING, ADA]})
        assert Filter("x is person").matches(Notification({"x": ADA}))
        assert not younger.overlaps(Filter("x > 5"))


# -- an unordered type


class Color:
    """Equality and hash, nothing else; not even a representation."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Color) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


register_value_type(
    ValueType("paint", (Color,), ordered=False, format=lambda c: c.name, parse=Color)
)


class TestUnordered:
    @pytest.mark.spec("R-02.16", "R-02.17")
    def test_equality_and_sets(self):
        red = Filter("x = paint 'red'")
        assert red.matches({"x": Color("red")})
        assert not red.matches({"x": Color("blue")})
        assert not red.matches({"x": "red"})
        either = Filter("x in (paint 'red', paint 'blue', paint 'green')")
        assert either == Filter("x in (paint 'green', paint 'blue', paint 'red', paint 'red')")
        assert either.covers(red)
        assert red.merge(Filter("x = paint 'blue'")) == Filter("x in (paint 'blue', paint 'red')")
        assert red.merge(Filter("x != paint 'red'")) == Filter("x is paint")
        assert not red.overlaps(Filter("x not in (paint 'red')"))
        assert Filter("x has paint 'red'").matches({"x": [Color("blue"), Color("red")]})
        assert Filter(str(either)) == either
        assert pickle.loads(pickle.dumps(either)) == either

    @pytest.mark.spec("R-02.17")
    @pytest.mark.parametrize("text", ["x < paint 'red'", "x between paint 'a' and paint 'b'"])
    def test_no_order(self, text):
        with pytest.raises(FilterTypeError, match="no order"):
            Filter(text)

    @pytest.mark.spec("R-02.17")
    def test_many_values_with_colliding_hashes(self):
        class Clash(Color):
            def __hash__(self) -> int:
                return 1

            def __repr__(self) -> str:
                return self.name

        register_value_type(ValueType("clash", (Clash,), ordered=False))
        constants = tuple(Clash(f"c{i}") for i in range(20))
        f = Filter.of_expression(Atom("x", "in", constants))
        assert all(f.matches({"x": Clash(f"c{i}")}) for i in range(20))
        assert not f.matches({"x": Clash("c20")})


# -- points and rectangles


@dataclass(frozen=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True)
class Rectangle:
    left: float
    bottom: float
    right: float
    top: float

    def contains(self, p: Point) -> bool:
        return self.left <= p.x <= self.right and self.bottom <= p.y <= self.top

    def covers(self, o: "Rectangle") -> bool:
        return self.contains(Point(o.left, o.bottom)) and self.contains(Point(o.right, o.top))

    def overlaps(self, o: "Rectangle") -> bool:
        return (
            max(self.left, o.left) <= min(self.right, o.right)
            and max(self.bottom, o.bottom) <= min(self.top, o.top)
        )  # fmt: skip

    def merge(self, o: "Rectangle") -> "Rectangle | None":
        """One rectangle for both: same in one direction, connected in the other."""
        if not self.overlaps(o):
            return None
        if (self.left, self.right) == (o.left, o.right):
            return Rectangle(
                self.left, min(self.bottom, o.bottom), self.right, max(self.top, o.top)
            )
        if (self.bottom, self.top) == (o.bottom, o.top):
            return Rectangle(
                min(self.left, o.left), self.bottom, max(self.right, o.right), self.top
            )
        return None


def _floats(text: str) -> list[float]:
    return [float(part) for part in text.split()]


register_value_type(
    ValueType(
        "point",
        (Point,),
        ordered=False,
        format=lambda p: f"{p.x} {p.y}",
        parse=lambda t: Point(*_floats(t)),
    )
)
register_value_type(
    ValueType(
        "rectangle",
        (Rectangle,),
        ordered=False,
        format=lambda r: f"{r.left} {r.bottom} {r.right} {r.top}",
        parse=lambda t: Rectangle(*_floats(t)),
    )
)


def _merged(mine, theirs):
    found = mine[0].merge(theirs[0])
    return None if found is None else (found,)


register_operator(
    Operator(
        "inside",
        "point",
        lambda p, r: r.contains(p),
        covers=lambda mine, theirs: mine[0].covers(theirs[0]),
        overlaps=lambda mine, theirs: mine[0].overlaps(theirs[0]),
        merge=_merged,
    )
)


def inside(*sides: float) -> str:
    return f"at inside rectangle '{' '.join(map(str, sides))}'"


class TestPointInRectangle:
    @pytest.mark.spec("R-02.16", "R-02.18", "R-02.19", "R-07.22")
    def test_matches(self):
        f = Filter(inside(0, 0, 2, 1) + " and kind = 'taxi'")
        assert f.matches({"at": Point(1, 1), "kind": "taxi"})
        assert not f.matches({"at": Point(1, 1.5), "kind": "taxi"})
        assert not f.matches({"at": Point(1, 1), "kind": "bus"})
        assert not f.matches({"at": 5, "kind": "taxi"})
        assert not f.matches({"kind": "taxi"})

    @pytest.mark.spec("R-02.19")
    def test_negation_stays_within_the_type_and_wants_the_attribute(self):
        f = Filter("not " + inside(0, 0, 2, 1))
        assert f.matches({"at": Point(5, 5)})
        assert not f.matches({"at": Point(1, 1)})
        assert not f.matches({"at": 5})
        assert not f.matches({})
        assert f == Filter("at not inside rectangle '0 0 2 1'")

    @pytest.mark.spec("R-02.19", "R-07.22", "02/P3")
    def test_covering_identity_and_overlap(self):
        large, small, apart = (
            Filter(inside(*r)) for r in ((0, 0, 9, 9), (1, 1, 2, 2), (5, 5, 6, 6))
        )
        assert large.covers(small)
        assert not small.covers(large)
        assert large.covers(Filter(inside(1, 1, 2, 2) + " and kind = 'taxi'"))
        assert small == Filter("at inside rectangle '1.0 1.0 2.0 2.0'")
        assert hash(small) == hash(Filter("at inside rectangle '1.0 1.0 2.0 2.0'"))
        assert small.overlaps(large)
        assert not small.overlaps(apart)
        assert Filter("exists at").covers(large)
        assert Filter("at is point").covers(large)

    @pytest.mark.spec("R-02.19", "R-07.22")
    def test_negated_tests_use_what_the_operator_knows(self):
        large, small, apart = ((0, 0, 9, 9), (1, 1, 2, 2), (5, 5, 6, 6))
        outside_small, outside_large = (Filter("not " + inside(*r)) for r in (small, large))
        assert outside_small.covers(outside_large)
        assert not outside_large.covers(outside_small)
        assert outside_small.covers(Filter(inside(*apart)))
        assert not outside_large.overlaps(Filter(inside(*small)))
        assert outside_small.overlaps(Filter(inside(*large)))

    @pytest.mark.spec("R-02.12", "R-02.19")
    def test_folding(self):
        assert Filter(inside(0, 0, 9, 9) + " and " + inside(1, 1, 2, 2)) == Filter(
            inside(1, 1, 2, 2)
        )
        assert Filter(inside(0, 0, 1, 1) + " and " + inside(2, 2, 3, 3)).is_never
        both = Filter(inside(0, 0, 2, 2) + " and " + inside(1, 1, 3, 3))
        assert both.matches({"at": Point(1.5, 1.5)})
        assert not both.matches({"at": Point(0.5, 0.5)})
        assert Filter(inside(0, 0, 2, 2)).covers(both)
        assert Filter(f"{inside(0, 0, 1, 1)} and not {inside(0, 0, 1, 1)}").is_never
        ring = Filter(f"{inside(0, 0, 9, 9)} and not {inside(1, 1, 2, 2)}")
        assert ring.matches({"at": Point(3, 3)})
        assert not ring.matches({"at": Point(1.5, 1.5)})
        assert Filter(str(ring)) == ring

    @pytest.mark.spec("R-02.19", "R-02.30", "R-07.22")
    def test_merging(self):
        left, right, far = (Filter(inside(*r)) for r in ((0, 0, 1, 1), (1, 0, 2, 1), (5, 0, 6, 1)))
        assert left.merge(right) == Filter(inside(0, 0, 2, 1)) == (left | right)
        assert left.merge(far) is None
        assert merge_all([left, far, right]) in (
            [Filter(inside(0, 0, 2, 1)), far],
            [far, Filter(inside(0, 0, 2, 1))],
        )
        assert left.merge(Filter("not " + inside(0, 0, 1, 1))) == Filter("at is point")

    @pytest.mark.spec("R-02.18")
    def test_text_and_pickle(self):
        f = Filter(inside(0, 0, 1, 1) + " or " + inside(5, 5, 6, 6))
        assert Filter(str(f)) == f
        assert pickle.loads(pickle.dumps(f)) == f
        assert pickle.loads(pickle.dumps(f)).matches({"at": Point(5.5, 5.5)})

    @pytest.mark.spec("R-02.19")
    def test_elements_of_collections(self):
        f = Filter("some at inside rectangle '0 0 1 1'")
        assert f.matches({"at": [Point(9, 9), Point(1, 1)]})
        assert not f.matches({"at": [Point(9, 9)]})
        assert Filter("some at inside rectangle '0 0 2 2'").covers(f)
        assert Filter(str(Filter(f"not ({f})"))) == Filter(f"not ({f})")


# -- operators that say less


class Opaque:
    """A constant that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.limit == other.limit


register_value_type(ValueType("opaque", (Opaque,), ordered=False))
register_operator(Operator("close_to", "number", lambda v, c: abs(v - c) <= 1))
register_operator(
    Operator("in_reach_of", "number", lambda v, c: abs(v - c) <= 1, covers=lambda a, b: a == b)
)
register_operator(Operator("beneath", "number", lambda v, o: v < o.limit))
register_operator(
    Operator(
        "a_multiple_of",
        "number",
        lambda v, n: v % n == 0,
        covers=lambda a, b: b[0] % a[0] == 0,
    )
)
register_operator(Operator("spans", "string", lambda v, low, high: low <= len(v) <= high))


class TestDowngrades:
    @pytest.mark.spec("R-07.22", "R-02.50")
    def test_without_covers_and_overlaps_identity_only(self):
        a, b = Filter("x close_to 1"), Filter("x close_to 9")
        assert a == Filter("x close_to 1")
        assert a.covers(Filter("x close_to 1"))
        assert not a.covers(b)
        assert a.overlaps(b), "without `overlaps` any two may overlap"
        assert not Filter("x close_to 1 and x close_to 9").is_never
        assert Filter("x close_to 1 and x close_to 2").matches({"x": 1.5})
        assert a.covers(Filter("x close_to 1 and x close_to 2"))
        assert a.merge(b) is None
        assert (a | b).matches({"x": 9})
        assert Filter("x is number").covers(a)
        assert not a.covers(Filter("x = 5"))
        assert a.covers(Filter("x in (0, 1, 2)")), "listed values can be tried"
        assert not a.overlaps(Filter("x = 5"))

    @pytest.mark.spec("R-07.22")
    def test_with_covers_only(self):
        assert Filter("x a_multiple_of 3").covers(Filter("x a_multiple_of 6"))
        assert not Filter("x a_multiple_of 6").covers(Filter("x a_multiple_of 3"))
        assert Filter("x a_multiple_of 3").overlaps(Filter("x a_multiple_of 5"))
        assert Filter("x a_multiple_of 3").merge(Filter("x a_multiple_of 6")) == Filter(
            "x a_multiple_of 3"
        )
        assert Filter("x a_multiple_of 3").merge(Filter("x a_multiple_of 5")) is None
        assert Filter("x a_multiple_of 3 and x a_multiple_of 6") == Filter("x a_multiple_of 6")
        assert Filter("x in_reach_of 1").overlaps(Filter("x in_reach_of 9"))

    @pytest.mark.spec("R-07.22")
    def test_constants_without_a_hash_are_equal_only_to_themselves(self):
        limit = Opaque(5)
        a = Filter.of_expression(Atom("x", "beneath", (limit,)))
        again = Filter.of_expression(Atom("x", "beneath", (limit,)))
        assert a.matches({"x": 4})
        assert not a.matches({"x": 5})
        assert a.covers(a)
        assert a.overlaps(again)
        assert a != again
        assert not a.covers(again)
        assert isinstance(hash(a), int)
        either = Filter.of_expression(Or((Atom("x", "beneath", (limit,)), Atom("x", ">", (9,)))))
        assert either.matches({"x": 10})
        with pytest.raises(FilterTypeError, match="hashed"):
            Filter.of_expression(Atom("x", "=", (limit,)))

    @pytest.mark.spec("R-07.22", "R-02.12")
    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ("x a_multiple_of 3 and x > 4", [6, 9, 9.0]),
            ("x a_multiple_of 3 and x is int", [0, 3, 6, 9]),
            ("x a_multiple_of 3 and x is float", [9.0]),
            ("x a_multiple_of 3 or x is float", [0, 1.5, 3, 6, 9, 9.0]),
            ("x a_multiple_of 3 and x is int and x > 4 and x < 7", [6]),
            ("x not a_multiple_of 3 and x is int", [1, 2, 4]),
            ("x a_multiple_of 3 and x in (3, 4, 9)", [3, 9, 9.0]),
            ("x a_multiple_of 3 or x not in (1, 2)", [0, 1.5, 3, 4, 6, 9, 9.0]),
            ("not (x a_multiple_of 3 and x > 4)", [0, 1, 1.5, 2, 3, 4]),
        ],
    )
    def test_among_plain_comparisons(self, text, accepted):
        f = Filter(text)
        values = [0, 1, 1.5, 2, 3, 4, 6, 9, 9.0]
        assert [repr(v) for v in values if f.matches({"x": v})] == list(map(repr, accepted))
        assert Filter(str(f)) == f
        assert f.covers(f)
        assert Filter("x is number").covers(f)
        assert (f & Filter("x is int")).covers(Filter(f"({text}) and x is int"))

    @pytest.mark.spec("R-02.16")
    def test_several_constants(self):
        f = Filter("s spans (2, 3) and s prefix 'a'")
        assert f.matches({"s": "ab"})
        assert not f.matches({"s": "a"})
        assert not f.matches({"s": "bb"})
        assert Filter(str(f)) == f
        assert Filter("s prefix 'a'").covers(f)
        assert f.covers(Filter("s = 'ab'"))


class TestRegistration:
    @pytest.mark.spec("R-02.18")
    @pytest.mark.parametrize("name", ["prefix", "between", "not x", "", "a b", "a.b"])
    def test_names_that_cannot_be_used(self, name):
        with pytest.raises(FilterTypeError):
            register_operator(Operator(name, "number", lambda v: True))

    @pytest.mark.spec("R-02.18")
    def test_collections_are_reached_through_their_elements(self):
        with pytest.raises(FilterTypeError, match="some x"):
            register_operator(Operator("crowded", "collection", lambda v: len(v) > 9))

    @pytest.mark.spec("R-02.18")
    def test_unknown_operators(self):
        with pytest.raises(FilterTypeError, match="register_operator"):
            Filter("x resembles 5")
        with pytest.raises(FilterTypeError, match="register_operator"):
            Filter.of_expression(Not(And((Atom("x", "some resembles", (5,)),))))

    @pytest.mark.spec("R-02.18")
    def test_operators_come_and_change_at_any_time(self):
        register_operator(Operator("fresh", "number", lambda v, c: v == c))
        old = Filter("x fresh 1")
        register_operator(Operator("fresh", "number", lambda v, c: v != c))
        new = Filter("x fresh 1")
        assert old.matches({"x": 1})
        assert not new.matches({"x": 1})
        assert old != new
        assert not old.covers(new)
        assert old.overlaps(new)
