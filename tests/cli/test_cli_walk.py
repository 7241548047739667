"""Every command, held to what all of them promise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from stentor.broker.host import Broker
from stentor.broker.settings import Settings
from stentor.cli.app import app
from stentor.cli.app import run as main

#: Those that have nothing to say in JSON, and why.
NO_JSON = {"completion": "prints a script"}
#: What each command without a broker answers in JSON: its words, and a part of the answer.
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ANSWERS: list[tuple[list[str], Callable[[Any], bool]]] = [
    (["up", "--check", f"{EXAMPLES}/overlay.toml"], lambda a: len(a["brokers"]) > 1),
    (["broker", "--show-config"], lambda a: a["settings"]["routing"] == "covering"),
    (["scopes", "check", f"{EXAMPLES}/market.scopes"], lambda a: a["scopes"] and a["components"]),
    (["scopes", "format", f"{EXAMPLES}/market.scopes"], lambda a: a[0]["formatted"] is True),
    (["pipeline", "steps"], lambda a: "collapse" in {each["name"] for each in a}),
    (["pipeline", "steps", "collapse"], lambda a: a["options"][0]["about"]),
    (["filter", "complete", "exi"], lambda a: isinstance(a, list)),
    (["why-not", "a = 1", '{"a": 2}'], lambda a: a["matches"] is False),
    (["explain", "STN-606"], lambda a: a["code"] == "STN-606"),
    (["version"], lambda a: a["protocol"]),
]


def walk(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(walk(app))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "stentor", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_there_are_commands() -> None:
    assert {"broker", "publish", "backup", "reload", "links add"} <= set(COMMANDS)
    assert set(NO_JSON) <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_explained_and_speaks_json(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert "Example" in command.help, "show how it is used"
    assert f"stentor {name}" in command.help
    options = {option for each in command.params for option in each.opts}
    assert ("--json" in options) != (name in NO_JSON), "JSON, or a reason why not"
    for each in command.params:
        if isinstance(each, click.Option) and not each.hidden:
            assert each.help, each.name
            assert each.help.rstrip("] ").endswith((".", "]")) or "[" in each.help, each.help


def spoken(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, list[Any]]:
    """The exit code of a command line, its output, and the objects on its standard error."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    code = ended.value.code or 0
    assert isinstance(code, int)
    return code, out, [msgspec.json.decode(line) for line in err.splitlines()]


@pytest.mark.parametrize("name", [each for each in COMMANDS if each not in NO_JSON])
def test_with_json_errors_are_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, (error,) = spoken(*name.split(), "--json", "--no-such-option", capsys=capsys)
    assert (code, out) == (2, "")
    assert (error["level"], error["code"]) == ("error", "STN-406")
    assert "--no-such-option" in error["message"]


def test_with_json_errors_of_brokers_and_files_have_their_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = tmp_path / "p.toml"
    pipeline.write_text('name = "p"\n[source.s]\nnothing = 1\n')
    graph = tmp_path / "g.scopes"
    graph.write_text("DEFINE SCOPE")
    for expected, status, words in (
        ("STN-602", 1, ["status", "127.0.0.1:1", "--connect-timeout", "1s"]),
        ("STN-201", 2, ["subscribe", "price >"]),
        ("STN-406", 2, ["up", str(tmp_path / "nowhere.toml")]),
        ("STN-702", 2, ["pipeline", "check", "--quick", str(pipeline)]),
        ("STN-412", 2, ["scopes", "check", str(graph)]),
    ):
        code, out, (error, *_) = spoken(*words, "--json", capsys=capsys)
        assert (out, error["level"]) == ("", "error"), words
        assert error["code"].startswith("STN-"), words
        assert error["message"], words
        if expected is not None:
            assert (error["code"], code) == (expected, status), words


@pytest.mark.parametrize(
    ("words", "holds"), ANSWERS, ids=[" ".join(words)[:14] for words, _ in ANSWERS]
)
def test_answers_are_one_document(
    words: list[str], holds: Callable[[Any], bool], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, told = spoken(*words, "--json", capsys=capsys)
    assert (code, told) == (0, [])
    assert holds(msgspec.json.decode(out))


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_use_is_2_and_told(name: str) -> None:
    found = CliRunner().invoke(app, [*name.split(), "--no-such-option"])
    assert found.exit_code == 2
    assert "--no-such-option" in found.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_address_may_be_left_out(name: str) -> None:
    """Of all that connect to a broker; `replay` has to be told where it publishes."""
    for each in COMMANDS[name].params:
        if isinstance(each, click.Argument) and each.name == "how":
            assert each.make_metavar(click.Context(COMMANDS[name])).startswith("[")
            assert each is COMMANDS[name].params[0] or each.default == "127.0.0.1:7411"


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("links add", ["b3:7413"], {"how": "127.0.0.1:7411", "neighbor": "b3:7413"}),
        ("links add", ["b1:7411", "b3:7413"], {"how": "b1:7411", "neighbor": "b3:7413"}),
        ("links replace", ["b2", "b3:1"], {"how": "127.0.0.1:7411", "old": "b2", "new": "b3:1"}),
        ("backup", ["/backup/b1"], {"how": "127.0.0.1:7411"}),
        ("backup", ["./b1", "/backup/b1"], {"how": "./b1"}),
        ("durables", ["show", "desk"], {"how": "127.0.0.1:7411", "name": "desk"}),
        ("subscribe", ["price > 1"], {"how": "127.0.0.1:7411"}),
        ("scopes join", ["ann", "acme"], {"how": "127.0.0.1:7411"}),
        ("scopes deploy", ["graph.scopes", "b2:7411"], {"how": "b2:7411"}),
        ("scopes alter", ["DROP SCOPE acme"], {"how": "127.0.0.1:7411"}),
    ],
)
def test_what_is_left_out_is_known_by_what_is_there(
    name: str, words: list[str], expected: dict[str, str]
) -> None:
    given = COMMANDS[name].make_context(name, words).params
    assert {key: given[key] for key in expected} == expected


def test_failures_are_never_silent(tmp_path: Path) -> None:
    nobody = "127.0.0.1:1"
    for words in (
        ("status", nobody),
        ("reload", nobody),
        ("drain", nobody),
        ("durables", nobody),
        ("links", "list", nobody),
        ("offers", nobody),
        ("backup", nobody, str(tmp_path / "copy")),
        ("backup", str(tmp_path / "nowhere"), str(tmp_path / "copy")),
        ("why", "--notification", "a", "--client", "b"),
        ("restore", str(tmp_path), str(tmp_path / "b1")),
        ("journal", "check", str(tmp_path)),
    ):
        found = run(*words, *(("--connect-timeout", "1s") if nobody in words else ()))
        assert found.returncode in (1, 2), words
        assert found.stderr.startswith("stentor: STN-"), words
        assert not found.stdout, words


def test_files_and_times_as_people_write_them(tmp_path: Path) -> None:
    import asyncio

    (tmp_path / "a.jsonl").write_text('{"x": 1}\n\n{"x": 2}\n')
    (tmp_path / "b.csv").write_text('x,name,zip\n3,"Ann, B.",0123\n4.5,,\n')

    async def main() -> None:
        async with Broker(Settings(listen=("127.0.0.1:0",), data=tmp_path / "b1")) as broker:
            at = broker.address
            done = await asyncio.to_thread(
                run, "publish", at, str(tmp_path / "a.jsonl"), str(tmp_path / "b.csv"), "--json"
            )
            assert msgspec.json.decode(done.stdout)["published"] == 4
            seen = await asyncio.to_thread(
                run, "subscribe", at, "--since", "today 00:00", "--count", "4"
            )
            assert [msgspec.json.decode(line) for line in seen.stdout.splitlines()] == [
                {"x": 1},
                {"x": 2},
                {"x": 3, "name": "Ann, B.", "zip": "0123"},
                {"x": 4.5},
            ]
            for words, said in (
                (("publish", at, "nowhere.jsonl"), "nor a file that can be read"),
                (("subscribe", at, "--since", "soonish"), "yesterday 14:00"),
                (("publish", at, "--deliver-at", "25:00", "{}"), "yesterday 14:00"),
            ):
                wrong = await asyncio.to_thread(run, *words)
                assert (wrong.returncode, wrong.stdout) == (2, ""), words
                assert said in wrong.stderr
            (tmp_path / "bad.csv").write_text("x\n1,2\n")
            bad = await asyncio.to_thread(run, "publish", at, str(tmp_path / "bad.csv"))
            assert bad.returncode != 0
            assert "line 2" in bad.stderr

    asyncio.run(main())


def completed(*words: str) -> list[str]:
    from click.shell_completion import ShellComplete

    complete = ShellComplete(app, {}, "stentor", "_STENTOR_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_values_are_completed() -> None:
    import asyncio

    import stentor

    assert "STN-606" in completed("explain", "STN-6")
    assert completed("explain", "limits.que") == ["limits.queue"]
    assert completed("durables", "127.0.0.1:7411", "mo") == ["move"]
    assert completed("durables", "127.0.0.1:1", "show", "") == []  # nobody is there
    assert "graph" in completed("broker", "--overlay", "")

    async def main() -> list[str]:
        async with (
            Broker(Settings(listen=("127.0.0.1:0",))) as broker,
            stentor.connect(broker) as bus,
            bus.subscribe("", durable="desk-7"),
        ):
            return await asyncio.to_thread(completed, "durables", broker.address, "show", "de")

    assert asyncio.run(main()) == ["desk-7"]


def test_a_broker_that_is_down_is_reported_while_commands_go_on_trying() -> None:
    import asyncio
    import socket

    from stentor.cli.contact import MOMENT

    assert MOMENT < 2
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

    async def begin(*words: str) -> tuple[asyncio.subprocess.Process, str]:
        trying = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stentor", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert trying.stderr is not None
        return trying, (await asyncio.wait_for(trying.stderr.readline(), 30)).decode()

    async def main() -> None:
        begun = await asyncio.gather(
            begin("subscribe", address, "x = 1", "--since", "earliest", "--count", "1"),
            begin("publish", address, '{"x": 1}'),
        )
        async with Broker(Settings(listen=(address,))):
            for (trying, said), expected in zip(begun, ('{"x":1}\n', ""), strict=True):
                assert said.startswith("stentor: not connected, still trying: ")
                out, rest = await asyncio.wait_for(trying.communicate(), 30)
                assert (trying.returncode, out.decode()) == (0, expected)
                assert f"stentor: connected to {address}\n" in rest.decode()

    asyncio.run(main())
