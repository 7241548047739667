"""What a journal promises while nothing goes wrong."""

import asyncio
import os
import stat
import threading

import pytest
from journal_harness import Clock, Host

from stentor.broker.settings import Retention
from stentor.broker.storage import Journal, JournalBatch, database
from stentor.broker.storage import journal as journal_module
from stentor.broker.storage import writer as writer_module
from stentor.broker.storage.reader import CACHE_BYTES
from stentor.errors import (
    DataInUse,
    HistoryGone,
    InvalidConfiguration,
    JournalUnavailable,
    Overloaded,
    ShuttingDown,
)


@pytest.fixture(params=["disk", "memory"])
def place(request, tmp_path):
    return tmp_path / "data" if request.param == "disk" else None


# -- appending and reading


@pytest.mark.spec("R-07.60")
def test_offsets_are_consecutive_from_one(place):
    with Host(place) as host:
        assert (host.journal.head, host.journal.low) == (0, 1)
        assert host.publish(b"a", b"b") == 1
        assert host.publish(b"c") == 3
        assert host.publish() == 4
        assert host.publish(b"d") == 4
        assert (host.journal.head, host.journal.low) == (4, 1)
        assert host.entries() == [b"a", b"b", b"c", b"d"]
        assert host.journal.read(2, 1) == [b"b"]
        assert host.journal.read(5, 10) == []


@pytest.mark.spec("R-07.39", "R-07.60")
def test_everything_is_there_after_reopening(tmp_path):
    with Host(tmp_path) as host:
        stream = host.journal.stream
        host.publish(b"a", b"b", producers={"ann": (3, 8)})
    with Host(tmp_path) as host:
        assert host.journal.stream == stream
        assert host.entries() == [b"a", b"b"]
        assert host.journal.published("ann") == (3, 8)
        assert host.publish(b"c") == 3
    with Host(tmp_path) as host:
        assert host.entries() == [b"a", b"b", b"c"]
        host.journal.verify()


def test_a_stream_is_unique_to_its_journal(tmp_path):
    with Host(tmp_path / "1") as one, Host(tmp_path / "2") as other, Host(None) as third:
        streams = {host.journal.stream for host in (one, other, third)}
    assert len(streams) == 3
    assert all(stream.startswith("b1#") and len(stream) == 11 for stream in streams)


def test_what_waits_is_committed_together(tmp_path):
    with Host(tmp_path, start=False) as host:
        batches = [JournalBatch([b"%d" % n], context=n) for n in range(100)]
        for batch in batches:
            host.journal.append(batch)
        host.journal.append(JournalBatch(durables={"desk": b"state"}, context="durable"))
        assert host.journal.pending == 101
        host.journal.start(host.call, host.committed.append)
        host.settle()
        (done,) = host.committed
        assert [first for _, first in done] == [*range(1, 101), 101]
        assert [batch.context for batch, _ in done] == [*range(100), "durable"]
        assert all(batch.error is None for batch, _ in done)
        assert host.journal.status()["commits"] == 1
        assert host.journal.pending == 0


def test_nothing_is_visible_before_it_is_announced(tmp_path):
    with Host(tmp_path) as host:
        host.publish(b"a")
        host.journal.append(JournalBatch([b"b"]))
        function, args = host.calls.get(timeout=60)  # it is on disk now
        assert host.journal.head == 1
        assert host.journal.read(2, 10) == []
        function(*args)
        assert host.journal.head == 2
        assert host.journal.read(2, 10) == [b"b"]


def test_callbacks_come_in_the_event_loop(place):
    async def main():
        journal = Journal.open(place, name="b1", retention=Retention())
        loop = asyncio.get_running_loop()
        finished = loop.create_future()
        threads = set()
        seen = []

        def committed(done):
            threads.add(threading.current_thread())
            for batch, first in done:
                seen.append((batch.items, journal.read(first, 2)))
            if len(seen) == 50:
                finished.set_result(None)

        journal.start(loop.call_soon_threadsafe, committed)
        for number in range(50):
            journal.append(JournalBatch([b"%d" % number, b"-"], context=number))
            if number % 7 == 0:
                await asyncio.sleep(0)
        await finished
        assert threads == {threading.current_thread()}
        assert all(items == read for items, read in seen)
        assert journal.head == 100
        journal.close()

    asyncio.run(main())


def test_a_large_batch_is_one_commit_of_many_blocks(place):
    items = [bytes([n % 256]) * 100_000 for n in range(40)] + [b"small"] * 5000
    items.append(bytes(5 * 2**20))
    with Host(place) as host:
        host.publish(*items)
        assert len(host.committed) == 1
        assert len(host.journal.read(1, 10_000)) == 10  # the first megabyte
        assert host.entries() == items
        host.journal.verify()


def test_reading_takes_bounded_memory(tmp_path):
    with Host(tmp_path) as host:
        items = [os.urandom(1000) for _ in range(40_000)]  # more than the cache
        for start in range(0, len(items), 4000):
            host.publish(*items[start : start + 4000])
        assert host.entries() == items
        assert host.journal._reader._cache_bytes <= CACHE_BYTES
        assert host.entries(20_001) == items[20_000:]


@pytest.mark.parametrize("mistake", [{"retain": [("key", 5)]}, {"producers": {"x": (2**70, 0)}}])
def test_an_impossible_batch_fails_alone(tmp_path, mistake):
    with Host(tmp_path, start=False) as host:
        good, late = JournalBatch([b"good"]), JournalBatch([b"late"])
        bad = JournalBatch([b"bad"], **mistake)
        for batch in (good, bad, late):
            host.journal.append(batch)
        host.journal.start(host.call, host.committed.append)
        host.settle()
        assert isinstance(bad.error, JournalUnavailable)
        assert (good.error, late.error) == (None, None)
        assert host.entries() == [b"good", b"late"]


# -- bounds


def test_the_host_is_told_when_too_much_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "MAX_PENDING", 10)
    with Host(tmp_path, start=False) as host:
        host.journal.append(JournalBatch([b"x"] * 9))
        assert not host.journal.full
        host.journal.append(JournalBatch([b"x"] * 32))
        assert host.journal.full
        with pytest.raises(Overloaded):
            host.journal.append(JournalBatch([b"refused"]))
        host.journal.append(JournalBatch(durables={"desk": b"confirmations still pass"}))
        host.journal.start(host.call, host.committed.append)
        host.settle()
        assert not host.journal.full
        assert host.journal.head == 41


def test_one_commit_takes_a_bounded_part_of_what_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "_COMMIT_WEIGHT", 10)
    with Host(tmp_path, start=False) as host:
        for number in range(10):
            host.journal.append(JournalBatch([b"%d" % number] * 4))
        host.journal.start(host.call, host.committed.append)
        host.settle()
        assert [sum(map(len, (b for b, _ in done))) for done in host.committed] == [12, 12, 12, 4]
        assert host.journal.head == 40


def test_the_producers_that_were_silent_longest_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "MAX_PRODUCERS", 3)
    with Host(tmp_path) as host:
        for number in range(5):
            host.publish(b"x", producers={f"p{number}": (0, number)})
        host.publish(b"x", producers={"p0": (0, 9)})
    with Host(tmp_path) as host:
        assert host.journal.producers() == {"p3": (0, 3), "p4": (0, 4), "p0": (0, 9)}


def test_producers_are_forgotten_with_what_they_published(tmp_path):
    clock = Clock()
    with Host(tmp_path, retention=Retention(100.0, None), clock=clock) as host:
        host.publish(b"x", producers={"old": (0, 1)})
        clock.time += 200
        host.publish(b"x", producers={"new": (0, 1)})
    with Host(tmp_path, clock=clock) as host:
        assert host.journal.producers() == {"new": (0, 1)}


def test_last_values_are_bounded(place, monkeypatch):
    monkeypatch.setattr(writer_module, "MAX_LAST_VALUES", 3)
    with Host(place) as host:
        for number in range(6):
            host.publish(b"%d" % number, retain=[(f"k{number}", 0)])
        while host.journal.status()["last_values"] > 3:
            host.publish()
        assert {v.key for v in host.journal.last_values()} == {"k3", "k4", "k5"}
        assert host.journal.status()["last_values_dropped"] == 3


# -- producers, durable subscriptions, last values


def test_the_mark_of_a_producer_never_goes_back(place):
    with Host(place) as host:
        host.publish(b"a", producers={"ann": (1, 5), "bob": (0, 0)})
        host.publish(b"b", producers={"ann": (1, 4)})
        assert host.journal.published("ann") == (1, 5)
        host.publish(b"c", producers={"ann": (2, 0)})
        assert host.journal.published("ann") == (2, 0)
        assert host.journal.published("eve") is None
        assert host.journal.producers() == {"ann": (2, 0), "bob": (0, 0)}


@pytest.mark.spec("R-07.40")
def test_durable_subscriptions_are_kept_under_their_names(tmp_path):
    with Host(tmp_path) as host:
        host.journal.append(JournalBatch(durables={"desk": b"1"}))
        host.journal.append(JournalBatch(durables={"desk": b"2"}, context="second"))
        host.journal.append(JournalBatch(durables={"gone": b"3"}))
        host.journal.append(JournalBatch(durables={"gone": None}))
        host.settle()
        assert host.journal.durables() == {"desk": b"2"}
        assert host.journal.durable("desk") == b"2"
        assert host.journal.durable("gone") is None
        assert host.journal.head == 0
    with Host(tmp_path) as host:
        assert host.journal.durables() == {"desk": b"2"}


@pytest.mark.spec("R-07.49")
def test_the_last_value_of_each_key_is_kept(place):
    clock = Clock()
    with Host(place, clock=clock) as host:
        host.publish(b"ibm 1", b"sap 1", b"ibm 2", retain=[("ibm", 0), ("sap", 1), ("ibm", 2)])
        clock.time += 5
        host.publish(b"sap 2", retain=[("sap", 0)])
        values = {value.key: (value.time, value.data) for value in host.journal.last_values()}
        assert values == {"ibm": (1_000_000.0, b"ibm 2"), "sap": (1_000_005.0, b"sap 2")}
        host.journal.append(JournalBatch(forget=["ibm"]))
        host.publish(b"sap 3", forget=["sap"], retain=[("sap", 0)])
        assert [value.data for value in host.journal.last_values()] == [b"sap 3"]


@pytest.mark.spec("R-07.49")
def test_last_values_outlive_retention_and_restart(tmp_path):
    clock = Clock()
    with Host(tmp_path, retention=Retention(100.0, None), clock=clock) as host:
        host.publish(b"kept", retain=[("key", 0)])
        clock.time += 1000
        host.publish(b"newer")
        host.publish(b"newest")
        while host.journal.low == 1:
            host.step()
    with Host(tmp_path, clock=clock) as host:
        assert [value.data for value in host.journal.last_values()] == [b"kept"]


# -- time


def test_history_begins_with_the_first_commit_of_that_time_or_later(place):
    clock = Clock(100.0)
    with Host(place, clock=clock) as host:
        assert host.journal.offset_at(0.0) == 1
        for _ in range(10):
            host.publish(b"x", b"y", b"z")
            clock.time += 10
        assert host.journal.offset_at(0.0) == 1
        assert host.journal.offset_at(100.0) == 1
        assert host.journal.offset_at(100.5) == 4
        assert host.journal.offset_at(150.0) == 16
        assert host.journal.offset_at(190.0) == 28
        assert host.journal.offset_at(190.1) == 31


def test_times_never_go_back(tmp_path):
    clock = Clock(100.0)
    with Host(tmp_path, clock=clock) as host:
        host.publish(b"a")
        clock.time = 50.0
        host.publish(b"b")
    with Host(tmp_path, clock=clock) as host:  # the last time is remembered
        host.publish(b"c")
        clock.time = 120.0
        host.publish(b"d")
        assert [host.journal.offset_at(t) for t in (60.0, 100.0, 100.1, 120.0, 121.0)] == [
            *(1, 1, 4, 4, 5)
        ]


# -- retention


def test_retention_by_bytes(place):
    with Host(place, retention=Retention(None, 100_000)) as host:
        for number in range(200):
            host.publish(b"%04d" % number * 250)  # about 1 kB
            # What was appended while the event loop was being told comes on top.
            assert host.journal.status()["bytes"] <= 105_000
            assert len(host.entries()) == host.journal.head - host.journal.low + 1
        assert host.entries()[-1] == b"0199" * 250
        assert 80 < len(host.entries()) < 100
        with pytest.raises(HistoryGone):
            host.journal.read(host.journal.low - 1, 1)
        host.journal.verify()
        low = host.journal.low
    if place is not None:
        with Host(place) as host:
            assert host.journal.low == low
            assert host.entries()[-1] == b"0199" * 250


def test_retention_by_time(place):
    clock = Clock()
    with Host(place, retention=Retention(640.0, None), clock=clock) as host:
        for _ in range(100):
            host.publish(b"x")
            clock.time += 20
        # At most a sixty-fourth more than what was asked for, and never less.
        while clock.time - (1_000_000 + 20 * (host.journal.low - 1)) > 640 + 10:
            host.publish()
        assert clock.time - (1_000_000 + 20 * (host.journal.low - 1)) >= 640
        assert host.journal.offset_at(0.0) == host.journal.low


@pytest.mark.spec("R-07.40")
def test_retention_keeps_what_a_durable_subscription_needs(tmp_path, caplog):
    clock = Clock()
    bounds = Retention(100.0, None, durable_seconds=1_000.0)
    with Host(tmp_path, retention=bounds, clock=clock) as host:

        def publish(count):
            for _ in range(count):
                host.publish(b"x")
                clock.time += 20

        host.journal.keep_from(11)
        publish(30)
        assert host.journal.low == 11
        host.journal.keep_from(16)  # some of it was confirmed
        publish(2)
        while host.journal.low < 16:
            host.publish()
        assert host.journal.low == 16
        assert host.journal.status()["wanted_removed"] == 0
        # The bound wins, and that is told.
        publish(60)
        while host.journal.low < 30:
            host.publish()
        while not host.journal.status()["wanted_removed"]:
            host.publish()
        assert caplog.text.count("what durable subscriptions have not confirmed") == 1
        host.journal.keep_from(None)
        publish(2)
        while clock.time - (1_000_000 + 20 * (host.journal.low - 1)) > 140:
            host.publish()
    assert 0 < host.journal.status()["wanted_removed"] < host.journal.low - 16


@pytest.mark.spec("R-07.40")
def test_a_journal_grows_for_durable_subscriptions_up_to_a_bound(tmp_path):
    with Host(tmp_path, retention=Retention(None, 20_000, durable_bytes=60_000)) as host:
        host.journal.keep_from(1)
        while host.journal.status()["bytes"] < 50_000:
            host.publish(bytes(1_000))
        assert host.journal.low == 1
        for _ in range(50):
            host.publish(bytes(1_000))
        assert host.journal.low > 1
        assert 40_000 < host.journal.status()["bytes"] < 65_000
    assert 0 < host.journal.status()["wanted_removed"] < host.journal.low


def test_retention_never_removes_the_newest_block(place):
    clock = Clock()
    with Host(place, retention=Retention(10.0, 100), clock=clock) as host:
        host.publish(b"old")
        host.publish(*[b"x" * 1000] * 10)
        clock.time += 1000
        while host.journal.low == 1:
            host.publish()
        for _ in range(5):
            host.publish()
        assert (host.journal.low, host.journal.head) == (2, 11)
        assert len(host.entries()) == 10


def test_nobody_reads_into_a_hole(tmp_path):
    """What retention takes is deleted only when the event loop knows of it."""
    with Host(tmp_path, retention=Retention(None, 10_000)) as host:
        for number in range(300):
            host.publish(b"%04d" % number * 100)
            # Whatever the writer's thread is doing: all from `low` on is there.
            assert host.entries()[-1] == b"%04d" % number * 100
        assert host.journal.low > 200


def test_space_is_given_back(tmp_path):
    with Host(tmp_path) as host:
        for _ in range(20):
            host.publish(os.urandom(500_000))
        host.close()
        large = host.journal.path.stat().st_size
    with Host(tmp_path, retention=Retention(None, 1_000_000)) as host:
        while host.journal.low < 19:
            host.step()
        host.publish(b"x")
        while host.journal._writer._vacuuming:
            host.publish()
        host.close()
        assert large > 10_000_000
        assert host.journal.path.stat().st_size < 3_000_000


def test_memory_is_bounded_unless_asked_otherwise(monkeypatch):
    monkeypatch.setattr(writer_module, "MEMORY_BYTES", 100_000)
    for retention in (Retention(), Retention(None, None)):
        with Host(None, retention=retention) as host:
            for _ in range(300):
                host.publish(bytes(1000))
            assert host.journal.status()["bytes"] <= 100_000
    with Host(None, retention=Retention(None, 200_000)) as host:
        for _ in range(300):
            host.publish(bytes(1000))
        assert 150_000 < host.journal.status()["bytes"] <= 200_000


# -- the directory


def test_it_is_for_its_owner_alone(tmp_path):
    with Host(tmp_path / "a" / "b") as host:
        host.publish(b"x")
        assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
        for file in (tmp_path / "a" / "b").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_one_process_uses_it_at_a_time(tmp_path):
    with Host(tmp_path), pytest.raises(DataInUse, match=str(os.getpid())):
        Host(tmp_path)
    Host(tmp_path).close()


def test_a_journal_belongs_to_one_name(tmp_path):
    Host(tmp_path, name="b1").close()
    with pytest.raises(InvalidConfiguration, match="'b1', not of 'b2'"):
        Host(tmp_path, name="b2")
    Host(tmp_path, name="b1").close()


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfiguration, match="is a file"):
        Host(tmp_path / "file")


def test_a_newer_format_is_refused(tmp_path):
    Host(tmp_path).close()
    db = database.connect(tmp_path / "journal.db")
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(InvalidConfiguration, match="format 2; this release reads 1"):
        Host(tmp_path)


def test_another_database_is_refused(tmp_path):
    db = database.connect(tmp_path / "journal.db")
    db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(InvalidConfiguration, match="not a journal"):
        Host(tmp_path)


def test_closing_commits_what_waits(place):
    host = Host(place)
    batches = [JournalBatch([b"%d" % n]) for n in range(100)]
    for batch in batches:
        host.journal.append(batch)
    host.close()
    host.close()
    assert [b for done in host.committed for b, _ in done] == batches
    with pytest.raises(ShuttingDown):
        host.journal.append(JournalBatch([b"late"]))
    if place is not None:
        assert sorted(file.name for file in place.iterdir()) == [
            *("journal.db", "journal.mark", "lock", "reserve"),
        ]
        with Host(place) as again:
            assert again.entries() == [b"%d" % n for n in range(100)]


def test_closing_leaves_no_thread(tmp_path):
    before = threading.active_count()
    with Host(tmp_path) as host:
        host.publish(b"x")
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_in_memory_no_turn_of_the_loop_stores_much(monkeypatch):
    """Though all of it is one transaction; what was there before can be read in between."""
    counts = dict.fromkeys(("blocks", "values"), 0)

    def counting(what, function):
        def counted(*args):
            counts[what] += 1
            return function(*args)

        return counted

    monkeypatch.setattr(writer_module, "pack", counting("blocks", writer_module.pack))
    put = counting("values", writer_module.put_last_value)
    monkeypatch.setattr(writer_module, "put_last_value", put)
    with Host(None) as host:
        host.publish(b"before")
        items = [b"%d" % i for i in range(10_000)]
        many = JournalBatch(items, retain=[(f"k{i:05}", i) for i in range(10_000)])
        host.journal.append(many)
        host.journal.append(JournalBatch([b"behind"]))
        turns = 0
        while host.journal.pending:
            counts.update(blocks=0, values=0)
            host.step()
            assert counts["blocks"] <= 1
            assert counts["values"] <= writer_module._STEP_ROWS
            turns += 1
            assert host.journal.read(1, 1) == [b"before"]
            assert host.journal.head in (1, 10_002)
        assert turns > 10
        assert host.entries(2) == [*items, b"behind"]
        assert len(host.journal.last_values()) == 10_000


def test_in_memory_a_copy_waits_for_what_is_being_stored(tmp_path):
    with Host(None) as host:
        host.journal.append(JournalBatch([b"%d" % i for i in range(10_000)]))
        host.step()
        assert host.journal.head == 0
        copy = database.connect(tmp_path / "copy.db")
        host.journal.backup_to(copy)
        assert copy.execute("SELECT sum(length) FROM block").fetchone() == (10_000,)
        copy.close()
        assert host.journal.head == 10_000
        host.settle()
