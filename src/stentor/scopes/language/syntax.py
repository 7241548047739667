"""What a text of the scope graph language says, as values.

A `Script` has statements, a statement that describes a scope has clauses. Nothing is resolved here:
names are names, filters are as they are written. Where something stands in its text (`at`, an
offset) and the comments that belong to it are no part of what it means, so two values are equal if
they say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from stentor.scopes.expressions import Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Something with a place in its text, and the comments that belong to it."""

    at: int = field(default=0, compare=False, repr=False)
    comments: tuple[str, ...] = field(default=(), compare=False, repr=False)


# -- values


@dataclass(frozen=True, slots=True)
class Reference(Placed):
    """A name, a path `a::b`, `SELF` or `TRIGGER`, within so many `MEMBERS(…)`."""

    path: tuple[str, ...]
    members: int = 0

    @property
    def name(self) -> str:
        return "::".join(self.path)


SELF: Final = "SELF"
TRIGGER: Final = "TRIGGER"


@dataclass(frozen=True, slots=True)
class Name:
    """A name where a constant could stand: of an attribute, or an argument that is a word."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Placed):
    """External code: its name, what it is given, and whether it was written as a text."""

    name: str
    arguments: tuple[Any, ...] = ()
    quoted: bool = False


# -- conditions


@dataclass(frozen=True, slots=True)
class AttributeTest:
    name: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class RoleTest:
    role: str


@dataclass(frozen=True, slots=True)
class InterfaceTest:
    half: Half


@dataclass(frozen=True, slots=True)
class Negation:
    part: Predicate


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = AttributeTest | RoleTest | InterfaceTest | Negation | AllOf | AnyOf | Call

# -- interfaces


@dataclass(frozen=True, slots=True)
class Constant:
    """`1` lets everything pass, `0` nothing."""

    everything: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """A name alone: of an event type, or what the scope's filter model takes it for."""

    name: str


@dataclass(frozen=True, slots=True)
class Topic:
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text(Placed):
    """A text of the subscription language."""

    text: str


@dataclass(frozen=True, slots=True)
class Content(Placed):
    predicate: Predicate


WrittenFilter: TypeAlias = Constant | Kind | Topic | Text | Content


@dataclass(frozen=True, slots=True)
class Half:
    """`INPUT(…)` or `OUTPUT(…)`; of several filters one has to match."""

    direction: str
    filters: tuple[WrittenFilter, ...]


# -- clauses


@dataclass(frozen=True, slots=True)
class Interfaces(Placed):
    halves: tuple[Half, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a mapping does to attributes."""

    set: tuple[tuple[str, Expression], ...] = ()
    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Map(Placed):
    """`INWARD` or `OUTWARD`, by changes or by external code."""

    direction: str
    by: Changes | Call


@dataclass(frozen=True, slots=True)
class Policy(Placed):
    kind: str
    code: Call


@dataclass(frozen=True, slots=True)
class Do(Placed):
    """A command to all members, kept for whoever carries it out."""

    code: Call


Action: TypeAlias = Map | Policy | Do


@dataclass(frozen=True, slots=True)
class Properties:
    """What is put on the edges of a selection."""

    interfaces: Interfaces | None = None
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class All:
    pass


@dataclass(frozen=True, slots=True)
class Top:
    rank: str | Call
    k: int
    descending: bool = True


@dataclass(frozen=True, slots=True)
class Range:
    least: int | None = None
    most: int | None = None


Qualifier: TypeAlias = All | Top | Range


@dataclass(frozen=True, slots=True)
class Selection(Placed):
    """Members, or superscopes; `base` is None for `*`."""

    superscopes: bool
    base: tuple[Reference, ...] | None
    label: str = ""
    qualifier: Qualifier = All()
    where: Predicate | None = None
    properties: Properties | None = None


@dataclass(frozen=True, slots=True)
class Labelled(Placed):
    """Properties of a selection that has that label; `*` is every member."""

    label: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class Roles(Placed):
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Set(Placed):
    """Attributes, and for each a constant or the `Name` of a bound attribute."""

    assignments: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Maintain(Placed):
    """When selections are evaluated again: once, every, change or deviation."""

    when: str
    value: float = 0


@dataclass(frozen=True, slots=True)
class Admit(Placed):
    """Whose attributes have to match to join."""

    where: Predicate


@dataclass(frozen=True, slots=True)
class Duplicates(Placed):
    """Only the first version of a notification enters."""


@dataclass(frozen=True, slots=True)
class Event:
    """What an update waits for; `binds` names the notification in pub and con."""

    kind: str
    binds: str = ""
    filters: tuple[WrittenFilter, ...] = ()
    #: For join and leave: the component and the scope, None for any.
    ends: tuple[Reference | None, ...] = ()
    code: Call | None = None


@dataclass(frozen=True, slots=True)
class Create:
    include: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Update(Placed):
    event: Event
    reactions: tuple[Alter | Create, ...]
    condition: Predicate | None = None


Clause: TypeAlias = (
    Selection
    | Labelled
    | Interfaces
    | Roles
    | Set
    | Maintain
    | Admit
    | Duplicates
    | Map
    | Policy
    | Do
    | Update
)

# -- statements


@dataclass(frozen=True, slots=True)
class Import(Placed):
    file: str


@dataclass(frozen=True, slots=True)
class DefineScope(Placed):
    name: str
    clauses: tuple[Clause, ...] = ()
    abstract: bool = False


@dataclass(frozen=True, slots=True)
class DefineComponent(Placed):
    names: tuple[str, ...]
    clauses: tuple[Interfaces | Roles | Set | Policy, ...] = ()


@dataclass(frozen=True, slots=True)
class DefineTable(Placed):
    """Rows by their first column, for `lookup` in mappings."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Architecture:
    """How a scope is to be implemented; kept for whoever deploys it."""

    name: str
    host: str = ""
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Deploy(Placed):
    definition: Reference
    name: str = ""
    clauses: tuple[Clause, ...] = ()
    architecture: Architecture | None = None


@dataclass(frozen=True, slots=True)
class Alter(Placed):
    """`mode` is add, del, or empty for replace."""

    target: Reference
    mode: str = ""
    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop(Placed):
    target: Reference


Statement: TypeAlias = Import | DefineScope | DefineComponent | DefineTable | Deploy | Alter | Drop


@dataclass(frozen=True, slots=True)
class Script:
    """A text as a whole; `comments` are those after the last statement."""

    statements: tuple[Statement, ...] = ()
    comments: tuple[str, ...] = field(default=(), compare=False, repr=False)
    #: What is right and may still be meant otherwise: places and words.
    notes: tuple[tuple[int, str], ...] = field(default=(), compare=False, repr=False)
