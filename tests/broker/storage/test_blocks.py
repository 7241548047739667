from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stentor.broker.storage.blocks import (
    MAX_BYTES,
    MAX_ENTRIES,
    BlockHeader,
    intact,
    pack,
    split,
    unpack,
)

entries = st.lists(st.binary(max_size=40), min_size=1, max_size=20)


@given(entries, st.integers(1, 2**60), st.floats(0, 1e12), st.integers(0, 2**32 - 1))
def test_a_block_reads_back(items, first, time, previous):
    header, data = pack(first, time, previous, items)
    assert intact(header, data)
    assert unpack(header, data) == items
    assert header.last == first + len(items) - 1


@given(entries, st.data())
def test_any_changed_bit_is_noticed(items, data):
    header, packed = pack(7, 12.5, 99, items)
    bit = data.draw(st.integers(0, 8 * len(packed) - 1))
    changed = bytearray(packed)
    changed[bit // 8] ^= 1 << bit % 8
    assert not intact(header, bytes(changed))
    assert not intact(header, packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(
    entries,
    st.sampled_from(BlockHeader._fields),
    st.sampled_from([1, 2, 2**40, -1, None, "x", 0.5]),
)
def test_any_changed_field_is_noticed(items, field, value):
    header, packed = pack(7, 12.25, 99, items)
    if getattr(header, field) != value:
        assert not intact(header._replace(**{field: value}), packed)


def test_portions_fit_and_keep_the_order():
    items = [bytes([n % 251]) * (n % 3 * 150_000) for n in range(60)] + [b"x"] * 10_000
    items.insert(30, bytes(3 * MAX_BYTES))
    portions = list(split(items))
    assert [item for portion in portions for item in portion] == items
    for portion in portions:
        assert 0 < len(portion) <= MAX_ENTRIES
        assert len(portion) == 1 or sum(map(len, portion)) <= MAX_BYTES
    # As few as the bounds allow: no two neighbors would fit into one.
    for one, other in pairwise(portions):
        together = one + other[:1]
        assert len(together) > MAX_ENTRIES or sum(map(len, together)) > MAX_BYTES


def test_nothing_makes_no_portion():
    assert list(split([])) == []
