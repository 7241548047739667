"""Event patterns, the JSON form that users of Amazon EventBridge know, read as expressions.

A pattern is an object that names the fields it asks about; each has an array of alternatives. All
fields must match, and of each array any alternative; nested objects give dotted names:

    {"source": ["aws.ec2"], "detail": {"state": [{"anything-but": "stopped"}]}}

An alternative is a value (matched exactly), `null`, or an object with one of the tests `prefix`,
`suffix`, `equals-ignore-case`, `wildcard`, `anything-but`, `numeric`, `exists`, `cidr`. The field
`$or` takes an array of patterns of which one has to match.

How the pieces are translated:

- A field that holds an array matches if *some* element does. So each test becomes an Or of the
  test for a single value and of its `some` form for a collection.
- To publish None is to leave the attribute out, and `null` asks for that, or for the value `NULL`.
- `exists` asks for a value. An empty array has none, so it counts as missing.
- An object asks for a record, or for an array of records in which one and the same record has all
  that the object asks for: `{"lines": {"sku": ["A"], "count": [5]}}` does not match a line with
  that product and another with that count. What must not be there (`exists`, `null`) must not be
  in that record; if the object asks for nothing else, it must be in none of the array.
- What a notification cannot hold (arrays that hold arrays or null) is refused where it is
  matched or published: no answer is better than a wrong one.
- `anything-but` needs the field, and accepts values of any other type: `{"anything-but": 5}`
  accepts every string. For an array it is enough that some element is not excluded, as for all
  other tests.
- Numbers are equal if their values are: 300 is 3.0e2. Their range is that of 64-bit integers and
  doubles.
- `equals-ignore-case` compares with the regular expression `(?i)^text$`, `wildcard` with `like`.
- `cidr` is the operator `in_network`: IPv4 or IPv6, in any spelling of the address.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from stentor.errors import FilterSyntaxError, FilterTypeError, InvalidValue
from stentor.filters.effort import spend
from stentor.filters.expression import And, Atom, Expression, Or, Quantified
from stentor.filters.language.mistakes import syntax_error
from stentor.filters.language.parser import MAX_LENGTH
from stentor.filters.networks import network
from stentor.model.values import COLLECTION, normal, value_type_of

#: How deep objects may be nested.
MAX_DEPTH: Final = 200
#: A pattern with more objects than this inside of it is not looked for in lists of records: each of
#: them could be a record or a list, and all combinations are alternatives of the filter.
MAX_OBJECTS: Final = 8
#: What reading takes for each value and for each test (see `stentor.filters.effort`).
STEPS_PER_VALUE: Final = 3
STEPS_PER_TEST: Final = 16


def parse_pattern(pattern: str | Mapping[str, Any]) -> Expression:
    """The expression that matches what the event pattern matches.

    >>> parse_pattern('{"code": [null]}')  # doctest: +NORMALIZE_WHITESPACE
    Or(parts=(Atom(name='code', operator='missing', constants=()),
              Atom(name='code', operator='is', constants=('null',))))
    """
    value = _decode(pattern) if isinstance(pattern, str) else pattern
    if not isinstance(value, Mapping):
        _refuse("$", "a pattern is an object", 'an object such as {"source": ["aws.ec2"]}')
    looks_into_lists = _objects(value, "$", 1) <= MAX_OBJECTS
    return _Reader(looks_into_lists).fields(value, "", "$").whole


# The structure


def _objects(value: Any, path: str, depth: int) -> int:
    """How many objects there are below this one."""
    if depth > MAX_DEPTH:
        _refuse(path, f"objects are nested more than {MAX_DEPTH} levels deep")
    found = 0
    for key, inner in value.items():
        if key == "$or":
            inner = inner if isinstance(inner, list | tuple) else ()
            places = [(f"{path}.$or[{i}]", each) for i, each in enumerate(inner)]
        else:
            places = [(f"{path}.{key}", inner)]
            found += isinstance(inner, Mapping)
        for place, each in places:
            if isinstance(each, Mapping):
                found += _objects(each, place, depth + 1)
    return found


class _Asked(NamedTuple):
    """What fields are asked for, and the two ways to satisfy that, either of which may be None:
    with a value for at least one of them, or with none for any."""

    whole: Expression
    present: Expression | None
    absent: Expression | None


class _Reader:
    def __init__(self, looks_into_lists: bool) -> None:
        self._looks_into_lists = looks_into_lists

    def fields(self, fields: Mapping[Any, Any], prefix: str, path: str) -> _Asked:
        if not fields:
            _refuse(path, "an empty object asks for nothing", "at least one field")
        asked = []
        for key, value in fields.items():
            if not isinstance(key, str) or not key:
                _refuse(path, f"the name of a field is a nonempty string, not {key!r}")
            place = f"{path}.{key}"
            if key == "$or":
                asked.append(self._alternatives(value, prefix, place))
            elif isinstance(value, Mapping):
                asked.append(self._object(value, prefix + key, place))
            elif isinstance(value, list | tuple):
                asked.append(_field(_attribute(prefix + key, place), value, place))
            else:
                _refuse(place, "the values of a field are listed in an array", f"[{_json(value)}]")
        whole = _joined(And, [one.whole for one in asked])
        absent = [one.absent for one in asked if one.absent is not None]
        if len(absent) < len(asked):
            return _Asked(whole, whole, None)
        present = [one.present for one in asked if one.present is not None]
        some = And((whole, _joined(Or, present))) if present else None
        return _Asked(whole, some, _joined(And, absent))

    def _object(self, value: Mapping[Any, Any], name: str, path: str) -> _Asked:
        """A record, or a list of records one of which has to be as the object says."""
        flat = self.fields(value, name + ".", path)
        if not self._looks_into_lists:
            return flat
        inner = self.fields(value, "", path)
        if inner.absent is None:
            either = Or((flat.whole, Quantified("any", name, inner.whole)))
            return _Asked(either, either, None)
        # Where nothing need be there, a list of records must not pass for a record without fields.
        assert flat.absent is not None
        no_list = Or((Atom(name, "missing"), Atom(name, "is not", (COLLECTION,))))
        none = Or((And((flat.absent, no_list)), Quantified("all", name, inner.absent)))
        if inner.present is None or flat.present is None:
            return _Asked(none, None, none)
        some = Or((flat.present, Quantified("any", name, inner.present)))
        return _Asked(Or((some, none)), some, none)

    def _alternatives(self, value: Any, prefix: str, path: str) -> _Asked:
        if not isinstance(value, list | tuple) or len(value) < 2:
            _refuse(path, "$or takes an array of at least two objects")
        asked: list[_Asked] = []
        for i, fields in enumerate(value):
            place = f"{path}[{i}]"
            if not isinstance(fields, Mapping):
                _refuse(place, "$or takes objects", "an object with fields")
            asked.append(self.fields(fields, prefix, place))
        present = [one.present for one in asked if one.present is not None]
        absent = [one.absent for one in asked if one.absent is not None]
        return _Asked(
            Or(tuple([one.whole for one in asked])),
            _joined(Or, present) if present else None,
            _joined(Or, absent) if absent else None,
        )


def _field(name: str, alternatives: Any, path: str) -> _Asked:
    if not alternatives:
        _refuse(path, "an empty array matches nothing", "at least one value")
    spend(STEPS_PER_VALUE * len(alternatives))
    exact: dict[str, list[Any]] = {}
    present: list[Expression] = []
    absent: list[Expression] = []
    for i, alternative in enumerate(alternatives):
        place = f"{path}[{i}]"
        if isinstance(alternative, Mapping):
            found = _test(name, alternative, place)
            (absent if alternative == {"exists": False} else present).append(found)
        elif alternative is None:
            absent.append(Or((Atom(name, "missing"), Atom(name, "is", ("null",)))))
        else:
            value = _scalar(alternative, place)
            exact.setdefault(value_type_of(value), []).append(value)
    present = [*(_one_of(name, values) for values in exact.values()), *present]
    return _Asked(
        _joined(Or, [*present, *absent]),
        _joined(Or, present) if present else None,
        _joined(Or, absent) if absent else None,
    )


def _joined(join: type[And] | type[Or], parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else join(tuple(parts))


def _one_of(name: str, values: list[Any]) -> Expression:
    if len(values) == 1:
        return _either(name, "=", values[0])
    if True in values and False in values and isinstance(values[0], bool):
        return _either(name, "is", "bool")
    return _either(name, "in", *values)


def _either(name: str, operator: str, *constants: Any) -> Expression:
    """The value, or some element of it."""
    if (operator, constants[0]) in _ANY_STRING:
        operator, constants = "is", ("string",)  # any string, but nothing else
    return Or((Atom(name, operator, constants), Atom(name, "some " + operator, constants)))


#: Tests that every string passes.
_ANY_STRING = (
    ("prefix", ""),
    ("suffix", ""),
    ("like", "%"),  # `_wildcard_pieces` allows no second star beside the first
    ("regex", "(?i)^"),
    ("regex", "(?i)$"),
)


# The tests


def _test(name: str, test: Mapping[str, Any], path: str) -> Expression:
    spend(STEPS_PER_TEST)
    word, argument, path = _only_entry(test, path, _TESTS)
    return _TESTS[word](name, argument, path)


def _only_entry(test: Mapping[str, Any], path: str, known: Any) -> tuple[str, Any, str]:
    if len(test) != 1:
        _refuse(path, f"a test is an object with one entry, not {len(test)}")
    ((word, argument),) = test.items()
    if word not in known:
        _refuse(path, f"there is no test {word!r}", *known)
    return word, argument, f"{path}.{word}"


def _prefix(name: str, argument: Any, path: str) -> Expression:
    if isinstance(argument, Mapping):
        text = _ignoring_case(argument, path)
        return _either(name, "regex", f"(?i)^{re.escape(text)}")
    return _either(name, "prefix", _string(argument, path))


def _suffix(name: str, argument: Any, path: str) -> Expression:
    if isinstance(argument, Mapping):
        text = _ignoring_case(argument, path)
        return _either(name, "regex", f"(?i){re.escape(text)}$")
    return _either(name, "suffix", _string(argument, path))


def _ignoring_case(argument: Mapping[str, Any], path: str) -> str:
    _, text, path = _only_entry(argument, path, ("equals-ignore-case",))
    return _string(text, path)


def _equals_ignore_case(name: str, argument: Any, path: str) -> Expression:
    return _either(name, "regex", _caseless(_string(argument, path)))


def _caseless(text: str) -> str:
    return f"(?i)^{re.escape(text)}$"


def _wildcard(name: str, argument: Any, path: str) -> Expression:
    return _either(name, "like", *_like(argument, path))


def _like(argument: Any, path: str) -> tuple[str, ...]:
    """The pattern of `like`, and its escape character if it needs one."""
    pieces = _wildcard_pieces(_string(argument, path), path)
    # In a LIKE pattern the percent sign and the underscore are special, so they are escaped here.
    if any(c in "%_" for piece in pieces for c in piece):
        return "%".join(re.sub(r"([%_\\])", r"\\\1", piece) for piece in pieces), "\\"
    return ("%".join(pieces),)


def _wildcard_regex(argument: Any, path: str) -> str:
    pieces = _wildcard_pieces(_string(argument, path), path)
    return ".*".join(re.escape(piece) for piece in pieces)


def _wildcard_pieces(text: str, path: str) -> list[str]:
    """The literal texts between the asterisks; a backslash keeps `*` and itself literal."""
    pieces = [""]
    characters = iter(text)
    before = ""
    for character in characters:
        if character == "*":
            if before == "*":
                _refuse(path, "two asterisks in a row", "one * for any text")
            pieces.append("")
        elif character == "\\":
            escaped = next(characters, "")
            if escaped not in ("*", "\\"):
                _refuse(path, "a backslash stands only before * or another backslash")
            pieces[-1] += escaped
        else:
            pieces[-1] += character
        before = character
    return pieces


_COMPARISONS: Final = ("=", "<", "<=", ">", ">=")


def _numeric(name: str, argument: Any, path: str) -> Expression:
    if not isinstance(argument, list | tuple) or len(argument) not in (2, 4):
        _refuse(
            path, "numeric takes comparisons and numbers in turn", '["=", 5]', '[">", 0, "<=", 5]'
        )
    bounds: list[tuple[str, Any]] = []
    for i in range(0, len(argument), 2):
        if argument[i] not in _COMPARISONS:
            _refuse(f"{path}[{i}]", f"{argument[i]!r} is not a comparison", *_COMPARISONS)
        bounds.append((argument[i], _number(argument[i + 1], f"{path}[{i + 1}]")))
    if len(bounds) == 1:
        return _either(name, bounds[0][0], bounds[0][1])
    (lower, low), (upper, high) = bounds
    if lower not in (">", ">=") or upper not in ("<", "<="):
        _refuse(path, "a range is a lower bound and then an upper bound", '[">", 0, "<=", 5]')
    if low > high or (low == high and (lower, upper) != (">=", "<=")):
        _refuse(path, "no number lies in this range")
    # One and the same element of an array has to satisfy both bounds.
    ends = ("(" if lower == ">" else "[") + (")" if upper == "<" else "]")
    inside = And((Atom(name, lower, (low,)), Atom(name, upper, (high,))))
    return Or((inside, Atom(name, "some within", (low, high, ends))))


def _exists(name: str, argument: Any, path: str) -> Expression:
    if not isinstance(argument, bool):
        _refuse(path, "exists takes true or false", "true", "false")
    if argument:
        return Or((Atom(name, "is not", (COLLECTION,)), Atom(name, "some exists")))
    return Or((Atom(name, "missing"), Atom(name, "subset")))


# Anything but


def _anything_but(name: str, argument: Any, path: str) -> Expression:
    if isinstance(argument, Mapping):
        word, texts, path = _only_entry(argument, path, _EXCLUDED)
        texts = list(texts) if isinstance(texts, list | tuple) else [texts]
        if not texts:
            _refuse(path, "an empty array excludes nothing", "at least one string")
        operator, constants = _EXCLUDED[word](texts, path)
        return _excluding(name, operator, constants, "string")
    values = list(argument) if isinstance(argument, list | tuple) else [argument]
    if not values:
        _refuse(path, "an empty array excludes nothing", "at least one value")
    values = [_scalar(value, path) for value in values]
    types = {value_type_of(value) for value in values}
    if len(types) > 1:
        _refuse(path, "anything-but takes only strings or only numbers")
    (kind,) = types
    if len(values) == 1:
        return _excluding(name, "!=", (values[0],), kind)
    return _excluding(name, "not in", tuple(values), kind)


def _excluding(name: str, operator: str, constants: tuple[Any, ...], kind: str) -> Expression:
    other = And((Atom(name, "is not", (kind,)), Atom(name, "is not", (COLLECTION,))))
    return Or(
        (
            Atom(name, operator, constants),
            other,
            Atom(name, "some " + operator, constants),
            Atom(name, "some is not", (kind,)),
        )
    )


Excluded = tuple[str, tuple[Any, ...]]


def _excluded_affix(word: str, anchored: str) -> Callable[[list[Any], str], Excluded]:
    def build(texts: list[Any], path: str) -> Excluded:
        strings = [_string(text, path) for text in texts]
        if len(strings) == 1:
            return "not " + word, (strings[0],)
        # One and the same element of an array has to avoid all of them: one expression for all.
        return "not regex", (anchored.format("|".join(map(re.escape, strings))),)

    return build


def _excluded_caseless(texts: list[Any], path: str) -> Excluded:
    strings = [re.escape(_string(text, path)) for text in texts]
    return "not regex", (f"(?i)^(?:{'|'.join(strings)})$",)


def _excluded_wildcard(texts: list[Any], path: str) -> Excluded:
    if len(texts) == 1:
        return "not like", _like(texts[0], path)
    return "not regex", (f"(?s)^(?:{'|'.join(_wildcard_regex(t, path) for t in texts)})$",)


_EXCLUDED: Final[dict[str, Callable[[list[Any], str], Excluded]]] = {
    "prefix": _excluded_affix("prefix", "^(?:{})"),
    "suffix": _excluded_affix("suffix", "(?:{})$"),
    "equals-ignore-case": _excluded_caseless,
    "wildcard": _excluded_wildcard,
}


# Addresses


def _cidr(name: str, argument: Any, path: str) -> Expression:
    try:
        block = network(_string(argument, path))
    except FilterTypeError:
        _refuse(
            path, f"{argument!r} is not a block of addresses", '"10.0.0.0/24"', '"2001:db8::/32"'
        )
    return _either(name, "in_network", *block)


_TESTS: Final[dict[str, Callable[[str, Any, str], Expression]]] = {
    "prefix": _prefix,
    "suffix": _suffix,
    "equals-ignore-case": _equals_ignore_case,
    "wildcard": _wildcard,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "exists": _exists,
    "cidr": _cidr,
}


# Values and mistakes


def _scalar(value: Any, path: str) -> Any:
    if not isinstance(value, str | int | float):
        _refuse(path, f"{_json(value)} cannot be matched here", "a string, a number, true or false")
    try:
        return normal(value)
    except InvalidValue as error:
        _refuse(path, str(error))


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        _refuse(path, f"{_json(value)} is not a string", "a string")
    text: str = _scalar(value, path)
    return text


def _number(value: Any, path: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(path, f"{_json(value)} is not a number", "a number")
    number: int | float = _scalar(value, path)
    if math.isinf(number):
        _refuse(path, "the number is too large for a double")
    return number


def _attribute(name: str, path: str) -> str:
    return _string(name, path)


def _json(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _refuse(path: str, message: str, *expected: str) -> NoReturn:
    hint = f"\nexpected {', or '.join(expected)}" if expected else ""
    raise FilterSyntaxError(f"at {path}: {message}{hint}", expected=expected)


def _decode(text: str) -> Any:
    if len(text) > MAX_LENGTH:
        raise FilterSyntaxError(
            f"the pattern has {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as mistake:
        error = syntax_error(text, mistake.pos, f"this is not JSON: {mistake.msg}")
    except FilterSyntaxError:
        raise
    except RecursionError:
        error = FilterSyntaxError(f"objects are nested more than {MAX_DEPTH} levels deep")
    except ValueError as mistake:  # an integer with thousands of digits
        error = FilterSyntaxError(f"this is not JSON: {mistake}")
    raise error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter([name for name, _ in pairs]).most_common(1)
        raise FilterSyntaxError(f"the field {twice!r} occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise FilterSyntaxError(f"{name} is not JSON")
