"""Blocks: the entries of one commit as one row.

A block has a header and data. The data begins with the sizes of the entries, four bytes each and
big-endian, followed by the entries. The header has the offset of the first entry, the number of
entries, the time of the commit, the size of the data, and the checksum of the block before it. The
block's own checksum, a CRC-32, goes over the header and the data. So a block vouches for its own
contents and place, and for the block before it: one that was altered, moved, exchanged or taken
from between two others does not go unnoticed.

CRC-32 finds faults of disks, memory and programs. It does not stop somebody who can write the file
and wants to deceive.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

#: A block is closed before it gets larger than this, unless one entry alone is.
MAX_BYTES: Final = 2**20
MAX_ENTRIES: Final = 4096
#: What a row takes beside its data, about.
ROW_OVERHEAD: Final = 64

_HEADER: Final = struct.Struct(">QIdQI")


class BlockHeader(NamedTuple):
    """What is known of a block without its data."""

    first: int
    #: The number of entries.
    length: int
    #: When it was committed, in seconds since 1970. Never less than that of the block before it.
    time: float
    #: Bytes of the data.
    size: int
    #: The checksum of the block before it.
    previous: int
    #: Its own.
    crc: int

    @property
    def last(self) -> int:
        return self.first + self.length - 1

    @property
    def weight(self) -> int:
        """What it takes on the disk, about."""
        return self.size + ROW_OVERHEAD


def pack(first: int, time: float, previous: int, items: list[bytes]) -> tuple[BlockHeader, bytes]:
    """The block of these entries.

    >>> header, data = pack(1, 0.0, 0, [b"one", b"three"])
    >>> header.last, unpack(header, data)
    (2, [b'one', b'three'])
    """
    count = len(items)
    data = b"".join((struct.pack(f">{count}I", *map(len, items)), *items))
    crc = crc32(data, crc32(_HEADER.pack(first, count, time, len(data), previous)))
    return BlockHeader(first, count, time, len(data), previous, crc), data


def intact(header: BlockHeader, data: object) -> bool:
    """Whether a block is what was written. Anything may be wrong with it, types included.

    >>> header, data = pack(1, 0.0, 0, [b"one"])
    >>> intact(header, data), intact(header, b"..." + data[3:]), intact(header, None)
    (True, False, False)
    """
    if type(data) is not bytes or type(header.length) is not int or header.length < 1:
        return False
    try:
        start = crc32(_HEADER.pack(*header[:5]))
    except (struct.error, TypeError):
        return False
    return len(data) == header.size and crc32(data, start) == header.crc


def unpack(header: BlockHeader, data: bytes) -> list[bytes]:
    """The entries of an intact block."""
    entries = []
    start = 4 * header.length
    for size in struct.unpack_from(f">{header.length}I", data):
        end = start + size
        entries.append(data[start:end])
        start = end
    return entries


def split(items: list[bytes]) -> Iterator[list[bytes]]:
    """The entries in portions that each fit in a block."""
    if len(items) <= MAX_ENTRIES and sum(map(len, items)) <= MAX_BYTES:
        if items:
            yield items
        return
    start = size = 0
    for end, item in enumerate(items):
        size += len(item)
        if end > start and (size > MAX_BYTES or end - start == MAX_ENTRIES):
            yield items[start:end]
            start, size = end, len(item)
    yield items[start:]
