"""The wire protocol, pure: what messages there are, how they become bytes, how connections begin.

`messages` holds the types, `frames` the framing, `handshake` what both sides of a connection say of
themselves. None knows of sockets or clocks; the transports carry the bytes. `docs/protocol.md` is
written for whoever implements the protocol elsewhere.
"""

from stentor.protocol.frames import MAX_FRAME, MAX_OPEN, FrameReader, frame

__all__ = ["MAX_FRAME", "MAX_OPEN", "FrameReader", "frame"]
