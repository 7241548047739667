"""Any message of the protocol, generated from its type."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from stentor.protocol.messages import AnyMessage

KINDS: tuple[type[msgspec.Struct], ...] = get_args(AnyMessage)

_WHOLE = st.integers(-(2**63), 2**64 - 1)
_TEXT = st.text(max_size=8)
_DATA: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _WHOLE | _TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)


def _of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case msgspec.inspect.AnyType():
            return _DATA
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return _WHOLE
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False)
        case msgspec.inspect.StrType():
            return _TEXT
        case msgspec.inspect.BytesType():
            return st.binary(max_size=20)
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(_of(item), max_size=4)
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(_of(item), max_size=4).map(tuple)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=3)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*map(_of, items))
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*map(_of, types))
        case msgspec.inspect.StructType(cls=struct, fields=fields):
            return st.builds(struct, **{field.name: _of(field.type) for field in fields})
    raise AssertionError(f"no strategy for {kind}")


def messages() -> st.SearchStrategy[Any]:
    """Messages of every kind, with fields of the right types and any values."""
    return st.one_of(*(_of(msgspec.inspect.type_info(kind)) for kind in KINDS))
