"""The page on the client library is true: its examples run as written."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from scripted import run

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs_as_written(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where examples may write

    async def test() -> None:
        async with Broker(Settings(listen=("127.0.0.1:0",), name="b1")) as broker:
            text = example.replace("127.0.0.1:7411", broker.address)
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(text, "docs/client.md", "exec", flags, dont_inherit=True)
            if not code.co_flags & inspect.CO_COROUTINE and "connect_sync" in text:
                await asyncio.to_thread(exec, code, {"stentor": stentor, "__name__": "example"})
                return
            async with stentor.connect(broker) as bus:
                names: dict[str, Any] = {"stentor": stentor, "bus": bus, "__name__": "example"}
                running = eval(code, names)
                if inspect.isawaitable(running):
                    await running

    run(test())
