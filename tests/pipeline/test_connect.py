"""Everything through Spark Connect, whose sessions have no JVM and no context of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from overlay_processes import LIMITS, Overlay

import stentor

DRIVER = Path(__file__).with_name("connect_driver.py")
PARTS = ("read", "refused", "write", "stream", "matching", "matching_streams")


@pytest.mark.parametrize(
    "parts", [("read", "refused"), pytest.param(PARTS, marks=pytest.mark.slow)]
)
def test_spark_connect(overlay: Overlay, tmp_path: Path, parts: tuple[str, ...]) -> None:
    source, sink = (overlay.broker(name, limits=LIMITS) for name in ("b1", "b2"))
    for broker in (source, sink):
        broker.start()
    with stentor.connect_sync(source.address, timeout=60.0) as bus:
        bus.publish_many([{"n": n, "even": n % 2 == 0} for n in range(40)], ack=True)
    ran = subprocess.run(
        [sys.executable, DRIVER, source.address, sink.address, tmp_path / "data", *parts],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    said = [line for line in ran.stdout.splitlines() if line in PARTS]
    assert (ran.returncode, said) == (0, list(parts)), ran.stderr[-5000:]
