"""Kernels are compiled before they are needed, wherever that can be kept, and none after that."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from strategies import CONDITIONS, VALUES

import stentor
from stentor import Filter
from stentor.broker import Broker, Settings
from stentor.errors import StentorError
from stentor.matching import Index
from stentor.matching.index import preparing
from stentor.matching.index.preparing import Prepared, call_all, dispatchers

#: Where no directory can be made, whoever asks.
NOWHERE = "/dev/null/nowhere"


def signatures() -> dict[str, int]:
    return {name: len(kernel.signatures) for name, kernel in dispatchers().items()}


def batches(random: Random) -> list[Any]:
    """Events in every form that an index takes, small and large."""
    rows = [
        {name: random.choice(values) for name, values in VALUES.items() if random.random() < 0.7}
        for _ in range(2_000)
    ]
    plain = [{k: v for k, v in row.items() if k in "xysb" and v is not None} for row in rows]
    arrow = pa.table(
        {
            "x": pa.array([None if "x" not in row else float(row["x"]) for row in plain]),
            "s": pa.array([row.get("s") for row in plain]).dictionary_encode(),
            "b": pa.array([row.get("b") for row in plain]),
            "tags": pa.array([["a", "b"], None] * 1_000),
        }
    )
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), ["a", "b"])
    return [rows[:1], rows[:50], rows, arrow, arrow.slice(3, 40), pa.record_batch({"s": codes})]


def test_nothing_is_compiled_after_the_preparation() -> None:
    """Whatever is added, removed, joined and searched: no kernel meets a new type of argument."""
    call_all()
    before = signatures()
    assert all(count for name, count in before.items() if not name.startswith("_"))
    random = Random(5)
    published = batches(random)
    for turn in range(6):
        index: Index[Any] = Index(background=turn % 2 == 0)
        for i in range(400):
            parts = random.sample(CONDITIONS, random.choice((1, 1, 2, 3)))
            try:
                filter_ = Filter(" and ".join(f"({part})" for part in parts))
            except StentorError:
                continue
            index.add(i if turn < 3 else f"key {i}", filter_)
            if i % 40 == 0:
                for row in published[1]:
                    index.match(row)
                index.match_by_key(published[1])
                index.match_batch(random.choice(published))
        for batch in published:
            index.match_batch(batch)
        index.match_by_key(published[2])
        index.compact()
        for batch in published:
            index.match_batch(batch)
    assert signatures() == before


@pytest.fixture
def fixed_package(tmp_path: Path) -> Path:
    """A copy of the package beside which nothing can be kept: not even root writes into a file."""
    source = Path(stentor.__file__).parent
    copy = tmp_path / "lib" / "stentor"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "matching" / "index" / "__pycache__").touch()
    return copy.parent


def environment(package: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    return {**kept, "PYTHONPATH": str(package), "HOME": NOWHERE, **more}


def run(code: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], env=env, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_compiles_nothing_and_needs_no_place_to_keep_it(fixed_package: Path) -> None:
    code = (
        "import stentor, stentor.client, stentor.matching.index.preparing as p\n"
        "print(p.__file__, sum(len(k.signatures) for k in p.dispatchers().values()))"
    )
    where, count = run(code, environment(fixed_package)).split()
    assert Path(where).is_relative_to(fixed_package)
    assert count == "0"


@pytest.mark.slow
def test_several_processes_prepare_in_one_directory(fixed_package: Path, tmp_path: Path) -> None:
    """They take turns; the later ones find everything compiled."""
    folder = tmp_path / "kernels"
    code = (
        "from pathlib import Path\n"
        "from stentor.matching.index.preparing import dispatchers, prepare\n"
        f"done = prepare(Path({str(folder)!r}))\n"
        "assert done.problem is None, done\n"
        "misses = sum(sum(k.stats.cache_misses.values()) for k in dispatchers().values())\n"
        "print(misses)"
    )
    env = environment(fixed_package)
    started = [
        subprocess.Popen([sys.executable, "-B", "-c", code], env=env, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    misses = sorted(int(process.communicate(timeout=900)[0]) for process in started)
    assert misses[0] == 0
    assert misses[1] > 0
    assert oct(folder.stat().st_mode & 0o777) == "0o700"


def test_a_process_that_is_stopped_while_it_compiles_keeps_no_other_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(preparing, "_prepared", None)
    monkeypatch.setattr(preparing, "_QUIETLY", 0.0)
    monkeypatch.setattr(preparing, "_PATIENCE", 0.1)
    monkeypatch.setattr(preparing, "call_all", lambda: None)
    monkeypatch.setattr(preparing, "dispatchers", dict)
    with preparing._own_turn(tmp_path, told.append):
        done = preparing.prepare(tmp_path, told.append)
    assert done.folder is None
    assert "was it stopped?" in (done.problem or "")
    assert [text.split()[0] for text in told] == ["waiting"]


@pytest.mark.slow
def test_without_a_place_to_keep_it_code_is_compiled_in_memory(fixed_package: Path) -> None:
    code = (
        "from stentor.matching.index.preparing import dispatchers, prepare\n"
        "done = prepare()\n"
        "assert done.folder is None\n"
        "assert prepare() is done\n"
        "before = [len(k.signatures) for k in dispatchers().values()]\n"
        "from stentor import Filter\n"
        "from stentor.matching import Index\n"
        "assert Index([(1, Filter('x = 1'))]).match({'x': 1}) == [1]\n"
        "assert before == [len(k.signatures) for k in dispatchers().values()]\n"
        "print(done.problem)"
    )
    assert "nowhere" in run(code, environment(fixed_package))


def test_a_broker_in_a_program_prepares_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The loop goes on while it is done, or this would never end; and it is told at once."""
    go_on = threading.Event()
    told: list[str] = []

    def prepare(folder: Path | None, notice: Callable[[str], object]) -> Prepared:
        assert folder == tmp_path
        notice("compiling")
        assert go_on.wait(60.0)
        return Prepared(None, "the disk is full")

    async def start() -> None:
        settings = Settings(listen=("127.0.0.1:0",), kernels=tmp_path)
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(Broker(settings).start())
            while "compiling" not in caplog.text:
                assert not starting.done()
                await asyncio.sleep(0.001)
            told.append(caplog.text)
            go_on.set()

    monkeypatch.setattr("stentor.broker.host.is_prepared", lambda: False)
    monkeypatch.setattr("stentor.broker.host.prepare", prepare)
    asyncio.run(start())
    assert "full" not in told[0]
    assert "compiled matching code cannot be kept: the disk is full" in caplog.text


@pytest.mark.slow
def test_who_waits_for_a_compilation_is_told_why(tmp_path: Path) -> None:
    """Also in a program, whose loop goes on meanwhile."""
    code = (
        "import asyncio, sys, time\n"
        "from pathlib import Path\n"
        "from stentor.broker import Broker, Settings\n"
        "async def main():\n"
        "    settings = Settings(listen=('127.0.0.1:0',), kernels=Path(sys.argv[1]))\n"
        "    broker = Broker(settings)\n"
        "    began = last = time.monotonic()\n"
        "    starting, longest = asyncio.ensure_future(broker.start()), 0.0\n"
        "    while not starting.done():\n"
        "        await asyncio.sleep(0.01)\n"
        "        longest, last = max(longest, time.monotonic() - last), time.monotonic()\n"
        "    await starting\n"
        "    await broker.stop()\n"
        "    print(longest / (last - began))\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "kernels")]
    first, again = (
        subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
        for _ in range(2)
    )
    assert first.stderr.startswith("compiling the matching code first")
    assert str(tmp_path / "kernels") in first.stderr
    assert float(first.stdout) < 0.2
    assert again.stderr == ""
