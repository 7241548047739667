"""A damaged journal is noticed, never served, and gives back all that is good."""

import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_harness import Clock, Host

from stentor.broker.settings import Retention
from stentor.broker.storage import check, opening, repair, repairing
from stentor.broker.storage.database import BlocksDamaged
from stentor.errors import DataInUse, InvalidConfiguration, JournalDamaged, StentorError


def entry(number: int) -> bytes:
    return b"%d." % number * random.Random(number).choice([1, 10, 3000])


#: Ten blocks of three, with everything else that a journal holds.
ENTRIES = [entry(number) for number in range(1, 31)]


def fill(directory: Path, *, close: bool = True) -> Host:
    clock = Clock(1_000_000.0)
    host = Host(directory, clock=clock)
    for start in range(0, 30, 3):
        host.publish(
            *ENTRIES[start : start + 3],
            producers={"ann": (0, start)},
            durables={"desk": b"at %d" % start},
            retain=[(f"key {start}", 0)],
        )
        clock.time += 60
    if close:
        host.close()
    return host


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A journal that was closed."""
    directory = tmp_path_factory.mktemp("sound")
    fill(directory)
    return directory


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """What a process leaves that was killed: its newest commits are in the write-ahead log."""
    directory = tmp_path_factory.mktemp("crashed")
    copy = tmp_path_factory.mktemp("copy") / "data"
    host = fill(directory, close=False)
    shutil.copytree(directory, copy)
    host.close()
    return copy


@pytest.fixture
def directory(sound, tmp_path):
    return Path(shutil.copytree(sound, tmp_path / "data"))


def alter(directory: Path, *statements: str) -> None:
    """Change the database behind the journal's back."""
    db = sqlite3.connect(directory / "journal.db")
    with db:
        for statement in statements:
            db.execute(statement)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def flip(path: Path, place: int, bits: int = 0xFF) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ bits]))


def contents(directory: Path) -> dict[str, object]:
    """Everything that a host can get out of a journal."""
    with Host(directory) as host:
        return {
            "entries": host.entries(),
            "ann": host.journal.published("ann"),
            "durables": host.journal.durables(),
            "values": sorted(host.journal.last_values()),
        }


def test_a_sound_journal_is_in_order(sound, directory):
    report = check(directory)
    assert report.ok
    assert (report.low, report.head, report.blocks) == (1, 30, 10)
    assert (report.producers, report.durables, report.last_values) == (1, 1, 10)
    text = str(report)
    assert "offsets 1..30 in 10 blocks" in text
    assert "1970-01-12T13:46:40Z and 1970-01-12T13:55:40Z" in text
    assert "everything is in order" in text


def test_checking_changes_nothing(crashed, tmp_path):
    directory = Path(shutil.copytree(crashed, tmp_path / "data"))
    before = {f.name: f.read_bytes() for f in directory.iterdir() if "shm" not in f.name}
    assert check(directory).ok
    after = {f.name: f.read_bytes() for f in directory.iterdir() if "shm" not in f.name}
    assert before == after


def test_a_journal_in_use_can_be_checked_but_not_repaired(tmp_path):
    host = fill(tmp_path, close=False)
    assert check(tmp_path).ok
    with pytest.raises(DataInUse):
        repair(tmp_path)
    host.publish(b"goes on")
    host.close()


# -- what is noticed

BLOCKS = {
    "the first block is missing": "DELETE FROM block WHERE first = 1",
    "a block is missing": "DELETE FROM block WHERE first = 13",
    "the last block is missing": "DELETE FROM block WHERE first = 28",
    "all blocks are missing": "DELETE FROM block",
    "data was altered": "UPDATE block SET data = zeroblob(size) WHERE first = 13",
    "data was cut off": "UPDATE block SET data = substr(data, 1, 4), size = 4 WHERE first = 13",
    "data is of another type": "UPDATE block SET data = 5 WHERE first = 13",
    "data is missing": "UPDATE block SET data = NULL WHERE first = 13",
    "a length was altered": "UPDATE block SET length = 2 WHERE first = 13",
    "a length is missing": "UPDATE block SET length = NULL WHERE first = 13",
    "a time was altered": "UPDATE block SET time = 0.0 WHERE first = 13",
    "a block was moved": "UPDATE block SET first = 31 WHERE first = 28",
    "a block is there twice": "INSERT INTO block SELECT 32, length, time, size, previous, crc, data"
    " FROM block WHERE first = 28",
    "data was exchanged": "UPDATE block AS b SET data = (SELECT data FROM block AS o"
    " WHERE o.first = 32 - b.first) WHERE first IN (13, 19)",
}
STATE = {
    "the state was altered": "UPDATE state SET head = 27",
    "the state is missing": "DELETE FROM state",
    "the stream was altered": "UPDATE state SET stream = 'b1#00000000'",
    "a producer was altered": "UPDATE producer SET sequence = 5",
    "a durable subscription was altered": "UPDATE durable SET data = x'00'",
    "a last value was altered": "UPDATE last_value SET data = x'00' WHERE key = 'key 3'",
}


@pytest.mark.parametrize("damage", [*BLOCKS.values(), *STATE.values()], ids=[*BLOCKS, *STATE])
def test_what_was_altered_is_noticed(directory, damage):
    alter(directory, damage)
    with pytest.raises(JournalDamaged, match="stentor journal repair"):
        Host(directory)
    assert not check(directory).ok


def test_the_message_says_what_is_affected(directory):
    alter(directory, BLOCKS["data was altered"])
    with pytest.raises(JournalDamaged) as caught:
        Host(directory)
    message = str(caught.value)
    assert str(directory / "journal.db") in message
    assert "offsets 13..15" in message
    assert "1970-01-12T13:49:40Z and 1970-01-12T13:51:40Z" in message  # one commit to each side
    assert f"stentor journal check {directory}" in message


@pytest.mark.parametrize("damage", BLOCKS.values(), ids=BLOCKS)
def test_a_large_journal_is_verified_as_it_is_read(directory, damage, monkeypatch):
    """Not all of it can be verified on opening; what is damaged is still never served."""
    monkeypatch.setattr(opening, "VERIFY_BYTES", 1)
    alter(directory, damage)
    served = []
    left_out = []
    try:
        with Host(directory) as host:
            for offset in range(1, 31):
                try:
                    (found,) = host.journal.read(offset, 1)
                except BlocksDamaged as error:
                    left_out.append((offset, range(error.first, error.last + 1)))
                    continue
                assert found == ENTRIES[offset - 1]
                served.append(offset)
            with pytest.raises(JournalDamaged):
                host.journal.verify()
    except JournalDamaged:
        return  # noticed on opening
    # A reader can go on behind the damage, and knows what it leaves out.
    assert all(offset in stretch for offset, stretch in left_out)
    assert not {13, 14, 15} & set(served)
    assert {4, 5, 6, 25, 26, 27, 28, 29, 30} <= set(served)


@pytest.mark.parametrize("time", [0.0, 1e18, None, "x"])
def test_an_altered_time_never_hides_history(directory, time, monkeypatch):
    monkeypatch.setattr(opening, "VERIFY_BYTES", 1)
    db = sqlite3.connect(directory / "journal.db")
    with db:
        db.execute("UPDATE block SET time = ? WHERE first = 13", (time,))
    db.close()
    with Host(directory) as host:
        for number in range(11):
            try:
                found = host.journal.offset_at(1_000_000.0 + 60 * number)
            except JournalDamaged:
                continue
            assert found == 1 + 3 * number


@pytest.mark.parametrize("size", [0, 50, 4096, 10_000, 40_000])
def test_a_truncated_database_is_noticed(directory, size):
    path = directory / "journal.db"
    assert path.stat().st_size > size
    os.truncate(path, size)
    with pytest.raises(JournalDamaged):
        Host(directory)
    assert not check(directory).ok


@pytest.mark.parametrize("left", [0, 20, 0.5, 0.95, None])
def test_a_truncated_log_is_noticed(crashed, tmp_path, left):
    """SQLite reads as much of its log as fits together, and does not miss the rest."""
    directory = Path(shutil.copytree(crashed, tmp_path / "data"))
    log = directory / "journal.db-wal"
    if left is None:
        log.unlink()
        size = 0
    else:
        size = int(left * log.stat().st_size) if left < 1 else int(left)
        os.truncate(log, size)
    with pytest.raises(JournalDamaged):
        Host(directory)
    # Nothing was tidied up: there is still as much to look into.
    assert log.stat().st_size == size
    assert not check(directory).ok


def test_the_newest_commits_are_named_if_they_are_missing(crashed, tmp_path):
    directory = Path(shutil.copytree(crashed, tmp_path / "data"))
    log = directory / "journal.db-wal"
    os.truncate(log, log.stat().st_size - 100)
    with pytest.raises(JournalDamaged, match=r"newest 1 commits.*offsets 28\.\.30"):
        Host(directory)


def test_an_older_copy_is_noticed(tmp_path):
    fill(tmp_path / "data")
    shutil.copy(tmp_path / "data" / "journal.db", tmp_path / "backup")
    with Host(tmp_path / "data") as host:
        host.publish(b"after the backup")
    shutil.copy(tmp_path / "backup", tmp_path / "data" / "journal.db")
    with pytest.raises(JournalDamaged, match=r"offsets 31\.\.31"):
        Host(tmp_path / "data")


def test_a_copy_without_its_mark_is_noticed(directory):
    (directory / "journal.mark").unlink()
    with pytest.raises(JournalDamaged, match=r"journal\.mark is missing"):
        Host(directory)


def test_the_mark_of_another_journal_is_noticed(directory, tmp_path):
    fill(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "journal.mark", directory)
    with pytest.raises(JournalDamaged, match="belongs to the journal"):
        Host(directory)


def flip_some(directory: Path, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        path = directory / chance.choice(["journal.db", "journal.db-wal", "journal.mark"])
        if path.exists():
            flip(path, chance.randrange(path.stat().st_size), chance.choice([1, 0x80, 0xFF]))


def survive_flips(source: Path, directory: Path, chance: random.Random) -> None:
    """Whatever bits change, in whatever file: refused, or every answer is the right one."""
    shutil.copytree(source, directory)
    flip_some(directory, chance)
    try:
        assert contents(directory) == _expected
    except StentorError:
        try:
            report = repair(directory)
        except StentorError:
            shutil.rmtree(directory)
            return  # nothing is left to be read
        assert not report.ok
        saved = contents(directory)
        positions = [ENTRIES.index(item) for item in saved["entries"]]
        assert positions == sorted(set(positions))
        # The state is that of the newest commit that could be read, or lost.
        assert saved["ann"] is None or saved["ann"] in [(0, start) for start in range(0, 30, 3)]
        assert set(saved["values"]) <= set(_expected["values"])
        assert check(directory).ok
    shutil.rmtree(directory)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_no_flipped_bits_are_served(sound, crashed, tmp_path_factory, seed):
    chance = random.Random(seed)
    directory = tmp_path_factory.mktemp("flip") / "data"
    survive_flips(chance.choice([sound, crashed]), directory, chance)


@pytest.mark.slow
@settings(max_examples=1500)
@given(seed=st.integers(0, 2**32))
def test_no_flipped_bits_are_served_ever(sound, crashed, tmp_path_factory, seed):
    chance = random.Random(seed)
    directory = tmp_path_factory.mktemp("flip") / "data"
    survive_flips(chance.choice([sound, crashed]), directory, chance)


@pytest.fixture(scope="module", autouse=True)
def _contents(tmp_path_factory):
    global _expected
    directory = tmp_path_factory.mktemp("expected")
    fill(directory)
    _expected = contents(directory)
    assert _expected["entries"] == ENTRIES


# -- repairing


def test_a_sound_journal_is_left_alone(directory):
    before = contents(directory)
    report = repair(directory)
    assert (report.ok, report.repaired) == (True, None)
    assert contents(directory) == before
    names = ["journal.db", "journal.mark", "lock", "reserve"]
    assert sorted(f.name for f in directory.iterdir()) == names


def test_it_becomes_a_new_stream_if_forced(directory):
    before = contents(directory)
    stream = check(directory).stream
    report = repair(directory, force=True)
    assert report.repaired not in (None, stream)
    assert check(directory).stream == report.repaired
    assert contents(directory) == before


@pytest.mark.parametrize("damage", BLOCKS.values(), ids=BLOCKS)
def test_all_good_blocks_are_saved(directory, damage):
    alter(directory, damage)
    stream = check(directory).stream
    report = repair(directory)
    saved = contents(directory)
    everything = _expected
    assert {**saved, "entries": 0} == {**everything, "entries": 0}
    lost = [item for item in ENTRIES if item not in saved["entries"]]
    assert saved["entries"] == [item for item in ENTRIES if item not in lost]
    assert len(lost) in (0, 3, 6, 30)
    # It is another stream, of the same broker, and times have stayed.
    assert report.repaired != stream
    assert report.repaired.startswith("b1#")
    assert report.saved == len(saved["entries"])
    with Host(directory) as host:
        assert host.journal.stream == report.repaired
        if 0 < len(lost) < 30:
            last = host.journal.offset_at(1_000_000.0 + 9 * 60)
            assert last in (len(saved["entries"]) + 1, len(saved["entries"]) - 2)
        assert host.publish(b"goes on") == len(saved["entries"]) + 1


def test_the_report_says_what_was_lost(directory):
    alter(directory, BLOCKS["data was altered"], "DELETE FROM block WHERE first = 22")
    report = repair(directory)
    text = str(report)
    assert "offsets 13..15, journaled between 1970-01-12T13:49:40Z and" in text
    assert "offsets 22..24" in text
    assert "24 notifications are in the stream" in text
    assert report.kept == directory / "journal.damaged-1.db"
    # The old file is as it was.
    db = sqlite3.connect(report.kept)
    assert db.execute("SELECT count(*) FROM block").fetchone() == (9,)
    db.close()


def test_rows_that_were_altered_are_lost_alone(directory):
    alter(directory, STATE["a last value was altered"], "UPDATE producer SET epoch = 9")
    report = repair(directory)
    assert len(report.problems) == 2
    saved = contents(directory)
    assert saved["entries"] == ENTRIES
    assert saved["ann"] is None
    assert saved["durables"] == {"desk": b"at 27"}
    assert len(saved["values"]) == 9


def test_blocks_behind_unreadable_pages_are_found(tmp_path):
    items = [b"%06d" % number * 50 for number in range(400)]
    with Host(tmp_path) as host:
        for item in items:
            host.publish(item)
    path = tmp_path / "journal.db"
    chance = random.Random(7)
    for page in chance.sample(range(20, path.stat().st_size // 4096), 3):
        with path.open("r+b") as file:
            file.seek(page * 4096)
            file.write(chance.randbytes(4096))
    report = repair(tmp_path)
    assert not report.ok
    with Host(tmp_path) as host:
        saved = host.entries()
    assert [item for item in items if item in saved] == saved
    assert 400 - 3 * 13 <= len(saved) < 400  # a page holds a dozen such blocks


def test_nothing_left_but_the_name(directory):
    (directory / "journal.db").write_bytes(os.urandom(100_000))
    report = repair(directory)
    assert report.saved == 0
    assert "affected is everything" in str(report)
    with Host(directory) as host:
        assert host.publish(b"begins again") == 1


def test_nothing_left_at_all(directory):
    (directory / "journal.db").write_bytes(os.urandom(100_000))
    (directory / "journal.mark").write_bytes(b"")
    with pytest.raises(JournalDamaged, match="not even whose journal"):
        repair(directory)
    assert (directory / "journal.db").stat().st_size == 100_000


def test_there_is_nothing_to_check(tmp_path):
    for tool in (check, repair):
        with pytest.raises(InvalidConfiguration, match="no journal"):
            tool(tmp_path)


def test_repairs_are_kept_apart(directory):
    for number in (1, 2):
        report = repair(directory, force=True)
        assert report.kept == directory / f"journal.damaged-{number}.db"
    assert contents(directory)["entries"] == ENTRIES


def test_a_repair_may_be_interrupted_anywhere(directory, tmp_path, monkeypatch):
    """At every change of the directory in turn; the next attempt completes it."""

    class Interrupted(BaseException):
        pass

    alter(directory, BLOCKS["data was altered"])
    originals = {name: getattr(Path, name) for name in ("rename", "unlink")}
    completed = False
    countdown = 0
    while not completed:
        attempt = Path(shutil.copytree(directory, tmp_path / f"attempt {countdown}"))
        left = countdown

        def interrupted(name):
            def change(self, *args, **kwargs):
                nonlocal left
                if left == 0:
                    raise Interrupted
                left -= 1
                return originals[name](self, *args, **kwargs)

            return change

        with monkeypatch.context() as patched:
            for name in originals:
                patched.setattr(Path, name, interrupted(name))
            try:
                repair(attempt)
                completed = True
            except Interrupted:
                pass
        if not completed:
            with pytest.raises(StentorError):
                Host(attempt)
            assert repair(attempt).repaired is not None
        assert len(contents(attempt)["entries"]) == 27
        assert (attempt / "journal.damaged-1.db").exists()
        countdown += 1
    assert countdown > 5
    assert not list(tmp_path.glob("attempt */" + repairing._PART))


def test_retention_during_a_check_is_no_damage(tmp_path, monkeypatch):
    """The check has read the state when blocks at the low end go."""
    with Host(tmp_path, retention=Retention(None, 20_000)) as host:
        for number in range(30):
            host.publish(b"%d" % number * 300)
        scan = repairing.scan

        def late(*args):
            while host.journal.low < 40:
                host.publish(b"more" * 200)
            host.publish()
            host.publish()
            return scan(*args)

        monkeypatch.setattr(repairing, "scan", late)
        assert check(tmp_path).ok
