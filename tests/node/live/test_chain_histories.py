"""Each event passes a chain of services once, whatever fails, and not before its time.

The histories are in `chain_histories`; thousands run when asked for. What is planted here shows
that they would notice.
"""

from __future__ import annotations

import pytest
from chain_histories import run_history
from overlay import Overlay

from stentor.errors import InvalidConfiguration
from stentor.model import Notification
from stentor.node.durable import Durable
from stentor.node.parts import transactions
from stentor.node.parts.scheduling import Scheduling
from stentor.protocol import messages as m

PROMISES = pytest.mark.spec("R-07.41", "R-07.57")


def run_histories(most: int = 100) -> None:
    for seed in range(most):
        run_history(seed)


@PROMISES
def test_histories() -> None:
    run_histories(30)


@PROMISES
def test_a_cancellation_that_could_not_be_stored_leaves_one_publication() -> None:
    run_history(1459)


@pytest.mark.slow
@PROMISES
def test_two_thousand_histories() -> None:
    for seed in range(1_000, 3_000):
        run_history(seed)


def test_a_step_that_is_torn_apart_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Durable.to_data
    monkeypatch.setattr(Durable, "to_data", lambda self, done=(), ids=(): whole(self))
    with pytest.raises(AssertionError):
        run_histories()


def test_what_comes_before_its_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Scheduling.look

    def early(self: Scheduling) -> None:
        before, self._clock.time = self._clock.time, self._clock.time + 1.0
        look(self)
        self._clock.time = before

    monkeypatch.setattr(Scheduling, "look", early)
    with pytest.raises(AssertionError, match="before its time"):
        run_histories()


# -- priorities at the broker


def ranked(sim: Overlay, priorities: list[int], *, window: int) -> list[int]:
    """In which order a subscriber with a window gets events of these priorities that wait."""
    source, reader = sim.client(at="b1"), sim.client(at="b1")
    reader.window, reader.slow = window, True
    terms = m.Settlement(ranked=True)
    sub = reader.open("exists k", durable="d", settlement=terms)
    sim.settle()
    reader.disconnect()
    source.send([Notification({"k": k}, priority=p) for k, p in enumerate(priorities)])
    sim.advance()
    reader.connect(sim.hosts["b1"])
    found = []
    for _ in range(20 * len(priorities)):
        sim.advance()
        taken = sub.hand_out()
        if taken is not None:
            key, held = taken
            found.append(held.notification["k"])
            reader.settle(sub, done=[key])
            reader.give_credit()
    return found


@pytest.mark.spec("R-07.57")
def test_what_waits_at_the_broker_comes_by_priority() -> None:
    priorities = [4, 9, 0, 9, 5, 4]
    found = ranked(Overlay([], brokers=["b1"]), priorities, window=1)
    assert found == [1, 3, 4, 0, 5, 2]


def test_a_backlog_larger_than_the_room_for_it_is_complete() -> None:
    sim = Overlay([], brokers=["b1"], queue=3, seed=1)
    priorities = [k % 10 for k in range(50)]
    found = ranked(sim, priorities, window=2)
    assert sorted(found) == list(range(50))
    assert found[0] != 0


def test_transactions_that_take_much_are_written_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is settled in one turn is bounded, for all of them together and for each."""
    monkeypatch.setattr(transactions, "TAKEN", 4)
    monkeypatch.setattr(transactions, "PUBLISHED", 8)
    sim = Overlay([], brokers=["a"])
    consumer, producer = sim.client(at="a"), sim.client(at="a")
    sub = consumer.open("exists x", durable="desk", settlement=m.Settlement())
    sim.settle()
    producer.send([{"x": x} for x in range(12)])
    sim.settle()
    while sub.hand_out():
        pass
    keys = list(sub.hands)
    commits = [consumer.commit(sub, keys[i : i + 3], [{"y": i}]) for i in (0, 3, 6)]
    while any(commit.code is None for commit in commits):
        assert sim.step()
        assert len(sim.hosts["a"].core.transactions._written) <= 1
    assert [commit.code for commit in commits] == ["", "", ""]
    assert len(sub.stored) == 9
    many = [
        consumer.commit(sub, keys[9:12] * 2, []),
        consumer.commit(sub, keys[9:], [{"y": 0}] * 9),
    ]
    sim.settle()
    assert [commit.code for commit in many] == [InvalidConfiguration.code] * 2


def test_who_comes_back_while_its_transaction_is_on_its_way_gets_what_follows() -> None:
    """Nothing may come before what was taken; as soon as that is done, it does."""
    sim = Overlay([], brokers=["b0"])
    consumer, producer = sim.client(at="b0"), sim.client(at="b0")
    sub = consumer.open("exists x", durable="desk", settlement=m.Settlement())
    sim.settle()
    producer.send([{"x": 0}])
    sim.settle()
    taken = sub.hand_out()
    assert taken is not None
    sim.disks_fail = True
    consumer.commit(sub, [taken[0]], [{"y": 0}])
    sim.advance()
    consumer.restart()
    sim.disks_fail = False
    producer.send([{"x": 1}])
    sim.advance()
    consumer.connect(sim.hosts["b0"])
    sim.advance()
    assert sub.hand_out() is None
    sim.tick(transactions.RETRY)
    sim.advance()
    found = sub.hand_out()
    assert found is not None
    assert found[1].notification["x"] == 1
