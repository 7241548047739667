"""Messages as bytes on a connection: four bytes of length, big-endian, then the MessagePack body.

A reader is fed whatever the network brings: half a frame or a thousand of them. Five rules hold.

*Bytes are copied as seldom as possible.* Frames that lie whole in one piece of input are decoded
where they are. Only a frame that is spread over several pieces is collected, in a buffer that
grows as the bytes come in, so that a frame of 16 MB in pieces of 64 KB costs a few copies of it
and not hundreds. A peer that announces much and sends little occupies what it sent.

*Nothing is trusted.* A length above the limit is refused before any of its bytes is kept. Whatever
goes wrong while decoding, truncation, a wrong type, bad UTF-8, nesting too deep or a failed
allocation, is a `ProtocolError` and nothing else.

*Small bytes stay small.* A few messages hold data of any shape, and one byte of MessagePack can
become an object of seventy. A reader that faces strangers accepts such messages up to a lower
limit, `max_open`. Only messages that carry notifications, files or filters in bulk are long, and
only those may be; even to pass over fields that one does not know takes time. The reader looks at
the tag and the number of fields of a long frame before it decodes any of it.

*No call takes long.* As many messages as somebody wants are returned at a time. What else has come
is kept, and decoded by the next call.

*How the bytes were cut does not matter.* The same stream gives the same messages and then the same
error, however it was split: messages that precede a bad frame are returned, and the error is raised
when there is nothing else to return. After an error the reader is of no more use. Errors hold on to
nothing that was read: who keeps one keeps no frame of 16 MB with it.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from stentor.errors import ProtocolError
from stentor.protocol import messages as m
from stentor.protocol.messages import AnyMessage, decoder, encoder

#: Bytes that a body may have, unless another limit is set.
MAX_FRAME: Final = 16 * 2**20
#: Bytes that a body may have whose message holds data of any shape.
MAX_OPEN: Final = 2**20
#: Bytes that a body may have whose message does not carry anything in bulk, and for all others the
#: bytes from which on there may be no fields that the reader does not know.
MAX_PLAIN: Final = 2**20
#: Messages that are decoded at a time by who has others to serve.
AT_ONCE: Final = 2_000
#: Bytes of the length in front of a body.
PREFIX: Final = 4

_LENGTH: Final = Layout(">I")
_LARGEST: Final = 2**32 - 1


#: By tag: the number of fields, the tag included, of messages that may be long.
_BULKY: Final = {
    kind.__struct_config__.tag: 1 + len(kind.__struct_fields__)
    for kind in (
        m.Publish,
        m.Commit,
        m.Deliver,
        m.Stretch,
        m.Subscriptions,
        m.Advertisements,
        m.Forward,
        m.Chunk,
        m.Scopes,
        m.Handover,
    )
}
_OPEN: Final = frozenset(kind.__struct_config__.tag for kind in (m.Ask, m.Done))

#: What a stream begins with that was meant for someone else.
_FOREIGN: Final = {
    b"\x15\x03": "this is TLS: one side uses tls:// and the other does not",
    b"\x16\x03": "this is TLS: one side uses tls:// and the other does not",
    b"GE": "this looks like HTTP; the monitoring endpoint has an address of its own",
    b"HE": "this looks like HTTP; the monitoring endpoint has an address of its own",
    b"PO": "this looks like HTTP; the monitoring endpoint has an address of its own",
    b"HT": "this looks like HTTP: that address belongs to a web server",
    b"SS": "this looks like SSH: that address belongs to another service",
}


def frame(message: AnyMessage) -> bytes:
    """The message as it goes over a connection.

    >>> from stentor.protocol.messages import Ping
    >>> frame(Ping()).hex(" ")
    '00 00 00 02 91 04'
    """
    body = encoder.encode(message)
    if len(body) > _LARGEST:
        raise ProtocolError(
            f"a message of {len(body)} bytes fits into no frame; send it in several"
        )
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Turns the bytes of one connection back into messages.

    >>> from stentor.protocol.messages import Mark, Ping
    >>> reader = FrameReader()
    >>> stream = frame(Ping()) + frame(Mark("b1-9f", 7))
    >>> reader.feed(stream[:9])
    [Ping()]
    >>> reader.feed(stream[9:])
    [Mark(stream='b1-9f', head=7)]
    """

    __slots__ = ("_partial", "_rest", "_size", "error", "max_frame", "max_open")

    def __init__(self, max_frame: int = MAX_FRAME, max_open: int = MAX_OPEN) -> None:
        #: Bytes that a body may have. May be changed; it holds for frames that begin later.
        self.max_frame = max_frame
        #: The same for messages that hold data of any shape.
        self.max_open = max_open
        #: What was wrong with the stream. Nothing can be read behind it.
        self.error: ProtocolError | None = None
        #: The beginning of a frame, its length included, and how many bytes the whole will have;
        #: 0 as long as that is not known.
        self._partial = bytearray()
        self._size = 0
        #: What has come and was not looked at.
        self._rest: bytes = b""

    @property
    def buffered(self) -> int:
        """Bytes that are kept because their frame is not complete: at most a frame."""
        return len(self._partial)

    @property
    def pending(self) -> bool:
        """Whether there may be more messages in what has come."""
        return bool(self._rest)

    def keep(self, data: bytes) -> None:
        """Take what has come, to be decoded by the next call of `feed`."""
        self._rest += data

    def feed(self, data: bytes, most: int | None = None) -> list[AnyMessage]:
        """The messages that are complete now, all or so many; then there may be more `pending`.

        `ProtocolError` if the stream makes no sense.
        """
        if self.error is not None:
            raise self.error
        if self._rest:
            data = self._rest + data
            self._rest = b""
        messages: list[AnyMessage] = []
        try:
            self._read(data, messages, len(data) if most is None else most)
        except ProtocolError as error:
            # The trace would keep what was read, for as long as anybody keeps the error.
            self.error = error.with_traceback(None)
            self._partial = bytearray()
        if self.error is not None and not messages:
            raise self.error
        return messages

    def _read(self, data: bytes, messages: list[AnyMessage], most: int) -> None:
        at = 0
        end = len(data)
        view = memoryview(data)
        if self._partial:
            at = self._complete(view)
            if at < 0:
                return
            body, self._partial = self._partial, bytearray()
            messages.append(self._decode(memoryview(body)[PREFIX:]))
        size = 0
        while end - at >= PREFIX:
            if len(messages) >= most:
                self._rest = data[at:]
                return
            size = PREFIX + self._length(view, at)
            if size > end - at:
                break
            messages.append(self._decode(view[at + PREFIX : at + size]))
            at += size
            size = 0
        if at < end:
            self._partial += view[at:]
            self._size = size

    def _complete(self, view: memoryview) -> int:
        """Add to the frame that is begun: where the next one starts, or -1 if this one is short."""
        partial = self._partial
        at = 0
        if not self._size:
            at = PREFIX - len(partial)
            partial += view[:at]
            if len(partial) < PREFIX:
                return -1
            self._size = PREFIX + self._length(partial, 0)
        rest = self._size - len(partial)
        partial += view[at : at + rest]
        return -1 if len(partial) < self._size else at + rest

    def _length(self, data: memoryview | bytearray, at: int) -> int:
        """How long the body of the frame is that begins here."""
        length: int = _LENGTH.unpack_from(data, at)[0]
        if length > self.max_frame:
            hint = _FOREIGN.get(bytes(data[at : at + 2]), "send less in one message")
            raise ProtocolError(
                f"a frame of {length} bytes, and at most {self.max_frame} are accepted: {hint}"
            )
        return length

    def _decode(self, body: memoryview) -> AnyMessage:
        if len(body) > self.max_open or len(body) > MAX_PLAIN:
            self._check_size(body)
        try:
            return decoder.decode(body)
        except Exception as error:  # RecursionError and MemoryError included: the bytes' fault
            problem = str(error)
        raise ProtocolError(
            f"a frame of {len(body)} bytes holds no message of the protocol: {problem}"
        )

    def _check_size(self, body: memoryview) -> None:
        """Raise unless the message may be as long as this."""
        fields, tag = _head(body)
        if tag in _OPEN and len(body) > self.max_open:
            raise ProtocolError(
                f"a request or answer of {len(body)} bytes, "
                f"and at most {self.max_open} are accepted: send less in one message"
            )
        if tag not in _OPEN and len(body) > MAX_PLAIN and fields > _BULKY.get(tag, 0):
            raise ProtocolError(
                f"a message of {len(body)} bytes, and one of this kind, or with fields that are "
                f"not known here, has at most {MAX_PLAIN}: send less in one message"
            )


def _head(body: memoryview) -> tuple[int, int]:
    """How many items the array of a message has, and its tag; (0, -1) if there is none."""
    first = body[0]
    if 0x90 <= first <= 0x9F:
        count, at = first & 0x0F, 1
    elif first == 0xDC:
        count, at = int.from_bytes(body[1:3]), 3
    elif first == 0xDD:
        count, at = int.from_bytes(body[1:5]), 5
    else:
        return 0, -1
    tag = body[at]
    if 0xCC <= tag <= 0xD3:  # spelled with more bytes than it needs
        tag = int.from_bytes(body[at + 1 : at + 1 + 2 ** (tag & 0x03)])
    return count, tag
