"""Everything in sessions of every kind: through Spark Connect, and with other versions of Spark.

A session of Connect has no JVM and no context of its own. The tests of versions install these from
PyPI, each into a directory that is deleted afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from overlay_processes import LIMITS, Overlay

import stentor

DRIVER = Path(__file__).with_name("session_driver.py")
SOURCES = Path(stentor.__file__).resolve().parents[1]
PARTS = ("read", "sql", "refused", "write", "stream", "matching", "matching_streams")
WHOLE = tuple(part for part in PARTS if part != "refused")
#: What versions other than the one that is installed can do.
VERSIONS = {
    "4.0.1": ("read", "write", "archives", "without_streams", "without_functions"),
    "4.1.4": ("read", "sql", "write", "matching", "archives", "without_streams"),
    "4.2.1": (*WHOLE, "archives", "continued"),
}


def run(overlay: Overlay, folder: Path, kind: str, parts: tuple[str, ...], path: str = "") -> None:
    source, sink = (overlay.broker(name, limits=LIMITS) for name in ("b1", "b2"))
    for broker in (source, sink):
        broker.start()
    with stentor.connect_sync(source.address, timeout=60.0) as bus:
        bus.publish_many([{"n": n, "even": n % 2 == 0} for n in range(40)], ack=True)
    ran = subprocess.run(
        [sys.executable, DRIVER, kind, source.address, sink.address, folder / "data", *parts],
        env=os.environ
        | {"PYSPARK_PYTHON": sys.executable}
        | ({"PYTHONPATH": os.pathsep.join([path, str(SOURCES)])} if path else {}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    said = [line for line in ran.stdout.splitlines() if line in parts]
    assert (ran.returncode, said) == (0, list(parts)), ran.stderr[-5000:]


@pytest.mark.parametrize(
    "parts", [("read", "sql", "refused"), pytest.param(PARTS, marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_spark_connect(overlay: Overlay, tmp_path: Path, parts: tuple[str, ...]) -> None:
    run(overlay, tmp_path, "connect", parts)


@pytest.fixture
def installed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """A version of Spark beside the one that is installed."""
    version: str = request.param
    folder = tmp_path / "spark"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    subprocess.run([*pip, "--target", folder, f"pyspark=={version}"], check=True, timeout=1800)
    yield version, folder
    rmtree(folder)  # hundreds of megabytes


@pytest.mark.slow
@pytest.mark.parametrize("installed", VERSIONS, indirect=True)
def test_other_versions_of_spark(
    overlay: Overlay, tmp_path: Path, installed: tuple[str, Path]
) -> None:
    version, folder = installed
    run(overlay, tmp_path, "classic", VERSIONS[version], str(folder))
