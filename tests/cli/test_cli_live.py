"""The commands as an operator uses them: real processes, real sockets."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import IO, Any, NamedTuple

import pytest

PATIENCE = 60.0


class Lines:
    """What a process prints, line by line; a thread reads it, so that nothing waits in buffers."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: Queue[str] = Queue()
        self._thread = threading.Thread(target=self._pump, args=(stream,), daemon=True)
        self._thread.start()

    def _pump(self, stream: IO[str]) -> None:
        for text in stream:
            self._lines.put(text)
        self._lines.put("")
        stream.close()

    def next(self) -> str:
        """The next line, which has to come in time; empty at the end."""
        return self._lines.get(timeout=PATIENCE)

    def until(self, text: str) -> str:
        """The first line with this text."""
        while text not in (found := self.next()):
            assert found, f"the output ended without {text!r}"
        return found

    def rest(self) -> str:
        """Everything to the end."""
        return "".join(iter(self.next, ""))


#: Every process of this run, so that a test that fails leaves none behind.
_started: list[subprocess.Popen[str]] = []


@pytest.fixture(scope="module", autouse=True)
def nobody_left_behind() -> Iterator[None]:
    yield
    for process in _started:
        process.kill()
        process.wait()
    _started.clear()


class Running:
    """A command that is running."""

    def __init__(self, *arguments: object, pipe: bool = False, env: dict[str, str] | None = None):
        own = {k: v for k, v in os.environ.items() if not k.startswith("STENTOR_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stentor", *map(str, arguments)],
            stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=own | (env or {}),
        )
        _started.append(self.process)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out = Lines(self.process.stdout)
        self.err = Lines(self.process.stderr)

    @property
    def stdin(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()


class Result(NamedTuple):
    code: int
    out: str
    err: str


def run(*arguments: object, input: str | None = None, **more: Any) -> Result:
    """A command from its beginning to its end."""
    running = Running(*arguments, pipe=input is not None, **more)
    if input is not None:
        running.stdin.write(input)
    code = running.wait()
    return Result(code, running.out.rest(), running.err.rest())


class RunningBroker(Running):
    """A broker process, from the moment when it says that it listens."""

    def __init__(self, directory: Path, *arguments: object) -> None:
        self.data = directory
        super().__init__("broker", "--listen", "127.0.0.1:0", "--data", directory, *arguments)
        self.banner = [self.out.until("broker ")]
        while not self.banner[-1].startswith("  access"):
            self.banner.append(self.out.next())
        self.address = next(each for each in self.banner if "listening" in each).split()[1]


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """Two brokers, linked."""
    directory = tmp_path_factory.mktemp("brokers")
    first = RunningBroker(directory / "b1")
    second = RunningBroker(directory / "b2", "--neighbor", first.address)
    second.err.until("linked with b1")
    yield first, second
    for broker in (first, second):
        assert broker.end() == 0, broker.err.rest()


@pytest.fixture
def b1(brokers: tuple[RunningBroker, RunningBroker]) -> RunningBroker:
    return brokers[0]


@pytest.fixture
def b2(brokers: tuple[RunningBroker, RunningBroker]) -> RunningBroker:
    return brokers[1]


def subscriber(*arguments: object) -> Running:
    """`stentor subscribe`, in force."""
    process = Running("subscribe", "-v", *arguments)
    process.err.until("subscribed at")
    return process


class TestRecord:
    """What clients recorded, judged by the formal model."""

    @pytest.mark.spec("R-01.17")
    def test_recordings_of_several_processes_are_judged_together(
        self, b1: RunningBroker, b2: RunningBroker, tmp_path: Path
    ) -> None:
        desk, feed = tmp_path / "desk.jsonl", tmp_path / "feed.jsonl"
        # What both match comes once, for they make an inbox.
        filters = ("recorded > 10", "recorded > 15 or recorded < 5")
        recorder = Running(
            "record", b2.address, *filters, "--name", "desk", "--out", desk, "--json"
        )
        assert json.loads(recorder.err.next())["message"].startswith("recording at b2")
        events = "".join(f'{{"recorded": {i}}}\n' for i in range(20))
        assert run("publish", b1.address, "--record", feed, input=events).code == 0
        deadline = time.monotonic() + PATIENCE
        while desk.read_bytes().count(b'"op":"notify"') < 14:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert recorder.end(signal.SIGINT) == 130
        assert "14 notifications recorded" in recorder.err.rest()
        assert json.loads(recorder.out.rest()) == {"recorded": 14, "file": str(desk)}
        done = run("check", desk, feed, "--settled", "--order", "fifo", "--order", "total_global")
        assert done.code == 0, done.out
        assert done.out.startswith("conforms (")
        assert "20 publications, 14 deliveries, 14 owed" in done.out
        assert done.err == ""

        # A killed process leaves a torn line, which costs nothing else.
        text = desk.read_bytes()
        desk.write_bytes(text[:-5])
        done = run("check", desk, feed)
        assert done.code == 0
        assert "desk.jsonl ends within a line" in done.err

        # Who was not given something finds out.
        lines = text.splitlines(keepends=True)
        given = [i for i, line in enumerate(lines) if b'"op":"notify"' in line]
        desk.write_bytes(b"".join(line for i, line in enumerate(lines) if i != given[3]))
        done = run("check", desk, feed, "--settled")
        assert done.code == 1
        assert done.out.startswith("1 violation (")
        assert "LOST at action" in done.out


class TestBroker:
    def test_says_where_it_listens_and_what_it_serves(self, b2: RunningBroker) -> None:
        assert b2.banner[0] == "broker b2\n"
        rows = {each.split()[0]: each.split(None, 1)[1].strip() for each in b2.banner[1:]}
        assert re.fullmatch(r"127\.0\.0\.1:\d+", rows["listening"])
        assert rows["data"] == f"{b2.data}, 0 notifications"
        assert rows["access"] == "everybody"

    def test_an_address_in_use_is_one_line(self, b1: RunningBroker) -> None:
        done = run("broker", "--listen", b1.address)
        assert done.code == 1
        assert done.out == ""
        (complaint,) = done.err.splitlines()
        assert complaint.startswith("stentor: STN-608: ")
        assert b1.address in complaint

    @pytest.mark.slow
    def test_a_directory_in_use_is_one_line(self, b1: RunningBroker) -> None:
        done = run("broker", "--listen", "127.0.0.1:0", "--data", b1.data)
        assert done.code == 1
        assert done.err.startswith("stentor: STN-616: ")
        assert str(b1.process.pid) in done.err

    @pytest.mark.slow
    def test_logs_in_json_name_the_broker(self, tmp_path: Path, b1: RunningBroker) -> None:
        log_options = ("--name", "jay", "--log-format", "json", "--neighbor", b1.address)
        broker = RunningBroker(tmp_path / "b", *log_options)
        broker.err.until("linked with b1")
        assert broker.end(signal.SIGINT) == 0
        lines = [json.loads(each) for each in broker.err.rest().splitlines()]
        assert {each["broker"] for each in lines} == {"jay"}
        assert lines[-1]["level"] == "info"

    @pytest.mark.slow
    def test_monitoring(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        broker = RunningBroker(tmp_path / "b", "--monitor", f"127.0.0.1:{port}")
        assert run("publish", broker.address, '{"x": 1}').code == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as page:
            text = page.read().decode()
        assert re.search(r'^stentor_notifications_published_total\{broker="b"\} 1$', text, re.M)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE) as page:
            assert page.status == 200
        assert broker.end() == 0

    @pytest.mark.slow
    def test_supervised_ends_with_its_standard_input(self, tmp_path: Path) -> None:
        process = Running("broker", "--listen", "127.0.0.1:0", "--supervised", pipe=True)
        process.out.until("listening")
        process.stdin.close()
        assert process.wait() == 0

    @pytest.mark.slow
    def test_strangers_who_may_do_everything_are_warned_about(self, tmp_path: Path) -> None:
        process = Running("broker", "--listen", "0.0.0.0:0", "--data", tmp_path)
        assert "may publish, subscribe and operate this broker" in process.err.until("warning")
        process.out.until("listening")
        assert process.end() == 0


class TestPublishAndSubscribe:
    def test_from_one_broker_to_another(self, b1: RunningBroker, b2: RunningBroker) -> None:
        wanted = subscriber(b2.address, "symbol = 'IBM' and price > 100")
        published = run("publish", b1.address, '{"symbol": "IBM", "price": 120.5}')
        assert (published.code, published.out) == (0, "")
        assert published.err == "stentor: 1 published\n"
        assert wanted.out.next() == '{"symbol":"IBM","price":120.5}\n'
        run(
            "publish",
            b1.address,
            '{"symbol": "IBM", "price": 1}',
            '{"symbol": "IBM", "price": 101}',
        )
        assert json.loads(wanted.out.next())["price"] == 101
        assert wanted.end(signal.SIGINT) == 130

    @pytest.mark.spec("R-01.20")
    def test_several_filters_make_one_inbox(self, b1: RunningBroker, b2: RunningBroker) -> None:
        wanted = subscriber(b2.address, "isa inbox and x > 1", "isa inbox and y = 1", "--meta")
        events = ['{"x": 2, "y": 1}', '{"x": 1, "y": 0}', '{"x": 1, "y": 1}', '{"x": 2, "y": 0}']
        assert run("publish", b1.address, "--type", "inbox", *events).code == 0
        lines = [json.loads(wanted.out.next()) for _ in range(3)]
        first, second = "isa inbox and x > 1", "isa inbox and y = 1"
        assert [(each["x"], each["y"], each["_filters"]) for each in lines] == [
            (2, 1, [first, second]),
            (1, 1, [second]),
            (2, 0, [first]),
        ]
        wanted.end()

    def test_lines_from_a_pipe(self, b1: RunningBroker, b2: RunningBroker) -> None:
        wanted = subscriber(b2.address, "isa pipe", "--count", 5000)
        lines = "".join(f'{{"n": {n}}}\n' for n in range(4999))
        done = run("publish", b1.address, "--type", "pipe", input=lines + '\n{"n": 4999}')
        assert done.err == "stentor: 5,000 published\n"
        assert wanted.wait() == 0
        found = [json.loads(each)["n"] for each in wanted.out.rest().splitlines()]
        assert found == list(range(5000))

    @pytest.mark.slow
    def test_arrays_and_objects_over_several_lines_are_published(
        self, tmp_path: Path, b1: RunningBroker
    ) -> None:
        array, tall, lines = (tmp_path / name for name in ("array.json", "tall.json", "e.jsonl"))
        array.write_text('[\n  {"n": 1},\n  {"n": 2}\n]\n')
        tall.write_text('{\n  "n": 3\n}\n')
        lines.write_text('\n{"n": 4}\n[{"n": 5}, {"n": 6}]\n')
        publish = ("publish", b1.address, "--type", "array")
        assert run(*publish, array, tall, lines).err == "stentor: 6 published\n"
        assert run(*publish, '[{"n": 7}, {"n": 8}]').code == 0
        assert run(*publish, input='[{"n": 9}]').code == 0
        all_of_it = ("subscribe", b1.address, "isa array", "--since", "earliest", "--count", 9)
        assert [json.loads(line)["n"] for line in run(*all_of_it).out.split()] == [*range(1, 10)]
        bad = run(*publish, '[{"n": 10}, {"n": NaN}]')
        assert (bad.code, "argument 1: not JSON" in bad.err) == (2, True)

    def test_each_line_is_published_when_it_comes(self, b1: RunningBroker) -> None:
        wanted = subscriber(b1.address, "isa live")
        publisher = Running("publish", b1.address, "--type", "live", pipe=True)
        for n in range(3):
            publisher.stdin.write(f'{{"n": {n}}}\n')
            publisher.stdin.flush()
            assert json.loads(wanted.out.next()) == {"n": n}
        assert publisher.wait() == 0
        assert publisher.err.rest() == "stentor: 3 published\n"
        wanted.end()

    def test_a_bad_line_is_named_and_what_was_before_it_is_published(
        self, b1: RunningBroker
    ) -> None:
        wanted = subscriber(b1.address, "isa bad", "--count", 1)
        done = run("publish", b1.address, "--type", "bad", input='{"n": 1}\n\n{"n": \n{"n": 3}\n')
        assert done.code == 1
        assert done.err.splitlines() == [
            "stentor: 1 published",
            "stentor: STN-102: line 3: not JSON: the text ends too early; is a quote or a bracket "
            "missing? (stentor explain STN-102)",
        ]
        assert wanted.out.next() == '{"n":1}\n'
        assert wanted.wait() == 0

    @pytest.mark.slow
    def test_bad_lines_can_be_skipped(self, b1: RunningBroker) -> None:
        done = run("publish", b1.address, "--skip-bad", input='{"n": 1}\n[]\n{"n": 3}\n')
        assert done.code == 0
        first, last = done.err.splitlines()
        assert first.startswith("stentor: warning: skipped line 2: a notification is a JSON object")
        assert last == "stentor: 2 published, 1 line skipped"

    @pytest.mark.slow
    def test_what_is_printed_can_be_published_again(self, b1: RunningBroker) -> None:
        original = (
            '{"t":{"$time":"2026-01-01T00:00:00Z"},"b":{"$bytes":"00ff"},"s":{"$set":["a","b"]},'
            '"i":{"$number":"inf"},"pos.x":1.0,"_type":"form","_payload":{"$bytes":"01"}}'
        )
        wanted = subscriber(b1.address, "isa form", "--meta")
        assert run("publish", b1.address, original).code == 0
        first = json.loads(wanted.out.next())
        assert run("publish", b1.address, input=json.dumps(first)).code == 0
        second = json.loads(wanted.out.next())
        assert first.pop("_id") != second.pop("_id")
        assert first.pop("_time") == second.pop("_time")
        assert first == second == json.loads(original)
        wanted.end()

    @pytest.mark.slow
    def test_rate(self, b1: RunningBroker) -> None:
        began = time.monotonic()
        done = run("publish", b1.address, "--rate", 40, input='{"n": 1}\n' * 20)
        assert done.err == "stentor: 20 published\n"
        assert time.monotonic() - began >= 0.5

    @pytest.mark.slow
    def test_a_filter_that_is_none_shows_the_place(self, b1: RunningBroker) -> None:
        done = run("subscribe", b1.address, "symbol == 'IBM'")
        assert done.code == 2
        assert done.err.startswith("stentor: STN-201: line 1, column 8: unexpected '=='")
        assert "       ^" in done.err


class TestSubscriptions:
    def test_durable_goes_on_where_it_was(self, b1: RunningBroker, b2: RunningBroker) -> None:
        options = (b2.address, "isa d", "--durable", "desk-7")
        wanted = subscriber(*options, "--count", 1)
        publish = ("publish", b1.address, "--type", "d")
        run(*publish, '{"n": 1}', '{"n": 2}')
        assert wanted.wait() == 0
        assert wanted.out.rest() == '{"n":1}\n'
        run(*publish, '{"n": 3}')
        rest = run("subscribe", *options, "--count", 2, "--forget")
        assert rest.out == '{"n":2}\n{"n":3}\n'

    @pytest.mark.slow
    def test_history_then_what_is_new(self, b1: RunningBroker, b2: RunningBroker) -> None:
        run("publish", b1.address, "--type", "h", '{"n": 1}', '{"n": 2}')
        wanted = subscriber(b2.address, "isa h", "--since", "1h", "--count", 3)
        run("publish", b1.address, "--type", "h", '{"n": 3}')
        assert wanted.wait() == 0
        assert wanted.out.rest() == '{"n":1}\n{"n":2}\n{"n":3}\n'
        everything = run("subscribe", b2.address, "isa h", "--since", "earliest", "-n", 3)
        assert everything.out == '{"n":1}\n{"n":2}\n{"n":3}\n'

    @pytest.mark.slow
    def test_a_group_shares(self, b1: RunningBroker) -> None:
        members = [
            subscriber(b1.address, "isa g", "--group", "workers", "--count", 5) for _ in range(2)
        ]
        run("publish", b1.address, "--type", "g", *(f'{{"n": {n}}}' for n in range(10)))
        assert [member.wait() for member in members] == [0, 0]
        lines = [each for member in members for each in member.out.rest().splitlines()]
        assert sorted(json.loads(each)["n"] for each in lines) == list(range(10))

    @pytest.mark.slow
    def test_last_values(self, b1: RunningBroker, b2: RunningBroker) -> None:
        quotes = ['{"symbol": "A", "n": 1}', '{"symbol": "B", "n": 2}', '{"symbol": "A", "n": 3}']
        run("publish", b1.address, "--type", "r", "--retain-by", "symbol", *quotes)
        done = run("subscribe", b2.address, "isa r", "--retained", "--count", 2)
        assert sorted(json.loads(each)["n"] for each in done.out.splitlines()) == [2, 3]

    @pytest.mark.slow
    def test_patience(self, b1: RunningBroker) -> None:
        waiting = ("subscribe", b1.address, "isa nothing", "--timeout", "100ms")
        assert run(*waiting).code == 0
        late = run(*waiting, "--count", 1)
        assert late.code == 1
        assert late.err.startswith("stentor: STN-612: 0 of 1 came, then nothing for 0.1 s")

    def test_a_closed_pipe_ends_it_at_once(self, b1: RunningBroker) -> None:
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "stentor", "subscribe", "-v", b1.address, "isa closed"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
        )
        _started.append(process)
        os.close(writing)
        assert process.stderr is not None
        errors = Lines(process.stderr)
        errors.until("subscribed at")
        run("publish", b1.address, "--type", "closed", '{"n": 1}')
        assert os.read(reading, 100) == b'{"n":1}\n'
        os.close(reading)
        assert process.wait(PATIENCE) == 0, "it waits for something to print"
        assert errors.rest() == "stentor: closed\n"

    @pytest.mark.slow
    def test_terminated(self, b1: RunningBroker) -> None:
        assert subscriber(b1.address).end(signal.SIGTERM) == 143


class TestStatus:
    def test_for_people(self, b1: RunningBroker, b2: RunningBroker) -> None:
        wanted = subscriber(b1.address, "isa shown", "--name", "watcher")
        out = run("status", b1.address).out
        assert out.startswith(f"b1  {b1.address}\n")
        for title in ("Links (1)", "Clients (2)", "Subscriptions (1)", "Notifications"):
            assert title in out
        assert re.search(rf"^b2 +{b2.address} +up ", out, re.M)
        assert re.search(r"^watcher ", out, re.M)
        assert "'shown'" in out
        for name in ("routing table", "queues", "dropped", "journal", "commits"):
            assert re.search(rf"^{name} ", out, re.M)
        wanted.end()

    def test_for_scripts(self, b1: RunningBroker) -> None:
        found = json.loads(run("status", b1.address, "--json").out)
        assert found["name"] == "b1"
        assert found["links"][0]["broker"] == "b2"

    @pytest.mark.slow
    def test_again_and_again(self, b1: RunningBroker) -> None:
        watching = Running("status", b1.address, "--watch", "--json", "--interval", "100ms")
        first = json.loads(watching.out.next())
        second = json.loads(watching.out.next())
        assert second["uptime"] > first["uptime"]
        assert watching.end(signal.SIGINT) == 130

    def test_nobody_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            address = f"127.0.0.1:{held.getsockname()[1]}"
        for watch in ([], ["--watch"]):
            done = run("status", address, *watch)
            assert done.code == 1
            assert f"stentor: STN-602: {address} cannot be reached" in done.err

    @pytest.mark.slow
    def test_somebody_else_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            done = run("status", address, "--connect-timeout", "200ms")
        assert done.code == 1
        assert "stentor: STN-612: " in done.err
        assert "is that a Stentor broker?" in done.err

    @pytest.mark.slow
    def test_of_several_addresses_the_first_that_answers(self, b1: RunningBroker) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            nobody = f"127.0.0.1:{held.getsockname()[1]}"
        done = run("status", f"{nobody},{b1.address}", "--json")
        assert json.loads(done.out)["name"] == "b1"


class TestOperation:
    def test_links_come_and_go_and_a_drained_broker_ends(
        self, tmp_path: Path, b1: RunningBroker
    ) -> None:
        third = RunningBroker(tmp_path / "b3")
        assert run("links", "list", third.address).out == "Links\nnone\n"
        assert run("links", "add", third.address, b1.address).code == 0
        third.err.until("linked with b1")
        (link,) = json.loads(run("links", "list", third.address, "--json").out)
        assert (link["broker"], link["state"]) == ("b1", "up")
        again = run("links", "add", third.address, b1.address)
        assert again.code == 1
        assert again.err.startswith("stentor: STN-404: ")
        run("publish", third.address, "--type", "drained", '{"n": 1}')
        drained = run("drain", third.address, "--json")
        assert json.loads(drained.out)["to"] == "b1"
        last = json.loads(drained.err.splitlines()[-1])
        assert last["message"] == "b1 has taken over; the broker ends"
        assert third.wait() == 0
        # What was published there is still to be had, from the broker that took it over.
        done = run("subscribe", b1.address, "isa drained", "--since", "earliest", "--count", 1)
        assert done.out == '{"n":1}\n'

    def test_durables_are_listed_moved_reset_and_deleted(
        self, tmp_path: Path, b1: RunningBroker
    ) -> None:
        other = RunningBroker(tmp_path / "b4", "--neighbor", b1.address)
        other.err.until("linked with b1")
        for n in range(3):
            run("publish", b1.address, "--type", "kept", f'{{"n": {n}}}')
        first = ("subscribe", b1.address, "isa kept", "--durable", "desk-7", "--since", "earliest")
        assert run(*first, "--count", 2).out == '{"n":0}\n{"n":1}\n'
        (found,) = json.loads(run("durables", b1.address, "--json").out)
        assert (found["name"], found["home"], found["reachable"]) == ("desk-7", "b1", True)
        assert found["lag"] >= 1
        assert 0 <= found["oldest"] < 600
        assert found["refused"] == 0
        assert "desk-7" in run("durables", other.address).out
        shown = run("durables", other.address, "show", "desk-7")
        assert "'desk-7' lives at 'b1'; asking there" in shown.err
        assert re.search(r"^oldest +\d+\.\d s$", shown.out, re.MULTILINE)
        assert re.search(r"^resting +none$", shown.out, re.MULTILINE)
        assert run("durables", other.address, "move", "desk-7").code == 0
        here = ("subscribe", other.address, "isa kept", "--durable", "desk-7")
        assert run(*here, "--count", 1).out == '{"n":2}\n'
        assert json.loads(run("durables", b1.address, "--json").out)[0]["home"] == "b4"
        assert run("durables", b1.address, "reset", "desk-7", "--to", "1h").code == 0
        assert run(*here, "--count", 1).out == '{"n":0}\n'
        assert run("durables", b1.address, "delete", "desk-7").code == 0
        assert json.loads(run("durables", b1.address, "--json").out) == []
        gone = run("durables", b1.address, "show", "desk-7")
        assert (gone.code, "no durable subscription 'desk-7'" in gone.err) == (2, True)
        assert run("durables", b1.address, "reset", "desk-7").code == 2

    @pytest.mark.slow
    def test_a_link_that_is_not_there_cannot_be_removed(self, b1: RunningBroker) -> None:
        done = run("links", "remove", b1.address, "nobody")
        assert done.code == 2
        assert "there is no link to 'nobody'" in done.err

    @pytest.mark.slow
    def test_offers(self, b1: RunningBroker) -> None:
        done = run("offers", b1.address, "price > 100")
        assert (done.code, done.out) == (0, "")

    def test_what_is_refused_is_not_counted_as_published(self, tmp_path: Path) -> None:
        """Of many events some, all, or those that nobody waits for."""
        config = tmp_path / "broker.toml"
        config.write_text("[[grants]]\nname = 'some'\ntoken = 'some-token'\npublish = ['n >= 3']\n")
        broker = RunningBroker(tmp_path / "b", "--config", config)
        mine: dict[str, Any] = {"env": {"STENTOR_TOKEN": "some-token"}}
        lines = "".join(f'{{"n": {n}}}\n' for n in range(5))
        for ack, word in (("--ack", "published"), ("--no-ack", "sent")):
            some = run("publish", broker.address, ack, input=lines, **mine)
            assert some.code == 1
            assert f"stentor: 2 {word}, 3 refused\n" in some.err
            assert "may not publish" in some.err
            none = run("publish", broker.address, ack, '{"n": 1}', **mine)
            assert none.code == 1
            assert f"stentor: 0 {word}, 1 refused\n" in none.err
            every = run("publish", broker.address, ack, '{"n": 3}', '{"n": 4}', **mine)
            assert (every.code, every.err) == (0, f"stentor: 2 {word}\n")
        found = run("subscribe", broker.address, "--since", "earliest", "--timeout", "1s", **mine)
        assert [json.loads(line)["n"] for line in found.out.splitlines()] == [3, 4] * 4
        # Each refusal once, with its line; and what else is wrong with the input as well.
        lines = '{"n": 3}\n{"n": 1}\n\n{"n": 2}\n{"n": 5}\n{"n": oops}\n{"n": 6}\n'
        both = run("publish", broker.address, input=lines, **mine)
        assert both.code == 1
        summary, refused, bad = both.err.splitlines()
        assert summary == "stentor: 2 published, 2 refused"
        assert refused.startswith("stentor: STN-604: lines 2 and 4: ")
        assert refused.endswith("(stentor explain STN-604)")
        assert bad.startswith("stentor: STN-102: line 6: not JSON: ")
        one = run("publish", broker.address, "--no-ack", '{"n": 3}', '{"n": 1}', **mine)
        summary, refused = one.err.splitlines()
        assert summary == "stentor: 1 sent, 1 refused"
        assert refused.startswith("stentor: STN-604: argument 2: ")
        assert broker.end() == 0

    def test_where_advertisements_steer_publications_are_advertised_first(
        self, tmp_path: Path
    ) -> None:
        steered = ("--overlay", "graph", "--advertisements", "covering")
        broker = RunningBroker(tmp_path / "b", *steered)
        refused = run("publish", broker.address, '{"n": 1}')
        assert (refused.code, "STN-408" in refused.err) == (1, True)
        offer = ("--advertise", "n = 2", "--advertise", "exists m")
        done = run("publish", broker.address, *offer, '{"n": 2}', '{"m": 3}')
        assert (done.code, done.err) == (0, "stentor: 2 published\n")
        wrong = run("publish", broker.address, "--advertise", "n =", '{"n": 2}')
        assert (wrong.code, "STN-" in wrong.err) == (2, True)
        assert broker.end() == 0

    @pytest.mark.slow
    def test_grants_decide_who_may_do_what(self, tmp_path: Path) -> None:
        config = tmp_path / "broker.toml"
        config.write_text(
            "[[grants]]\nname = 'reader'\ntoken = 'read-token'\npublish = []\n"
            "[[grants]]\nname = 'operator'\ntoken = 'op-token'\noperate = true\n"
        )
        (tmp_path / "token").write_text("op-token\n")
        broker = RunningBroker(tmp_path / "b", "--config", config)
        assert run("status", broker.address).err.startswith("stentor: STN-603: ")
        refused = run("status", broker.address, "--token", "read-token")
        assert refused.err.startswith("stentor: STN-604: ")
        refused = run("drain", broker.address, "--token", "read-token")
        assert refused.err.startswith("stentor: STN-604: ")
        publish = run("publish", broker.address, '{"x": 1}', env={"STENTOR_TOKEN": "read-token"})
        assert publish.code == 1
        assert publish.err.startswith("stentor: 0 published, 1 refused\nstentor: STN-604: ")
        assert run("status", broker.address, "--token", f"@{tmp_path}/token").code == 0
        assert broker.end() == 0
        log = broker.err.rest()
        assert "chmod 600" in log
        assert "read-token" not in log
        assert "op-token" not in log


@pytest.mark.slow
class TestUp:
    def test_an_overlay_that_survives_the_death_of_a_broker(self, tmp_path: Path) -> None:
        file = tmp_path / "overlay.toml"
        file.write_text("[overlay]\nbrokers = 3\ntopology = 'line'\nbase_port = 0\ndata = 'data'\n")
        overlay = Running("up", file)

        def state() -> dict[str, dict[str, Any]]:
            found = json.loads((tmp_path / "overlay.run" / "state.json").read_text())
            return {broker["name"]: broker for broker in found["brokers"]}

        for _ in range(3):
            overlay.out.until("listening")
        before = state()
        wanted = subscriber(before["b3"]["address"], "isa up")
        publish = ("publish", before["b1"]["address"], "--type", "up")
        assert run(*publish, '{"n": 1}').code == 0
        assert wanted.out.next() == '{"n":1}\n'
        os.kill(before["b2"]["pid"], signal.SIGKILL)
        assert "was ended by SIGKILL" in overlay.out.until("b2 | was ended by")
        assert run(*publish, '{"n": 2}').code == 0
        assert "b2 |" in overlay.out.until("listening")
        assert wanted.out.next() == '{"n":2}\n'
        after = state()
        assert after["b2"]["restarts"] == 1
        assert after["b2"]["address"] == before["b2"]["address"]
        pids = [broker["pid"] for broker in after.values()]
        wanted.end()
        assert overlay.end(signal.SIGTERM) == 0
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    def test_killed_it_takes_its_brokers_along(self, tmp_path: Path) -> None:
        file = tmp_path / "overlay.toml"
        file.write_text("[overlay]\nbrokers = 2\nbase_port = 0\n")
        overlay = Running("up", file, "--json")
        ready = [json.loads(overlay.out.until("listening"))["log"] for _ in range(2)]
        assert all("127.0.0.1:" in line for line in ready)
        found = json.loads((tmp_path / "overlay.run" / "state.json").read_text())
        watched = [os.pidfd_open(broker["pid"]) for broker in found["brokers"]]
        overlay.process.kill()
        for descriptor in watched:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(PATIENCE * 1000), "a broker has outlived its supervisor"
            os.close(descriptor)


class TestDetect:
    PATTERN = ("F+ ; L", "--event", "F: type = 'failed'", "--event", "L: type = 'lockout'")

    def test_what_is_detected_is_printed(self, b1: RunningBroker, b2: RunningBroker) -> None:
        options = ("--within", "60s", "--by", "account", "-v", "--count", "1")
        placement = ("--placement", "maximum_reliability")
        detecting = Running("detect", b1.address, *self.PATTERN, *options, *placement)
        detecting.err.until("subscribed at")
        [placed] = json.loads(run("status", b1.address, "--json").out)["placements"]
        assert [part["broker"] for part in placed["parts"]] == ["b1", "b2"]
        events = [{"type": kind, "account": "ann"} for kind in ("failed", "failed", "lockout")]
        text = "".join(f"{json.dumps(event)}\n" for event in events)
        assert run("publish", b2.address, input=text).code == 0
        assert "account=ann  F×2  L×1" in detecting.out.next()
        assert detecting.wait() == 0

    def test_mistakes_are_told_before_anything_is_done(self) -> None:
        done = run("detect", "127.0.0.1:1", *self.PATTERN, "--placement", "nearby")
        assert done.code != 0
        assert "choose one of minimum_latency" in done.err
