"""The plugin for pytest: the fixture `stentor_broker`, for tests of both kinds.

A plain test gets a `TestBroker`, an `async def` test the `AsyncTestBroker` of one. Such tests are
run by whatever plugin the project has for them; if it has none, by `asyncio.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stentor.testing import AsyncTestBroker, TestBroker

#: Marks by which other plugins know the tests that they run.
_MARKS = ("asyncio", "anyio", "trio", "twisted")


@pytest.fixture
def stentor_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker | AsyncTestBroker]:
    """A broker of this test alone. A mark sets it up: `@pytest.mark.stentor(data=...)`."""
    from stentor.testing import broker  # it loads the whole broker, which few tests need

    mark = request.node.get_closest_marker("stentor")
    with broker(**({} if mark is None else mark.kwargs)) as started:
        yield started.aio if iscoroutinefunction(request.function) else started


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "stentor(**settings): settings of the `stentor_broker`")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test that has a broker and that nobody else runs."""
    if "stentor_broker" not in pyfuncitem.fixturenames or not iscoroutinefunction(pyfuncitem.obj):
        return None
    if any(pyfuncitem.get_closest_marker(name) for name in _MARKS):
        return None
    names: Any = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
