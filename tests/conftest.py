"""What every test run shares: Hypothesis profiles, and a Numba cache per process.

Hypothesis. `dev` searches anew each time and remembers failures; `ci`, chosen when the environment
variable CI is set, always tries the same examples, so that a red run can be repeated; `thorough`
tries many more. HYPOTHESIS_PROFILE names another than the default. None has a deadline: the first
call of a kernel compiles it.

Numba. Compiled kernels are kept on disk between runs, but Numba's cache is not made for several
processes that compile at the same time: two may give their code the same file name, and one then
loads the other's. Nor does it notice that a kernel changed which another file's kernel calls. So a
test process claims a cache directory of its own for as long as it lives, and empties it when any
kernel's source differs from what the cache was made from.

Ctrl-C. What a shell runs in the background ignores it, and so does whatever that starts. Tests that
interrupt programs need these to hear it.
"""

import fcntl
import gc
import hashlib
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from nursery import Nursery
    from overlay_processes import Overlay
    from pyspark.sql import SparkSession

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["stentor.testing.plugin", "pytester"]

ROOT = Path(__file__).resolve().parent.parent

#: Whoever imports it hides Spark from the process, and collecting doctests would.
collect_ignore = ["processes/without_spark"]

_SLOW_MACHINE = [HealthCheck.too_slow]
settings.register_profile("dev", deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=2000)
_default_profile = "ci" if os.environ.get("CI") else "dev"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _default_profile))


def _kernel_digest() -> str:
    """Changes with any source file that mentions Numba."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_bytes()
        if b"numba" in source:
            digest.update(f"{path.relative_to(ROOT)} {len(source)}\n".encode())
            digest.update(source)
    return digest.hexdigest()


def _claim_numba_cache(caches: Path) -> IO[str]:
    """Points Numba at the first cache that no other process holds; held while the file is open."""
    caches.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        claim = (caches / f"{number}.digest").open("a+")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            continue
        break
    cache = caches / str(number)
    digest = _kernel_digest()
    claim.seek(0)
    if claim.read() != digest:
        shutil.rmtree(cache, ignore_errors=True)
        claim.truncate(0)
        claim.write(digest)
        claim.flush()
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    return claim


_claim = _claim_numba_cache(ROOT / ".cache" / "numba")


@pytest.fixture(scope="session", autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    """Where brokers run, matching code is compiled before: no test has time for that."""
    if any(_RUN_BROKERS & set(item.path.parts) for item in request.session.items):
        from stentor.matching.index.preparing import prepare

        prepare()


_RUN_BROKERS = {"broker", "cli", "client", "pipeline", "processes"}


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing goes but what nobody refers to. So it is in brokers, which seldom collect garbage."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# -- what tests with processes share: one nursery for all of them


@pytest.fixture(scope="session")
def nursery() -> Iterator["Nursery"]:
    from nursery import Nursery

    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def overlay(tmp_path: Path, nursery: "Nursery") -> Iterator["Overlay"]:
    from overlay_processes import Overlay

    with Overlay(tmp_path, nursery) as overlay:
        yield overlay


# -- what tests with Spark share: one session in each process


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")  # nothing may depend on it
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def spark(spark_session: "SparkSession") -> Iterator["SparkSession"]:
    """The session that all modules share; what one of them sets is undone after it."""
    before = spark_session.conf.getAll
    yield spark_session
    for key, value in spark_session.conf.getAll.items():
        if value == before.get(key) or not spark_session.conf.isModifiable(key):
            continue
        if key in before:
            spark_session.conf.set(key, before[key])
        else:
            spark_session.conf.unset(key)
