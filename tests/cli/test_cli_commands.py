"""The command line without a network: help, mistakes, explanations, configuration, journals."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import stentor.errors
from stentor.broker.config_keys import broker_keys, reference
from stentor.broker.settings import Limits, Retention
from stentor.broker.storage import Journal, JournalBatch
from stentor.cli import main
from stentor.cli.exits import describe, exit_code
from stentor.cli.explanations import explanations, page
from stentor.errors import FilterSyntaxError, InvalidConfiguration, StentorError, Unreachable

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    ["broker"],
    ["up"],
    ["subscribe"],
    ["publish"],
    ["offers"],
    ["status"],
    ["drain"],
    ["links", "list"],
    ["links", "add"],
    ["links", "remove"],
    ["durables"],
    ["journal", "info"],
    ["journal", "check"],
    ["journal", "repair"],
    ["record"],
    ["check"],
    ["scopes", "check"],
    ["scopes", "format"],
    ["why"],
    ["why-not"],
    ["explain"],
    ["completion"],
    ["version"],
]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("STENTOR_DEBUG", raising=False)

    def running(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, *capsys.readouterr())

    return running


class TestHelp:
    def test_lists_every_command(self, run: Run) -> None:
        result = run("--help")
        assert result.code == 0
        for command in {command[0] for command in COMMANDS}:
            assert re.search(rf"^  {command} ", result.out, re.MULTILINE), command
        assert "Exit codes:" in result.out

    @pytest.mark.parametrize(
        "group", [[], ["links"], ["journal"], ["scopes"], ["pipeline"], ["archive"]]
    )
    def test_what_a_command_does_fits_into_a_line(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, group: list[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        commands = run(*group, "--help").out.partition("\nCommands:\n")[2]
        assert len(commands.splitlines()) >= 2
        assert "..." not in commands

    def test_clients_wait_for_a_broker_that_compiles_before_it_listens(self, run: Run) -> None:
        for command, patience in (("subscribe", "5m"), ("publish", "5m"), ("status", "10s")):
            assert f"default: {patience}]" in " ".join(
                run(command, "--help").out.partition("--connect-timeout")[2].split()
            )

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_every_command_has_examples_that_are_of_it(self, run: Run, command: list[str]) -> None:
        result = run(*command, "--help")
        assert result.code == 0
        _, found, examples = result.out.partition("Examples:\n")
        assert found
        assert f"stentor {' '.join(command)}" in examples

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_every_option_is_explained(self, run: Run, command: list[str]) -> None:
        options = run(*command, "--help").out.partition("\nOptions:\n")[2]
        entries = re.split(r"^  (?=-)", options, flags=re.MULTILINE)[1:]
        assert entries
        for entry in entries:
            names, _, text = " ".join(entry.split("\n")).partition("  ")
            assert len(text.split()) >= 3, names

    def test_every_setting_is_an_option_with_its_variable_and_default(self, run: Run) -> None:
        text = " ".join(run("broker", "--help").out.split())
        for key in broker_keys():
            assert f"{key.flag} " in text
            assert f"env: {key.variable}" in text
            if key.shown_default and key.about.kind != "flag":
                assert f"default: {key.shown_default}]" in text, key.dotted

    def test_help_loads_nothing_heavy(self) -> None:
        """What makes it quick is what it does not import."""
        program = (
            "import sys\n"
            "from stentor.cli import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: pass\n"
            "heavy = {'asyncio', 'numba', 'numpy', 'pyarrow', 'rich', 'sqlite3', 'ssl', 'uvloop'}\n"
            "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stderr.strip() == "[]"

    def test_the_module_is_the_command(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "stentor", "version"], capture_output=True, text=True
        )
        assert done.stdout.startswith(f"stentor {stentor.__version__}\n")
        assert done.returncode == 0


class TestWhyNot:
    def test_each_part_is_shown_with_what_the_event_says(self, run: Run) -> None:
        wanted = "price > 100 and symbol = 'IBM'"
        done = run("why-not", wanted, '{"symbol": "IBM", "price": 99}')
        assert done.code == 0
        assert done.out.splitlines() == [
            "it does not match:",
            "  FAIL  price > 100     price is 99",
            "  ok    symbol = 'IBM'  symbol is 'IBM'",
            'it would match: {"symbol":"IBM","price":101}',
        ]
        assert run("why-not", wanted, '{"symbol": "IBM", "price": 101}').out == "it matches\n"

    def test_alternatives_that_are_far_off_are_only_counted(self, run: Run) -> None:
        wanted = " or ".join(f"(x = {n} and y = {n})" for n in range(9))
        shown = run("why-not", wanted, '{"x": 5, "y": 1}').out
        assert shown.count("ok") == 2
        assert "and 6 alternatives that are further off" in shown


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["dance"], "No such command 'dance'"),
            (["subscrib"], "No such command 'subscrib'. Did you mean 'subscribe'?"),
            (["subscribe", "x > 2 and x < 1", "--strict"], "nothing can match this filter"),
            (["why-not", "x = 1", "{'x': 1}"], "names and texts are in double quotes"),
            (["journal", "show"], "Choose from info, check, repair."),
            (["subscribe", "--count", "x"], "'x' is not a valid whole number"),
            (["filter", "check", "/nowhere"], "/nowhere cannot be read: No such file"),
            (["publish", "nowhere.jsonl"], "'nowhere.jsonl' is neither a JSON object nor a file"),
            (["publish", '{"x": 1}', "{'x': 1}"], "argument 2: not JSON"),
            (["broker", "--lisen", "x"], "No such option '--lisen'"),
            (["publish", "127.0.0.1:1", "--rate", "fast"], "--rate"),
            (["publish", "127.0.0.1:1", "--retain", "k", "--retain-by", "x", "{}"], "contradict"),
            (["links", "remove"], "Missing argument 'NEIGHBOR'"),
            (["subscribe", "a:1", "x", "=", "1"], 'in 3 words; put it in quotes: "x = 1"'),
            (["subscribe", "a:1", "x = 1", "y =="], "y =="),
            (["subscribe", "x", "=", "IBM"], "put it in quotes, with single quotes within"),
            (["subscribe", "x = 1", "a:1"], "a:1 looks like an address, which comes before"),
        ],
    )
    def test_of_usage(self, run: Run, arguments: list[str], says: str) -> None:
        result = run(*arguments)
        assert result.code == 2
        assert says in result.err
        assert result.out == ""

    @pytest.mark.parametrize(
        ("arguments", "line"),
        [
            (
                ["subscribe", "http://x"],
                "stentor: STN-608: 'http://x': http:// is not supported; write host:port",
            ),
            (
                ["subscribe", "a:1", "price >"],
                "stentor: STN-201: line 1, column 8: the filter ends too early",
            ),
            (
                ["subscribe", "a:1", "--timeout", "soon"],
                "stentor: STN-406: --timeout: 'soon' is not a duration",
            ),
            (
                ["status", "a:1", "--connect-timeout", "x"],
                "stentor: STN-406: --connect-timeout: 'x' is not a duration",
            ),
            (
                ["status", "a:1", "--token", "@/nowhere"],
                "stentor: STN-406: cannot read the secret in /nowhere",
            ),
            (
                ["publish", "a:1", "--retain", "k", "--retain-by", "x", "{}"],
                "stentor: STN-406: --retain and --retain-by contradict each other",
            ),
            (
                ["publish", "a:1", "--retain", "k", "--volatile", "{}"],
                "stentor: STN-406: a last value is kept by the journal, which --volatile skips",
            ),
            (
                ["broker", "--routing", "best", "--show-config"],
                "stentor: STN-406: --routing: 'best' is not one of covering",
            ),
            (["explain", "STN-6000"], "stentor: STN-406: there is no error and no setting"),
            (["journal", "info", "/nowhere"], "stentor: STN-406: there is no journal in /nowhere"),
            (["journal", "check", "/nowhere"], "stentor: STN-406: there is no journal in /nowhere"),
            (["up", "/nowhere.toml"], "stentor: STN-406: /nowhere.toml: there is no such file"),
        ],
    )
    def test_are_one_line_with_a_code_and_no_traceback(
        self, run: Run, arguments: list[str], line: str
    ) -> None:
        result = run(*arguments)
        assert result.code == 2
        assert result.err.startswith(line)
        assert "Traceback" not in result.err
        assert "(stentor explain STN-" in result.err

    def test_debug_shows_the_traceback(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STENTOR_DEBUG", "1")
        result = run("subscribe", "http://x")
        assert "Traceback" in result.err
        assert "stentor: STN-608" in result.err

    def test_several_problems_are_a_line_each(self) -> None:
        text = describe(InvalidConfiguration("b.toml:1: one\nb.toml:2: two"))
        assert text.splitlines() == [
            "stentor: STN-406: b.toml:1: one",
            "stentor: STN-406: b.toml:2: two (stentor explain STN-406)",
        ]

    def test_exit_codes(self) -> None:
        assert exit_code(Unreachable("gone")) == 1
        assert exit_code(InvalidConfiguration("no")) == 2
        assert exit_code(FilterSyntaxError("no")) == 2

    def test_a_bug_is_one_line_too(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> None:
            raise ZeroDivisionError("by accident")

        monkeypatch.setattr("stentor.cli.explanations.explanations", broken)
        result = run("explain")
        assert result.code == 1
        assert result.err.startswith("stentor: ZeroDivisionError: by accident; this should not")


class TestExplanations:
    def test_every_error_has_one(self) -> None:
        classes = [
            each
            for each in vars(stentor.errors).values()
            if isinstance(each, type) and issubclass(each, StentorError)
        ]
        assert sorted(explanations()) == sorted(each.code for each in classes)
        assert len({each.code for each in classes}) == len(classes)
        for each in classes:
            found = explanations()[each.code]
            assert found.name == each.__name__
            assert found.meaning
            assert found.steps

    def test_the_page_in_the_documentation_is_this_one(self) -> None:
        assert (ROOT / "docs" / "errors.md").read_text("utf-8") == page(), (
            "run `stentor explain errors > docs/errors.md`"
        )

    @pytest.mark.parametrize("what", ["STN-606", "stn-606", "606"])
    def test_one_error(self, run: Run, what: str) -> None:
        result = run("explain", what)
        assert result.code == 0
        assert result.out.startswith("STN-606 JournalDamaged\n")
        assert "stentor journal repair DIRECTORY" in " ".join(result.out.split())

    def test_all_of_them(self, run: Run) -> None:
        assert run("explain", "errors").out == page()
        assert len(run("explain").out.splitlines()) == len(explanations())

    @pytest.mark.parametrize("what", ["limits.queue", "limits-queue", "STENTOR_LIMITS_QUEUE"])
    def test_a_setting(self, run: Run, what: str) -> None:
        out = run("explain", what).out
        assert "Notifications that wait in memory for one subscription." in out
        assert re.search(rf"default +{Limits().queue}\b", out)

    def test_all_settings(self, run: Run) -> None:
        assert run("explain", "settings").out == reference()

    def test_a_near_miss_is_helped(self, run: Run) -> None:
        assert "did you mean 'limits.queue'?" in run("explain", "limits.queu").err


class TestShowConfig:
    def test_is_a_configuration_file_with_the_origin_of_each_value(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "b.toml"
        file.write_text("[limits]\nqueue = 5\n[[grants]]\nname='a'\ntoken='hush'\n")
        monkeypatch.setenv("STENTOR_LOG_LEVEL", "debug")
        result = run("broker", "--config", file, "--name", "b7", "--show-config")
        assert result.code == 0
        data = tomllib.loads(result.out)
        assert (data["name"], data["log_level"], data["limits"]["queue"]) == ("b7", "debug", 5)
        assert 'name = "b7"  # --name\n' in result.out
        assert 'log_level = "debug"  # STENTOR_LOG_LEVEL\n' in result.out
        assert f"queue = 5  # {file}:2\n" in result.out
        assert "hush" not in result.out

    def test_a_flag_can_be_taken_back(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "b.toml"
        file.write_text("enforce_advertisements = true\n")
        shown = run("broker", "-c", file, "--no-enforce-advertisements", "--show-config").out
        assert tomllib.loads(shown)["enforce_advertisements"] is False

    def test_listen_may_be_repeated(self, run: Run) -> None:
        shown = run(
            "broker", "--listen", "a:1", "--listen", "unix:/b", "--neighbor", "c:2", "--show-config"
        ).out
        assert tomllib.loads(shown)["listen"] == ["a:1", "unix:/b"]
        assert tomllib.loads(shown)["neighbors"] == ["c:2"]

    def test_all_mistakes_of_a_file_at_once(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "b.toml"
        file.write_text("nmae = 'x'\n[limits]\nqueue = 'many'\n")
        result = run("broker", "-c", file)
        assert result.code == 2
        first, second = result.err.splitlines()
        assert first.startswith(f"stentor: STN-406: {file}:1: there is no key 'nmae'")
        assert second.startswith(f"stentor: STN-406: {file}:3: limits.queue: 'many' is not")


class TestUpCheck:
    def test_says_what_the_file_describes(self, run: Run) -> None:
        result = run("up", "--check", ROOT / "docs" / "examples" / "overlay.toml")
        assert result.code == 0
        assert "5 brokers, 4 links" in result.out
        assert "london  127.0.0.1:7412  neighbors: frankfurt, dublin, madrid" in result.out

    def test_a_cycle_is_an_error(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "overlay.toml"
        links = {"a": "b", "b": "c", "c": "a"}
        file.write_text(
            "".join(f"[[broker]]\nname='{a}'\nneighbors=['{b}']\n" for a, b in links.items())
        )
        result = run("up", "--check", file)
        assert result.code == 2
        assert f"stentor: STN-402: {file}:9: the link between c and a closes a cycle" in result.err
        assert not (tmp_path / "overlay.run").exists()

    def test_islands_are_warned_about(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "overlay.toml"
        file.write_text("[[broker]]\nname='a'\n[[broker]]\nname='b'\n")
        result = run("up", "--check", file)
        assert result.code == 0
        assert result.err.startswith("stentor: warning: ")


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_scripts(self, run: Run, shell: str) -> None:
        result = run("completion", shell)
        assert result.code == 0
        assert "_STENTOR_COMPLETE" in result.out

    def test_of_the_shell_in_use(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHELL", "/bin/zsh")
        assert "#compdef stentor" in run("completion").out
        monkeypatch.setenv("SHELL", "/bin/odd")
        assert run("completion").code == 2


class TestJournal:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """A journal with three notifications in it."""
        done: list[object] = []
        journal = Journal.open(tmp_path, name="b1", retention=Retention())
        journal.start(lambda function, *arguments: function(*arguments), done.append)
        journal.append(
            JournalBatch(
                [b"one", b"two", b"three"],
                producers={"ann": (0, 2)},
                durables={"desk-7": b"state", "\0home desk-9": b"what the core keeps beside them"},
            )
        )
        journal.close()
        return tmp_path

    def test_info(self, run: Run, directory: Path) -> None:
        result = run("journal", "info", directory)
        assert result.code == 0
        assert "3 notifications" in result.out
        assert "1 to 3" in result.out
        assert "durables   desk-7\n" in result.out
        found = json.loads(run("journal", "info", directory, "--json").out)
        assert (found["notifications"], found["durables"]) == (3, ["desk-7"])

    def test_check_and_repair(self, run: Run, directory: Path) -> None:
        result = run("journal", "check", directory)
        assert result.code == 0
        assert "everything is in order" in result.out
        assert "1 producer, 1 durable subscription, 0 last values" in result.out
        path = directory / "journal.db"
        data = bytearray(path.read_bytes())
        place = data.index(b"three")
        data[place : place + 5] = b"seven"
        path.write_bytes(data)
        damaged = run("journal", "check", directory)
        assert damaged.code == 1
        assert "lost" in damaged.out
        repaired = run("journal", "repair", directory)
        assert repaired.code == 0
        assert "the old journal was kept" in repaired.out
        assert run("journal", "check", directory).code == 0
