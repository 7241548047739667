"""Which brokers there are, and the waves that pass between them."""

from stentor.node.streams import PATIENCE, Directory, Probes
from stentor.protocol.messages import Echo, Origin, Probe, Streams

A, B, C, D = (Origin(f"{name}#", name) for name in "abcd")


def knowing(**ways: Origin) -> Directory:
    """A directory of the broker a, with neighbors through which others come."""
    directory = Directory(A)
    for neighbor in ways:
        directory.link_up(neighbor)
    for neighbor, origin in ways.items():
        directory.heard(neighbor, Streams([origin], []))
    return directory


def test_news_goes_on_to_the_others() -> None:
    directory = knowing(b=B, c=C)
    fresh, sends, cycle = directory.heard("b", Streams([D], []))
    assert fresh == [D]
    assert sends == [("c", Streams([D], []))]
    assert not cycle
    assert directory.towards("d#") == "b"
    assert directory.behind("b") == [B, D]
    assert directory.link_up("d") == Streams([A, B, C, D], [])


def test_a_stream_that_is_named_again_begins_afresh() -> None:
    directory = knowing(b=B)
    fresh, _, _ = directory.heard("b", Streams([B], []))
    assert fresh == [B]


def test_a_lost_link_takes_what_lies_behind_it() -> None:
    directory = knowing(b=B, c=C)
    directory.heard("b", Streams([D], []))
    renewed, gone, sends = directory.link_down("b")
    assert (renewed, gone) == ([], ["b#", "d#"])
    assert sends == [("c", Streams([], ["b#", "d#"]))]
    assert not directory.reaches("d#")
    assert directory.origin("d#") is None


def test_a_second_way_is_kept_in_reserve() -> None:
    directory = knowing(b=B, c=C)
    directory.heard("b", Streams([D], []))
    fresh, sends, _ = directory.heard("c", Streams([D], []))
    assert not fresh
    assert not sends
    assert directory.towards("d#") == "b"
    assert directory.reserve == {"c"}


def test_a_broker_that_moved_is_made_known_to_those_it_left() -> None:
    """The neighbor that lost it may have it from here; the one that has it may not."""
    directory = knowing(b=B, c=C)
    directory.heard("b", Streams([D], []))
    directory.heard("c", Streams([D], []))
    fresh, sends, _ = directory.heard("b", Streams([], ["d#"]))
    assert fresh == [D]
    assert directory.towards("d#") == "c"
    assert sends == [("b", Streams([D], [])), ("c", Streams([], ["d#"]))]
    assert not directory.reserve


def test_two_do_not_keep_a_dead_stream_alive_for_each_other() -> None:
    """Once a broker was reached through each other, it must not be when it is gone."""
    directories = {"a": Directory(A), "b": Directory(B)}

    def carry(sends: list[tuple[str, object]], source: str) -> None:
        for to, message in sends:
            if to in directories:
                assert isinstance(message, Streams)
                _, more, _ = directories[to].heard(source, message)
                carry(more, to)

    for x, y in (("a", "b"), ("b", "a")):
        directories[x].link_up(y)
    for x, y in (("a", "b"), ("b", "a")):
        carry([(y, directories[x].link_up(y))], x)
    directories["a"].link_up("x")
    directories["b"].link_up("y")
    carry(directories["a"].heard("x", Streams([D], []))[1], "a")
    carry(directories["b"].heard("y", Streams([D], []))[1], "b")  # it has moved
    carry(directories["a"].heard("x", Streams([], ["d#"]))[1], "a")
    assert directories["a"].towards("d#") == "b"
    assert directories["b"].towards("d#") == "y"
    carry(directories["b"].link_down("y")[2], "b")
    assert not directories["a"].reaches("d#")
    assert not directories["b"].reaches("d#")


def test_who_hears_of_itself_is_in_a_cycle() -> None:
    directory = knowing(b=B)
    assert directory.heard("b", Streams([A], [])) == ([], [], True)


# -- waves


def test_a_wave_comes_back_when_all_have_answered() -> None:
    probes = Probes("b#")
    assert probes.passed("a", Probe("a#", 1), {"a": 0, "c": 0, "d": 0}, {"b#": 3}) == [
        ("c", Probe("a#", 1)),
        ("d", Probe("a#", 1)),
    ]
    assert probes.echoed("c", Echo("a#", 1, {"c#": 5}), {"b#": 3}) == ([], None)
    assert probes.echoed("c", Echo("a#", 1, {"c#": 6}), {"b#": 3}) == ([], None)
    sends, _ = probes.echoed("d", Echo("a#", 1, {}), {"b#": 4})
    assert sends == [("a", Echo("a#", 1, {"c#": 5, "b#": 4}))]


def test_a_leaf_answers_at_once() -> None:
    sends = Probes("b#").passed("a", Probe("a#", 1), {"a": 0}, {"b#": 3})
    assert sends == [("a", Echo("a#", 1, {"b#": 3}))]


def test_nobody_waits_for_a_lost_neighbor() -> None:
    probes = Probes("b#")
    probes.passed("a", Probe("a#", 1), {"a": 0, "c": 0}, {"b#": 3})
    probes.begin({"a": 0, "c": 0})
    sends, complete = probes.link_down("c", {"b#": 3})
    assert sends == [("a", Echo("a#", 1, {"b#": 3}))]
    assert complete is None
    sends, complete = probes.link_down("a", {"b#": 3})
    assert not sends
    assert complete == (1, {"b#": 3})
    assert not probes.waiting


def test_who_says_nothing_of_a_wave_is_left_out() -> None:
    probes = Probes("b#")
    probes.passed("a", Probe("a#", 1), {"c": 0, "d": 0}, {"b#": 3})
    probes.echoed("d", Echo("a#", 1, {"d#": 7}), {"b#": 3})
    assert probes.passes(PATIENCE / 2, {"b#": 3}) == (
        [("a", Echo("a#", 1, {}, waits=True))],
        None,
    )
    sends, _ = probes.passes(PATIENCE / 2, {"b#": 3})
    assert sends == [("a", Echo("a#", 1, {"d#": 7, "b#": 3}))]
    # Nobody waits for it again before it is heard of; but it hears of all.
    assert probes.passed("a", Probe("a#", 2), {"c": 0}, {"b#": 3}) == [
        ("c", Probe("a#", 2)),
        ("a", Echo("a#", 2, {"b#": 3})),
    ]
    assert probes.echoed("c", Echo("a#", 1, {"c#": 5}), {"b#": 3}) == ([], None)
    assert probes.passed("a", Probe("a#", 3), {"c": 0}, {"b#": 3}) == [("c", Probe("a#", 3))]
    sends, _ = probes.echoed("c", Echo("a#", 3, {"c#": 5}), {"b#": 3})
    assert sends == [("a", Echo("a#", 3, {"c#": 5, "b#": 3}))]


def test_who_says_that_it_waits_itself_is_waited_for() -> None:
    probes = Probes("b#")
    probes.begin({"c": 0})
    for _ in range(10):
        assert probes.passes(PATIENCE * 0.9, {"b#": 3}) == ([], None)
        assert probes.echoed("c", Echo("b#", 1, {}, waits=True), {"b#": 3}) == ([], None)
    _, complete = probes.echoed("c", Echo("b#", 1, {"c#": 5}), {"b#": 3})
    assert complete == (1, {"c#": 5, "b#": 3})


def test_waves_of_a_lost_predecessor_are_forgotten() -> None:
    probes = Probes("b#")
    probes.passed("a", Probe("a#", 1), {"a": 0, "c": 0}, {"b#": 3})
    probes.link_down("a", {"b#": 3})
    assert probes.echoed("c", Echo("a#", 1, {"c#": 5}), {"b#": 3}) == ([], None)


def test_an_older_wave_that_comes_later_does_not_take_the_place_of_a_younger_one() -> None:
    """The origin has moved: its first probe still comes the long way around."""
    probes = Probes("b#")
    probes.passed("a", Probe("a#", 2), {"a": 0, "c": 0}, {"b#": 3})
    probes.passed("c", Probe("a#", 1), {"a": 0, "c": 0}, {"b#": 3})
    sends, _ = probes.echoed("c", Echo("a#", 2, {}), {"b#": 3})
    assert sends == [("a", Echo("a#", 2, {"b#": 3}))]


def test_in_a_cycle_the_second_of_the_same_wave_is_answered_at_once() -> None:
    probes = Probes("b#")
    probes.passed("a", Probe("a#", 1), {"a": 0, "c": 0}, {"b#": 3})
    assert probes.passed("c", Probe("a#", 1), {"a": 0, "c": 0}, {"b#": 3}) == [
        ("c", Echo("a#", 1, {}))
    ]
    probes.begin({"a": 0, "c": 0})
    assert probes.passed("c", Probe("b#", 1), ["a", "c"], {}) == [("c", Echo("b#", 1, {}))]


def test_without_neighbors_a_probe_is_complete_at_once() -> None:
    probes = Probes("b#", 41)
    assert probes.begin([]) == []
    assert probes.finish_own({"b#": 3}) == (42, {"b#": 3})
    assert probes.finish_own({"b#": 3}) is None
