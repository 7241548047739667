"""Changes that come to nothing are not sent; what is sent is the difference to what was told."""

from hypothesis import given
from hypothesis import strategies as st

from stentor.filters import Filter
from stentor.routing.reducers import Announcements

KEYS = ["a", "b", "c"]
FILTER = Filter("x > 1")


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=30))
def test_the_difference_leads_from_told_to_announced(steps: list[tuple[str, bool]]) -> None:
    announcements, announced, told = Announcements(), set[object](), set[object]()
    for key, take in steps:
        if key in announced:
            announcements.withdraw(0b10, key, FILTER)
        else:
            announcements.announce(0b10, key, FILTER)
        announced ^= {key}
        if take:
            for change in announcements.take().values():
                assert not change.added.keys() & told
                assert change.removed.keys() <= told
                assert change.added or change.removed
                told = (told - change.removed.keys()) | change.added.keys()
            assert told == announced


def test_what_came_and_went_is_not_sent() -> None:
    announcements = Announcements()
    announcements.announce(0b10, "a", FILTER)
    announcements.withdraw(0b10, "a", FILTER)
    assert announcements.take() == {}
    announcements.announce(0b10, "a", FILTER)
    announcements.take()
    announcements.withdraw(0b10, "a", FILTER)
    announcements.announce(0b10, "a", FILTER)
    assert announcements.take() == {}


def test_a_neighbor_that_is_gone_is_told_nothing() -> None:
    announcements = Announcements()
    announcements.announce(0b10, "a", FILTER)
    announcements.forget(1)
    assert announcements.take() == {}
