"""Faults planted into the core on purpose, and what finds them.

A suite that passes says little unless it also fails when it should. So here is a table of faults of
the kinds that programmers make: a step left out, a bound off by one, an order turned round, a table
that is not cleaned up. `planted_faults.toml` has them, each as one replacement in one file. The
program copies the source, plants one fault at a time into the copy, and runs the tests there until
one of them fails.

A fault that changes what a user can see has to be found by a fast test. One that changes nothing
anybody can see says why in `equivalent`, and is expected not to be found.

    python tests/node/live/planted_faults.py                  all of them
    python tests/node/live/planted_faults.py feed settling    those whose names begin like this
    python tests/node/live/planted_faults.py --near           only by the tests that are near
    python tests/node/live/planted_faults.py --check          only whether all can be planted
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
#: Where faults are looked for, besides what is near to them: not by the test of this table, which
#: would notice every one.
EVERYWHERE = (
    *("tests/node", "tests/routing", "tests/simulation"),
    "--ignore=tests/node/live/test_planted_faults.py",
)
#: Seconds after which tests that do not end have found the fault: it makes something hang.
PATIENCE = 900


class Fault(NamedTuple):
    """A replacement in one file, and the tests that are tried first."""

    name: str
    file: str
    old: str
    new: str
    near: list[str]
    equivalent: str = ""

    @property
    def path(self) -> Path:
        return Path("src/stentor") / self.file


def faults() -> list[Fault]:
    """All of the table."""
    table = tomllib.loads((HERE / "planted_faults.toml").read_text())
    return [Fault(**each) for each in table["fault"]]


class Outcome(NamedTuple):
    """What became of one fault: the test that found it, or none."""

    fault: Fault
    found_by: str | None
    seconds: float

    @property
    def as_expected(self) -> bool:
        return (self.found_by is None) == bool(self.fault.equivalent)


def problems(root: Path = ROOT) -> list[str]:
    """What keeps faults from being planted: each replaces exactly one place."""
    found = []
    for fault in faults():
        times = (root / fault.path).read_text().count(fault.old)
        if times != 1 or fault.old == fault.new:
            found.append(f"{fault.name}: {times} places in {fault.file}")
    return found


@contextmanager
def planted(fault: Fault, copy: Path) -> Iterator[None]:
    path = copy / fault.path
    intact = path.read_text()
    path.write_text(intact.replace(fault.old, fault.new))
    try:
        yield
    finally:
        path.write_text(intact)


def copied() -> Path:
    """A copy of the source and its tests, where kernels once compiled stay so."""
    copy = ROOT / ".cache" / "planted" / os.environ.get("PYTEST_XDIST_WORKER", "alone")
    copy.mkdir(parents=True, exist_ok=True)
    for part in ("src", "tests", "tools"):
        shutil.rmtree(copy / part, ignore_errors=True)
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def first_failure(copy: Path, tests: Sequence[str]) -> str | None:
    """The first of these tests that fails, or does not end."""
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--benchmark-disable", "--tb=line"]
    command = [sys.executable, "-m", "pytest", *options, "-m", "not slow", *tests]
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "HYPOTHESIS_PROFILE": "ci",
    }
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(tests)}: no end"
    if not done.returncode:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else (done.stdout + done.stderr)[-500:]


def look_for(chosen: Iterable[Fault], *, everywhere: bool = True) -> Iterator[Outcome]:
    """Plant each fault by itself, and run the tests near to it, then all of them."""
    copy = copied()
    for fault in chosen:
        start = time.perf_counter()
        with planted(fault, copy):
            found = first_failure(copy, [f"tests/{path}" for path in fault.near])
            if found is None and everywhere and not fault.equivalent:
                found = first_failure(copy, EVERYWHERE)
        yield Outcome(fault, found, time.perf_counter() - start)


def main() -> None:
    wrong = problems()
    for problem in wrong:
        print(problem)
    if wrong or "--check" in sys.argv:
        sys.exit(bool(wrong))
    names = tuple(name for name in sys.argv[1:] if not name.startswith("--"))
    chosen = [fault for fault in faults() if not names or fault.name.startswith(names)]
    unexpected = 0
    for outcome in look_for(chosen, everywhere="--near" not in sys.argv):
        unexpected += not outcome.as_expected
        said = outcome.found_by or ("equivalent" if outcome.fault.equivalent else "NOT FOUND")
        print(f"{outcome.seconds:5.0f} s  {outcome.fault.name}\n         {said}", flush=True)
    print(f"{len(chosen)} faults, {unexpected} not as expected")
    sys.exit(bool(unexpected))


if __name__ == "__main__":
    main()
