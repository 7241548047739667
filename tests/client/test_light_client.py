"""A client alone, where nothing is installed that only brokers and Spark need.

The modules are hidden, and with them those that Windows lacks: what a client imports must not
depend on them. The broker is an ordinary one beside it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from overlay_processes import Overlay

ROOT = Path(__file__).parents[2]
HIDDEN = (
    "numba,llvmlite,numpy,pyarrow,pandas,rich,uvloop,pyspark,py4j,"
    "fcntl,resource,pwd,grp,termios,tty,pty"
)
PATIENCE = 60

#: Publishes, subscribes in every form, asks and answers; prints what came.
PROGRAM = """
import asyncio, sys
import stentor

async def main(address):
    async with stentor.connect(address) as bus:
        async with bus.subscribe("n >= 2", durable="light") as numbers:
            await bus.publish_many([{"n": n} for n in range(4)], ack=True)
            print([(await numbers.get())["n"] for _ in range(2)])
        async with bus.inbox(*(f"n = {n}" for n in range(40))) as inbox:
            await bus.publish({"n": 7}, ack=True)
            n = await inbox.get()
            print(n["n"], [str(s.filter) for s in n.subscriptions])

asyncio.run(main(sys.argv[1]))
with stentor.connect_sync(sys.argv[1]) as bus:
    with bus.subscribe("s prefix 'a'") as texts:
        bus.publish({"s": "abc"}, ack=True)
        print(texts.get(timeout=30)["s"])
hidden = set(sys.argv[2].split(",")) & {name.partition(".")[0] for name in sys.modules}
assert not hidden, hidden
"""


def light(*arguments: str, hidden: str = HIDDEN) -> subprocess.CompletedProcess[str]:
    """Python where only a client is installed."""
    path = [str(ROOT / "tests" / "processes" / "without_spark"), str(ROOT / "src")]
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path), "HIDDEN_MODULES": hidden},
    )


def test_the_library(overlay: Overlay) -> None:
    (name,) = overlay.line(1)
    done = light("-c", PROGRAM, overlay[name].address, HIDDEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[2, 3]", "7 ['n = 7']", "abc"]


def test_the_commands(overlay: Overlay) -> None:
    (name,) = overlay.line(1)
    address = overlay[name].address
    for arguments, printed in [
        (["publish", address, '{"price": 120.5}'], ""),
        (["subscribe", address, "price > 100", "--since", "earliest", "--count", "1"], "120.5"),
        (["status", address, "--json"], name),
        (["durables", address, "--json"], ""),
        (["links", "list", address, "--json"], ""),
        (["offers", address], ""),
        (["explain", "STN-602"], "STN-602"),
        (["version"], "stentor"),
    ]:
        done = light("-m", "stentor", *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert printed in done.stdout


@pytest.mark.parametrize(
    ("hidden", "says"),
    [
        ("numba,numpy,pyarrow,uvloop", "pip install 'stentor[broker]'"),
        (HIDDEN, "a broker runs on Linux or macOS"),
    ],
)
def test_what_needs_more_says_what_to_do(hidden: str, says: str) -> None:
    done = light("-m", "stentor", "broker", "--listen", "127.0.0.1:0", hidden=hidden)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("from stentor.broker import Broker", "a broker needs n.*'stentor\\[broker\\]'"),
        ("from stentor.pipeline import events", "events needs .*'stentor\\[spark\\]'"),
    ],
)
def test_a_program_is_told_what_to_install(line: str, says: str) -> None:
    done = light("-c", line)
    assert done.returncode == 1
    assert re.search(says, done.stderr.splitlines()[-1]), done.stderr


def test_an_archive_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    program = f"import stentor; stentor.history({str(tmp_path)!r}, 'x = 1')"
    done = light("-c", program, hidden="deltalake")
    assert "pip install 'stentor[archive]'" in done.stderr
