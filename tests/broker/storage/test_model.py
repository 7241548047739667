"""A journal behaves as a list that is cut off at the low end, whatever is done to it."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from journal_harness import Clock, Host

from stentor.broker.settings import Retention
from stentor.broker.storage import JournalBatch

names = st.sampled_from(["ann", "bob", "eve"])
items = st.lists(st.binary(max_size=300), max_size=8)


class JournalMachine(RuleBasedStateMachine):
    @initialize(kept=st.sampled_from([None, 600, 3000]), on_disk=st.booleans())
    def open(self, kept, on_disk):
        self.path = Path(tempfile.mkdtemp()) if on_disk else None
        self.retention = Retention(None, kept if on_disk or kept else 10**6)
        self.clock = Clock()
        self.entries: list[bytes] = []
        self.times: list[float] = []
        self.producers: dict[str, tuple[int, int]] = {}
        self.durables: dict[str, bytes] = {}
        self.values: dict[str, tuple[float, bytes]] = {}
        self.start()

    def start(self):
        self.host = Host(self.path, retention=self.retention, clock=self.clock)

    @rule(data=st.data(), batches=st.lists(items, min_size=1, max_size=4))
    def append(self, data, batches):
        for new in batches:
            producer = {data.draw(names): (0, len(self.entries))} if new else {}
            kept = [(data.draw(names), data.draw(st.integers(0, len(new) - 1)))] if new else []
            self.host.journal.append(JournalBatch(list(new), producers=producer, retain=kept))
            self.entries += new
            self.times += [self.clock.time] * len(new)
            self.producers.update(producer)
            self.values.update({key: (self.clock.time, new[index]) for key, index in kept})
        self.host.settle()

    @rule(name=names, state=st.none() | st.binary(max_size=20))
    def change_durable(self, name, state):
        if state is None:
            self.host.journal.append(JournalBatch(durables={name: None}))
            self.durables.pop(name, None)
        else:
            self.host.journal.append(JournalBatch(durables={name: state}))
            self.durables[name] = state
        self.host.settle()

    @rule(key=names)
    def forget(self, key):
        self.host.journal.append(JournalBatch(forget=[key]))
        self.values.pop(key, None)
        self.host.settle()

    @rule(seconds=st.integers(1, 100))
    def wait(self, seconds):
        self.clock.time += seconds

    @rule()
    def reopen(self):
        if self.path is not None:
            self.host.close()
            self.start()

    @rule(data=st.data())
    def look_back(self, data):
        since = data.draw(st.integers(999_999, 1_000_500))
        low = self.host.journal.low
        expected = next(
            (n for n, t in enumerate(self.times, 1) if n >= low and t >= since),
            len(self.entries) + 1,
        )
        assert self.host.journal.offset_at(since) == expected

    @invariant()
    def is_as_the_model(self):
        journal = self.host.journal
        assert journal.head == len(self.entries)
        assert self.host.entries() == self.entries[journal.low - 1 :]
        assert journal.producers() == self.producers
        assert journal.durables() == self.durables
        found = {value.key: (value.time, value.data) for value in journal.last_values()}
        assert found == self.values
        if self.entries:
            assert journal.low <= journal.head  # the newest block is never removed

    def teardown(self):
        if hasattr(self, "host"):
            self.host.journal.verify()
            self.host.close()
            if self.path is not None:
                shutil.rmtree(self.path)


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=25, stateful_step_count=20)
