"""What is known about notifications before they come: mandatory attributes, value types (R-02.27).

The algebra knows nothing but the filters. That every quote has a symbol is knowledge about the
world; without it `isa quote` has to be taken for broader than `isa quote and exists symbol`. With
it, a condition that asks only for the presence of a mandatory attribute says nothing and is
dropped, one that asks for its absence cannot hold, and comparing what remains finds all coverings.
If the value type is known as well, `price is number` is such a condition too.

All of this is sound exactly as far as publishers keep to the schema: for notifications that have
the mandatory attributes (of these types), the simplified filter matches the same ones as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stentor.errors import InvalidNotification, UnknownEventType
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import EXISTS, Constraint
from stentor.filters.filter import Filter
from stentor.filters.operators import constraint as operator_constraint
from stentor.model.event_types import EventTypes, event_types
from stentor.model.names import name_problem, shown
from stentor.model.notification import Notification

#: Mandatory attributes and, where it is known, their value type.
Certain = dict[str, str | None]


def assuming(filter: Filter, mandatory: Iterable[str] | Mapping[str, str]) -> Filter:
    """The filter without what is certain once these attributes are always there.

    A mapping gives their value types as well, as `EventTypes.attributes` does.

    >>> f = Filter("exists symbol and price > 100")
    >>> print(assuming(f, ["symbol", "price"]))
    price > 100
    >>> f.covers(Filter("price > 200")), assuming(f, ["symbol"]).covers(Filter("price > 200"))
    (False, True)
    >>> print(assuming(Filter("price is number"), {"price": "number"}))
    true
    """
    names = _checked(mandatory)
    return _rebuilt(filter, [_assuming(conjunct, names) for conjunct in filter.conjuncts])


def typed(filter: Filter, types: Mapping[str, str]) -> Filter:
    """The filter where each of these names has values of one type only, or is absent (R-02.06).

    What holds of every value of the type then asks for nothing but the attribute, as in the
    perfect mergers of filters that exclude each other (R-02.29).

    >>> merged = Filter("x < 5").merge(Filter("x >= 5"))
    >>> print(merged, "->", typed(merged, {"x": "number"}))
    x is number -> exists x
    """
    names = _checked(types)
    return _rebuilt(filter, [_typed(conjunct, names) for conjunct in filter.conjuncts])


class Schema:
    """The mandatory attributes of event types; a subtype inherits those of its supertypes.

    >>> schema = Schema({"quote": ["symbol"], "quote.stock": ["exchange"]})
    >>> sorted(schema.mandatory("quote.stock"))
    ['exchange', 'symbol']
    >>> print(schema.simplified(Filter("isa quote and exists symbol and exists exchange")))
    _types has 'quote' and exists exchange
    """

    def __init__(
        self, mandatory: Mapping[str, Iterable[str]], types: EventTypes = event_types
    ) -> None:
        """From event types to the attributes that each makes mandatory."""
        self._types = types
        self._own: dict[str, Certain] = {}
        for name, attributes in mandatory.items():
            types.ancestors(name)  # an error if the name can be no event type's
            declared = types.attributes(name)
            own: Certain = {
                attribute: declared.get(attribute) for attribute in _checked(attributes)
            }
            undeclared = sorted([attribute for attribute, kind in own.items() if kind is None])
            if declared and undeclared:
                raise UnknownEventType(
                    f"{shown(undeclared[0])} is not a declared attribute of the event type "
                    f"{shown(name)}; declare it there, or leave it out here"
                )
            self._own[name] = own
        #: For each attribute the types that make it mandatory, and its value type if they agree.
        self._demanded: dict[str, tuple[tuple[str, ...], str | None]] = {}
        for attribute in frozenset().union(*self._own.values()):
            names = tuple([name for name, own in self._own.items() if attribute in own])
            kinds = {self._own[name][attribute] for name in names}
            self._demanded[attribute] = (names, kinds.pop() if len(kinds) == 1 else None)

    def mandatory(self, event_type: str) -> frozenset[str]:
        """The attributes that every event of the type has."""
        ancestors = self._types.ancestors(event_type)
        return frozenset().union(*[own for name, own in self._own.items() if name in ancestors])

    def simplified(self, filter: Filter) -> Filter:
        """The filter without what is certain about events of the types that it asks for."""
        return _rebuilt(
            filter, [_assuming(conjunct, self._certain(conjunct)) for conjunct in filter.conjuncts]
        )

    def covers(self, broader: Filter, narrower: Filter) -> bool:
        """Whether the first filter matches all legal events that the second matches.

        >>> schema = Schema({"quote": ["symbol"]})
        >>> quotes = Filter("isa quote")
        >>> Filter("exists symbol").covers(quotes)
        False
        >>> schema.covers(Filter("exists symbol"), quotes)
        True
        """
        for conjunct in narrower.conjuncts:
            certain = self._certain(conjunct)
            wanted = _rebuilt(narrower, [_assuming(conjunct, certain)])
            offered = _rebuilt(broader, [_assuming(other, certain) for other in broader.conjuncts])
            if not offered.covers(wanted):
                return False
        return True

    def overlaps(self, one: Filter, other: Filter) -> bool:
        """Whether a legal event could match both."""
        return self.simplified(one & other).conjuncts != ()

    def check(self, notification: Notification) -> None:
        """Raise `InvalidNotification` if a mandatory attribute is missing or of another type.

        >>> Schema({"quote": ["symbol"]}).check(Notification({"price": 1}, type="quote"))
        Traceback (most recent call last):
        ...
        stentor.errors.InvalidNotification: an event of type 'quote' always has 'symbol'; this \
one has not
        """
        if notification.type is None:
            return
        self._types.check(notification)
        missing = self.mandatory(notification.type) - notification.keys()
        if missing:
            raise InvalidNotification(
                f"an event of type {shown(notification.type)} always has "
                f"{', '.join([shown(name) for name in sorted(missing)])}; this one has not"
            )

    def _certain(self, conjunct: Conjunct) -> Certain:
        """The attributes that every legal event has which the conjunct can match.

        An attribute is certain if all these events are of types that make it mandatory; they need
        not all be of the same one.
        """
        types = conjunct.constraints.get("_types")
        if types is None:
            return {}
        return {
            attribute: value_type
            for attribute, (names, value_type) in self._demanded.items()
            if operator_constraint("overlaps", names).includes(types)
        }


def _assuming(conjunct: Conjunct, certain: Certain) -> Conjunct | None:
    constraints = dict(conjunct.constraints)
    for name in certain.keys() & constraints.keys():
        present = constraints[name].intersection(EXISTS)
        value_type = certain[name]
        if present == EXISTS or (value_type is not None and present.part(value_type).is_all):
            del constraints[name]
        elif value_type is not None and present.part(value_type).is_none:
            return None
        else:
            constraints[name] = present
    return Conjunct.of(constraints, conjunct.residuals)


def _typed(conjunct: Conjunct, types: Certain) -> Conjunct | None:
    constraints = dict(conjunct.constraints)
    for name in types.keys() & constraints.keys():
        said = constraints[name]
        value_type = types[name]
        assert value_type is not None
        part = said.part(value_type)
        if part.is_all:
            constraints[name] = Constraint(rest=True, absent=said.absent)
        else:
            parts = () if part.is_none else ((value_type, part),)
            constraints[name] = Constraint(parts, absent=said.absent)
    return Conjunct.of(constraints, conjunct.residuals)


def _rebuilt(filter: Filter, conjuncts: list[Conjunct | None]) -> Filter:
    kept = [conjunct for conjunct in conjuncts if conjunct is not None]
    return filter if kept == list(filter.conjuncts) else Filter.of_conjuncts(kept)


def _checked(names: Iterable[str] | Mapping[str, str]) -> Certain:
    if isinstance(names, str):  # a string is iterable, but never meant as its letters
        names = [names]
    found: Certain = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names)
    for name in found:
        problem = name_problem(name)
        if problem is not None:
            raise InvalidNotification(f"the attribute name {shown(name)} {problem}")
    return found
