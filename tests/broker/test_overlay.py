"""Overlay files: what they say, and every mistake in them by its line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.broker.overlay import (
    OverlayLink,
    OverlaySettings,
    free_ports,
    path_between,
    read_overlay,
    regular,
)
from stentor.broker.settings import Grant
from stentor.errors import InvalidConfiguration, InvalidTopology, StentorError

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "overlay.toml"

Reader = Callable[..., OverlaySettings]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    def reading(text: str, **environment: str) -> OverlaySettings:
        file = tmp_path / "overlay.toml"
        file.write_text(text, "utf-8")
        return read_overlay(file, environment=environment)

    return reading


def problems(read: Reader, text: str) -> list[str]:
    with pytest.raises(StentorError) as caught:
        read(text)
    return [line.rpartition("/")[2] for line in str(caught.value).splitlines()]


class TestReading:
    def test_brokers_and_links(self, read: Reader, tmp_path: Path) -> None:
        overlay = read(
            """
            [overlay]
            data = "data"
            routing = "simple"
            limits.queue = 7

            [[broker]]
            name = "b1"
            listen = "127.0.0.1:7001"

            [[broker]]
            name = "b2"
            listen = ["127.0.0.1:7002", "unix:b2.sock"]
            neighbors = ["b1", "other.example:7411"]
            routing = "merging"
            data = "elsewhere"
            """
        )
        b1, b2 = overlay.settings("b1"), overlay.settings("b2")
        assert (b1.name, b1.routing, b1.neighbors) == ("b1", "simple", ())
        assert (b2.name, b2.routing) == ("b2", "merging")
        assert b2.neighbors == ("127.0.0.1:7001", "other.example:7411")
        assert b2.listen == ("127.0.0.1:7002", f"unix:{tmp_path}/b2.sock")
        assert b1.limits.queue == b2.limits.queue == 7
        assert (b1.data, b2.data) == (tmp_path / "data" / "b1", tmp_path / "elsewhere")
        assert overlay.links == (OverlayLink("b2", "b1"),)
        assert overlay.run == tmp_path / "overlay.run"

    def test_paths_are_relative_to_the_file_wherever_it_is_read_from(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "overlay.toml").write_text("[overlay]\nbrokers = 1\ndata = 'data'\n")
        monkeypatch.chdir(tmp_path)
        overlay = read_overlay(Path("overlay.toml"), environment={})
        assert overlay.settings("b1").data == tmp_path / "data" / "b1"
        assert overlay.run == tmp_path / "overlay.run"

    def test_a_link_named_at_both_ends_is_one_link(self, read: Reader) -> None:
        overlay = read(
            "[[broker]]\nname='a'\nneighbors=['b']\n[[broker]]\nname='b'\nneighbors=['a']\n"
        )
        assert overlay.links == (OverlayLink("a", "b"),)
        assert overlay.settings("b").neighbors == ()

    def test_brokers_without_addresses_get_ports_in_a_row(self, read: Reader) -> None:
        overlay = read(
            "[overlay]\nbase_port=9000\nmonitor_base_port=9100\nhost='::1'\n"
            "[[broker]]\nname='a'\n[[broker]]\nname='b'\nlisten='localhost:1'\n[[broker]]\nname='c'"
        )
        assert [overlay.settings(name).listen for name in "abc"] == [
            ("[::1]:9000",),
            ("localhost:1",),
            ("[::1]:9002",),
        ]
        assert overlay.settings("b").monitor == "[::1]:9101"

    def test_brokers_that_listen_everywhere_are_reached_on_this_machine(self, read: Reader) -> None:
        overlay = read(
            "[[broker]]\nname='a'\nlisten='0.0.0.0:7001'\n[[broker]]\nname='b'\n"
            "listen='[::]:7002'\nneighbors=['a']\n[[broker]]\nname='c'\nneighbors=['b']"
        )
        assert overlay.settings("b").neighbors == ("127.0.0.1:7001",)
        assert overlay.settings("c").neighbors == ("[::1]:7002",)

    def test_the_environment_goes_before_the_file_but_not_for_what_each_has_alone(
        self, read: Reader
    ) -> None:
        overlay = read(
            "[overlay]\nbrokers = 2\nlog_level = 'error'",
            STENTOR_LOG_LEVEL="debug",
            STENTOR_LISTEN="127.0.0.1:1",
            STENTOR_NAME="x",
            STENTOR_DATA="d",
        )
        assert overlay.settings("b2").log_level == "debug"
        assert overlay.settings("b2").listen == ("127.0.0.1:7412",)
        assert overlay.settings("b2").data is None

    def test_grants_are_shared(self, read: Reader) -> None:
        overlay = read("[overlay]\nbrokers=2\n[[overlay.grants]]\nname='a'\ntoken='t'")
        assert (
            overlay.settings("b1").grants
            == overlay.settings("b2").grants
            == (Grant("a", token="t"),)
        )

    def test_groups_that_are_not_linked_are_a_warning(self, read: Reader) -> None:
        (warning,) = read("[[broker]]\nname='a'\n[[broker]]\nname='b'").warnings
        assert warning.endswith("are not linked with each other: a; b")

    def test_the_example_in_the_documentation_is_one(self) -> None:
        overlay = read_overlay(EXAMPLE, environment={})
        assert len(overlay.brokers) >= 3
        assert len(overlay.links) == len(overlay.brokers) - 1
        assert overlay.warnings == ()


class TestRegularOverlays:
    @pytest.mark.parametrize(
        ("topology", "links"),
        [
            ("line", [(2, 1), (3, 2), (4, 3), (5, 4)]),
            ("star", [(2, 1), (3, 1), (4, 1), (5, 1)]),
            ("tree", [(2, 1), (3, 1), (4, 2), (5, 2)]),
        ],
    )
    def test_shapes(self, read: Reader, topology: str, links: list[tuple[int, int]]) -> None:
        overlay = read(f"[overlay]\nbrokers = 5\ntopology = '{topology}'\nbase_port = 8001")
        assert list(overlay.links) == [OverlayLink(f"b{a}", f"b{b}") for a, b in links]
        assert overlay.settings("b5").listen == ("127.0.0.1:8005",)

    @given(st.integers(1, 60), st.sampled_from(["line", "star", "tree"]))
    def test_they_are_trees(self, count: int, topology: str) -> None:
        tables = regular(count, topology)
        links = [OverlayLink(t["name"], n) for t in tables for n in t.get("neighbors", [])]
        assert len(links) == count - 1
        assert all(path_between("b1", table["name"], links) for table in tables)

    def test_many_are_read_quickly(self, read: Reader) -> None:
        assert len(read("[overlay]\nbrokers = 1000\ntopology = 'line'").links) == 999


class TestShapes:
    @pytest.mark.spec("R-03.34")
    def test_a_rendezvous_is_a_ring_unless_said_otherwise(self, read: Reader) -> None:
        overlay = read("[overlay]\nbrokers = 4\noverlay = 'rendezvous'")
        assert len(overlay.links) == 4
        assert {settings.overlay for settings in overlay.brokers.values()} == {"rendezvous"}
        line = read("[overlay]\nbrokers = 4\noverlay = 'rendezvous'\ntopology = 'line'")
        assert len(line.links) == 3

    def test_a_graph_may_have_cycles(self, read: Reader) -> None:
        overlay = read("[overlay]\nbrokers = 4\ntopology = 'ring'\noverlay = 'graph'")
        assert [len(overlay.settings(f"b{i}").neighbors) for i in range(1, 5)] == [0, 1, 1, 2]

    def test_in_a_hierarchy_brokers_have_a_parent(self, read: Reader) -> None:
        overlay = read("[overlay]\nbrokers = 3\ntopology = 'star'\noverlay = 'hierarchy'")
        settings = [overlay.settings(f"b{i}") for i in range(1, 4)]
        assert [(s.parent, s.neighbors) for s in settings] == [
            (None, ()),
            ("127.0.0.1:7411", ()),
            ("127.0.0.1:7411", ()),
        ]

    def test_a_parent_is_named_or_is_elsewhere(self, read: Reader) -> None:
        overlay = read(
            """
            [overlay]
            overlay = "hybrid"

            [[broker]]
            name = "b1"
            listen = "127.0.0.1:7001"
            parent = "other.example:7411"

            [[broker]]
            name = "b2"
            listen = "127.0.0.1:7002"
            parent = "b1"
            """
        )
        assert overlay.settings("b1").parent == "other.example:7411"
        assert overlay.settings("b2").parent == "127.0.0.1:7001"

    def test_peers_of_a_hybrid_may_have_cycles(self, read: Reader) -> None:
        broker = "[[broker]]\nname = 'b{}'\nlisten = '127.0.0.1:700{}'\n{}\n"
        core = (
            broker.format(1, 1, "")
            + broker.format(2, 2, "neighbors = ['b1']")
            + broker.format(3, 3, "neighbors = ['b1', 'b2']")
        )
        overlay = "[overlay]\noverlay = 'hybrid'\n" + core
        assert len(read(overlay + broker.format(4, 4, "parent = 'b3'")).links) == 4
        below = broker.format(4, 4, "parent = 'b6'") + broker.format(5, 5, "parent = 'b4'")
        with pytest.raises(StentorError, match="closes a cycle: b6 - b5 - b4 - b6"):
            read(overlay + below + broker.format(6, 6, "parent = 'b5'"))

    def test_all_are_of_one_overlay(self, read: Reader) -> None:
        text = "[[broker]]\nname = 'a'\noverlay = 'graph'\n[[broker]]\nname = 'b'\nlisten = ':7'"
        with pytest.raises(StentorError, match="of one overlay, not of graph and tree"):
            read(text)


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", "overlay.toml: there are no brokers"),
            ("broker = 3", "overlay.toml:1: write [[broker]] for each"),
            ("[broker]\nname = 'a'", "overlay.toml:1: write [[broker]] for each"),
            ("[[broker]]\n", "overlay.toml:1: every broker needs a name"),
            ("[[brokers]]\nname='a'", "overlay.toml:1: there is no key 'brokers'; did you mean"),
            ("[overlay]\nbrokers = 0", "overlay.toml:2: brokers: 0 is not a whole number from 1"),
            (
                "[overlay]\nbrokers = 2\ntopology = 'rung'",
                "overlay.toml:3: topology: 'rung' is not one of line, star, tree, ring",
            ),
            (
                "[overlay]\nbrokers = 2\nlisten = 'a:1'",
                "overlay.toml:3: listen is each broker's own; set it in [[broker]]",
            ),
            ("[overlay]\nbrokers=2\nfoo=1", "overlay.toml:3: there is no key 'foo' in overlay"),
            (
                "[overlay]\nbrokers=2\n[[broker]]\nname='a'",
                "overlay.toml:2: brokers makes a regular overlay; leave it or the [[broker]]",
            ),
            (
                "[[broker]]\nname='a'\n\n[[broker]]\nname='a'",
                "overlay.toml:5: 'a' is the name of another broker, too",
            ),
            (
                "[[broker]]\nname='a'\nlisten='h:1'\n[[broker]]\nname='b'\nlisten='h:1'",
                "overlay.toml:6: h:1 is where a listens, too",
            ),
            (
                "[[broker]]\nname='a'\nlisten='0.0.0.0:1'\n[[broker]]\nname='b'\nlisten='h:1'",
                "overlay.toml:6: h:1 is where a listens, too",
            ),
            (
                "[[broker]]\nname='a'\nlisten='h:1'\n[[broker]]\nname='b'\nmonitor='h:1'",
                "overlay.toml:6: h:1 is where a listens, too",
            ),
            (
                "[[broker]]\nname='a'\ndata='d'\n[[broker]]\nname='b'\ndata='./d'",
                "d is the directory of a, too",
            ),
            (
                "[[broker]]\nname='berlin'\n[[broker]]\nname='b'\nneighbors=['berln']",
                "overlay.toml:5: there is no broker 'berln' in this file; did you mean 'berlin'?",
            ),
            (
                "[[broker]]\nname='a'\nneighbors=[\n  'a',\n]",
                "overlay.toml:4: a cannot be its own neighbor",
            ),
            ("[[broker]]\nname='a'\nneighbors=3", "overlay.toml:3: neighbors are a list of names"),
            (
                "[[broker]]\nname='a'\n[broker.limits]\nqueue=0",
                "overlay.toml:4: limits.queue: 0 is too small",
            ),
            ("[overlay]\nbase_port=65535\nbrokers=2", "overlay.toml:3: listen: '127.0.0.1:65536'"),
        ],
    )
    def test_is_named_with_its_line(self, read: Reader, text: str, expected: str) -> None:
        found = problems(read, text)
        assert any(expected in line for line in found), found

    def test_a_cycle_is_named(self, read: Reader) -> None:
        text = "".join(
            f"[[broker]]\nname='{name}'\nneighbors={neighbors}\n"
            for name, neighbors in [
                ("a", ["b"]),
                ("b", ["c"]),
                ("c", ["d"]),
                ("d", ["b", "e"]),
                ("e", []),
            ]
        )
        with pytest.raises(InvalidTopology) as caught:
            read(text)
        (line,) = str(caught.value).splitlines()
        assert "overlay.toml:12: the link between d and b closes a cycle: d - b - c - d" in line

    def test_two_links_between_the_same_two_are_no_cycle(self, read: Reader) -> None:
        text = "[[broker]]\nname='a'\n[[broker]]\nname='b'\nneighbors=['a', 'a']\n"
        assert read(text).links == (OverlayLink("b", "a"),)


class TestPorts:
    def test_port_0_becomes_a_free_one_everywhere(self, read: Reader) -> None:
        overlay = read("[overlay]\nbrokers = 3\nbase_port = 0\nmonitor_base_port = 0").with_ports()
        ports = [overlay.settings(name).listen[0] for name in overlay.brokers]
        ports += [str(overlay.settings(name).monitor) for name in overlay.brokers]
        assert len(set(ports)) == 6
        assert not any(port.endswith(":0") for port in ports)
        assert overlay.settings("b2").neighbors == overlay.settings("b1").listen

    def test_a_host_that_is_not_here(self) -> None:
        with pytest.raises(InvalidConfiguration, match="no free port"):
            free_ports(["192.0.2.1"])
