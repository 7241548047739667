"""The page on the pipeline is true: its examples run as written, in one program."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from overlay_processes import LIMITS, Overlay
from pyspark.sql import SparkSession

import stentor
from stentor import pipeline
from stentor.pipeline import register
from stentor.pipeline.runs import load

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
NOTEBOOK = PAGE.parent / "examples" / "events.ipynb"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
PIPELINES = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_examples_run_as_written(
    spark: SparkSession,
    overlay: Overlay,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    broker = overlay.broker("b1", limits=replace(LIMITS, timeout=30.0))
    broker.start()
    with stentor.connect_sync(broker.address, timeout=60.0) as bus:
        bus.publish_many(
            [
                {"symbol": symbol, "price": 90.0 + n, "volume": 100 * n}
                for n in range(20)
                for symbol in ("IBM", "SAP")
            ],
            ack=True,
        )
    names: dict[str, Any] = {"spark": register(spark), "data": str(tmp_path)}
    for example in EXAMPLES:
        exec(compile(example.replace("127.0.0.1:7411", broker.address), str(PAGE), "exec"), names)
    shown = capfd.readouterr().out
    assert "desk-2" in shown
    assert "LOST" in shown
    assert "109.0" in shown


def test_the_notebook_runs(
    spark: SparkSession, overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cell by cell, and each shows what a notebook would show: the value of its last line."""
    broker = overlay.broker("b1", limits=replace(LIMITS, timeout=30.0))
    broker.start()
    monkeypatch.setattr("stentor.pipeline.sessions.session", lambda: register(spark))
    monkeypatch.setattr(pipeline, "session", lambda: register(spark))
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, Any] = {}
    shown: list[Any] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []  # what it showed somebody once is not of the source
        code = ast.parse("".join(cell["source"]).replace("127.0.0.1:7411", broker.address))
        last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
        exec(compile(code, str(NOTEBOOK), "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names))
    read, table, count, matched, highest = shown
    assert read._repr_html_().count("<code>") == 2
    assert table._repr_html_().count("<tr>") == 1 + 10
    assert "and more" in table._repr_html_()
    assert count == 14
    assert dict(matched.values.tolist()) == {"desk-1": 14, "desk-2": 18}
    assert highest.values.tolist() == [
        ["desk-1", "IBM", 109.0],
        ["desk-2", "IBM", 109.0],
        ["desk-2", "SAP", 109.0],
    ]


@pytest.mark.parametrize("text", PIPELINES)
def test_the_pipelines_are_in_order(text: str, tmp_path: Path) -> None:
    file = tmp_path / "market.toml"
    file.write_text(text)
    assert load(file).sinks
