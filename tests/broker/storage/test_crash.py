"""A process that is killed at any moment loses nothing that it acknowledged."""

import os
import random
from pathlib import Path

import pytest
from appender import Appender, entry
from journal_harness import Host

from stentor.broker.storage import check
from stentor.errors import DataInUse


def survive(directory: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged = 0
    for number in range(rounds):
        appender = Appender(directory, seed + number)
        lines = [appender.lines.readline() for _ in range(chance.choice([0, 1, 2, 5, 20]))]
        lines += appender.kill()
        if lines:
            assert int(lines[0]) >= acknowledged, "something acknowledged was lost"
            acknowledged = int(lines[-1].split()[-1])
        with Host(directory) as host:
            head = host.journal.head
            assert head >= acknowledged, "something acknowledged was lost"
            # Each entry is there once and in its place, whether or not it was acknowledged.
            assert host.entries() == [entry(offset) for offset in range(1, head + 1)]
            # And what was stored with it, so exactly with it.
            if head:
                assert host.journal.published("ann") == (0, head)
                assert host.journal.durable("desk") == b"%d" % head
                (newest,) = host.journal.last_values()
                assert newest.data == entry(head)
            host.journal.verify()
    assert check(directory).ok
    assert acknowledged > 0


@pytest.mark.spec("R-07.39", "R-07.55", "R-07.60")
def test_killed_at_random_moments(tmp_path):
    survive(tmp_path, rounds=30, seed=random.randrange(10**6))


@pytest.mark.slow
@pytest.mark.spec("R-07.39", "R-07.55", "R-07.60")
def test_killed_at_many_random_moments(tmp_path):
    for journal in range(8):
        survive(tmp_path / str(journal), rounds=40, seed=random.randrange(10**6))


def test_the_lock_of_a_killed_process_does_not_remain(tmp_path):
    appender = Appender(tmp_path, 1)
    appender.lines.readline()
    with pytest.raises(DataInUse, match=f"process id {appender.pid}"):
        Host(tmp_path)
    appender.kill()
    Host(tmp_path).close()


def test_a_crash_between_commit_and_mark_is_no_damage(tmp_path):
    with Host(tmp_path) as host:
        host.publish(b"a")
        mark = (tmp_path / "journal.mark").read_bytes()
        host.publish(b"b")
    (tmp_path / "journal.mark").write_bytes(mark)
    with Host(tmp_path) as host:
        assert host.entries() == [b"a", b"b"]


def test_a_crash_while_it_is_made_is_no_damage(tmp_path):
    os.close(os.open(tmp_path / "journal.db", os.O_CREAT | os.O_WRONLY))
    with Host(tmp_path) as host:
        assert host.publish(b"a") == 1
