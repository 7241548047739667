"""The page on the pipeline is true: its examples run as written, in one program."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from overlay_processes import LIMITS, Overlay
from pyspark.sql import SparkSession

import stentor
from stentor.pipeline import register
from stentor.pipeline.runs import load

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
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


@pytest.mark.parametrize("text", PIPELINES)
def test_the_pipelines_are_in_order(text: str, tmp_path: Path) -> None:
    file = tmp_path / "market.toml"
    file.write_text(text)
    assert load(file).sinks
