"""The wire protocol as pure functions: what messages there are, and how they become bytes.

`messages` holds the types, `frames` the framing. Neither knows of sockets or clocks; the transports
carry the bytes. `docs/protocol.md` is written for whoever implements the protocol elsewhere.
"""

from stentor.protocol.frames import MAX_FRAME, MAX_OPEN, FrameReader, frame

__all__ = ["MAX_FRAME", "MAX_OPEN", "FrameReader", "frame"]
