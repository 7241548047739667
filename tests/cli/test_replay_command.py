"""`stentor replay` as an operator uses it: real processes, a real broker."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from nursery import Nursery
from overlay_processes import LIMITS, BrokerProcess, Overlay, until
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from stentor.cli.replay_progress import bar, fraction
from stentor.cli.replaying import _rough
from stentor.client.direct import Direct
from stentor.model import decode
from stentor.pipeline.archives.data_files import write_piece
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.replayer import Progressed
from stentor.pipeline.archives.tables import Archive, Step

WITHOUT_SPARK = Path(__file__).parents[1] / "processes" / "without_spark"
LONG = replace(LIMITS, timeout=60.0)
PATIENCE = 60.0
SCHEMA = (
    StructType()
    .add("n", LongType())
    .add("_type", StringType())
    .add("_time", TimestampType())
    .add("_broker", StringType())
    .add("_offset", LongType())
)
DAWN = 1_767_225_600_000_000


def archive_of(path: Path, times: Any) -> Path:
    """Events at these times, in microseconds after dawn."""
    count = len(times)
    table = pa.table(
        {
            "n": np.arange(count),
            "_type": pa.repeat("quote", count),
            "_time": pa.array(DAWN + np.asarray(times)).cast(pa.timestamp("us", "UTC")),
            "_broker": pa.repeat("b7", count),
            "_offset": np.arange(count) + 1,
        }
    )
    archive = Archive(Place(str(path)))
    archive.columns(table.schema)
    files = write_piece(archive.place, table)
    archive.commit(lambda _: Step(add=[file.action() for file in files]))
    return path


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[BrokerProcess]:
    with Overlay(tmp_path_factory.mktemp("brokers"), nursery) as overlay:
        found = overlay.broker("b1", limits=LONG)
        found.start()
        asyncio.run(until(found.reachable, "the broker answers"))  # a replay does not wait
        yield found


def head(broker: BrokerProcess) -> int:
    with Direct(broker.address) as direct:
        return direct.streams()[0].head


def numbers(broker: BrokerProcess, behind: int) -> list[int]:
    with Direct(broker.address) as direct:
        (state,) = direct.streams()
        stretches = direct.read(state.stream, behind + 1, state.head)
        return [decode(item)["n"] for stretch in stretches for item in stretch.items]


def start(*arguments: object) -> subprocess.Popen[str]:
    """The command, where no Spark is installed: it needs none."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STENTOR_")}
    paths = [str(WITHOUT_SPARK), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return subprocess.Popen(
        [sys.executable, "-m", "stentor", "replay", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(*arguments: object, answer: str = "") -> tuple[int, str]:
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert out == answer
    return process.returncode, err


@pytest.mark.spec("01/T-9")
def test_replays_all_in_order_and_says_how_many(broker: BrokerProcess, tmp_path: Path) -> None:
    path = archive_of(tmp_path / "archive", np.arange(2_000) * 1_000)
    before = head(broker)
    code, said = run(path, "--to", broker.address, "--speed", "10x")
    assert (code, said) == (0, "stentor: 2,000 events published\n")
    assert numbers(broker, before) == list(range(2_000))
    before = head(broker)
    code, said = run(
        f"file:{path}",
        "--to",
        broker.address,
        "--speed",
        "max",
        "--filter",
        "n < 1500",
        "--since",
        "2026-01-01T00:00:01Z",
        "-y",
        "--json",
        answer='{\n  "published": 500,\n  "incomplete": 0\n}\n',
    )
    assert (code, said) == (0, '{"level":"note","message":"500 events published"}\n')
    assert numbers(broker, before) == list(range(1_000, 1_500))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_goes_on_where_it_was_interrupted(
    broker: BrokerProcess, tmp_path: Path, number: signal.Signals
) -> None:
    # The second half comes an hour later: it is interrupted while it waits for that.
    times = [n * 10 + (3_600_000_000 if n >= 50 else 0) for n in range(100)]
    path = archive_of(tmp_path / "archive", times)
    before = head(broker)
    process = start(path, "--to", broker.address)
    try:
        while head(broker) < before + 50:
            assert process.poll() is None, process.communicate()
        process.send_signal(number)
        said = process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
    if number is signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number
        # The broker may have them before its answer has come.
        assert re.fullmatch(
            r"stentor: interrupted after (0|50) events; go on with --resume\n", said
        )
    code, said = run(path, "--to", broker.address, "--resume", "--speed", "max")
    assert (code, said) == (0, "stentor: 100 events published\n")
    assert numbers(broker, before) == list(range(100))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["--speed", "fast"],
            2,
            "STN-406: --speed: 'fast' is not a speed; write 1x, 10x or 0.5x, or max",
        ),
        (["--speed", "0x"], 2, "STN-406: --speed: '0x' is not a speed"),
        (["--since", "soon"], 2, "STN-406: 'soon' is not a time"),
        (["--filter", "n >"], 2, "STN-201"),
        (["--resume"], 2, "STN-406: there is no interrupted replay"),
        (["--to", "127.0.0.1:1"], 1, "STN-602: 127.0.0.1:1 cannot be reached"),
    ],
)
def test_mistakes_are_one_line_with_what_to_do(
    tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    from stentor.cli.app import run as run_here

    path = archive_of(tmp_path / "archive", [0, 1])
    found = _captured(run_here, ["replay", str(path), "--to", "127.0.0.1:1", *arguments])
    assert found[0] == code
    assert says in found[1]
    assert "Traceback" not in found[1]


def test_a_path_without_an_archive(tmp_path: Path) -> None:
    from stentor.cli.app import run as run_here

    code, said = _captured(run_here, ["replay", str(tmp_path / "x"), "--to", "127.0.0.1:1"])
    assert code == 1
    assert re.match(r"stentor: STN-703: there is no archive at .*; is the path right\?", said)


def _captured(run_here: Any, arguments: list[str]) -> tuple[int, str]:
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(SystemExit) as ended:
        run_here(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.getvalue()


def test_asks_before_it_begins(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    from stentor.cli.app import run as run_here

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    path = archive_of(tmp_path / "archive", [0, 5_400_000_000])
    before = head(broker)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    code, said = _captured(run_here, ["replay", str(path), "--to", broker.address, "--speed", "2x"])
    assert code == 0
    assert said == (
        "Publish up to 2 events from 2026-01-01T00:00:00Z to 2026-01-01T01:30:00Z to "
        f"{broker.address}, which takes about 45m? [y/N] stentor: nothing was published\n"
    )
    assert head(broker) == before
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    code, _ = _captured(run_here, ["replay", str(path), "--to", broker.address, "--speed", "max"])
    assert code == 0
    assert head(broker) == before + 2


def test_the_bar_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from rich.console import Console

    from stentor.cli import replay_progress

    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=120)
    monkeypatch.setattr(replay_progress, "Console", lambda **_: console)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    span = first, first + timedelta(hours=4)
    half = Progressed(1_500, 500, 3_000, first + timedelta(hours=2), span, 0)
    with bar(replace(half, events=0)) as (show, end):
        show(half)
        end()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue())
    assert "1,500" in shown
    assert "2026-01-01 02:00:00" in shown
    assert fraction(half) == 0.5
    assert fraction(replace(half, time=None)) == 0.5
    assert fraction(replace(half, most=0, span=None)) == 1.0
    assert fraction(replace(half, time=span[1] + timedelta(hours=1))) == 1.0
    assert [_rough(s) for s in (0.2, 59.9, 5_400, 200_000)] == ["no time", "59s", "1h 30m", "2d 7h"]
