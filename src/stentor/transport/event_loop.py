"""The event loop that Stentor runs on: uvloop's where it is installed, else Python's own."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop, of the fastest kind there is.

    uvloop comes with the extra `broker`. Clients work without it, and so does Windows, which it
    does not support.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
