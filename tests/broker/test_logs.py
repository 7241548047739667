"""Logs: what a line looks like, and the four promises."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.broker.logs import (
    JsonFormatter,
    LogHandler,
    Redaction,
    Repeats,
    TextFormatter,
    configure,
    secrets_of,
)
from stentor.broker.settings import Grant, Settings
from stentor.errors import JournalUnavailable


def record(message: str = "hello", level: int = logging.INFO, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("stentor.x", level, "x.py", 1, message, None, None)
    made.created = 1_767_225_600.125
    made.__dict__.update(fields)
    return made


def text(made: logging.LogRecord, *secrets: str) -> str:
    return TextFormatter("b1", Redaction(secrets)).format(made)


def parsed(made: logging.LogRecord, *secrets: str) -> dict[str, Any]:
    line = JsonFormatter("b1", Redaction(secrets)).format(made)
    assert "\n" not in line
    decoded: dict[str, Any] = json.loads(line)
    return decoded


@pytest.fixture
def untouched() -> Iterator[None]:
    """The process logs afterwards as it did before."""
    root, ours = logging.getLogger(), logging.getLogger("stentor")
    before = root.level, ours.level, list(root.handlers)
    yield
    for handler in [each for each in root.handlers if each not in before[2]]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[0])
    ours.setLevel(before[1])
    logging.captureWarnings(False)


class TestLines:
    def test_text(self) -> None:
        line = text(record("linked with b2", event="link_up", peer="b2", address="[::1]:7411"))
        assert line == (
            "2026-01-01T00:00:00.125Z info    b1 link_up: linked with b2  "
            "peer=b2 address=[::1]:7411"
        )

    def test_json(self) -> None:
        assert parsed(record("linked", event="link_up", peer="b2", rate=1.5)) == {
            "time": "2026-01-01T00:00:00.125Z",
            "level": "info",
            "broker": "b1",
            "message": "linked",
            "event": "link_up",
            "peer": "b2",
            "rate": 1.5,
        }

    def test_an_error_brings_its_code_and_traceback(self) -> None:
        made = record("failed")
        try:
            raise JournalUnavailable("disk full")
        except JournalUnavailable:
            made.exc_info = sys.exc_info()
        assert parsed(made)["code"] == "STN-607"
        assert "JournalUnavailable: disk full" in parsed(made)["exception"]
        first, *rest = text(made).splitlines()
        assert " STN-607: failed" in first
        assert all(line.startswith("    ") for line in rest)

    @given(st.text(), st.text())
    def test_a_record_is_one_line_whatever_a_peer_is_called(self, message: str, peer: str) -> None:
        made = record(message.replace("%", "%%"), peer=peer)
        assert len(text(made).splitlines()) == 1
        assert parsed(made)["level"] == "info"

    def test_fields_cannot_forge_what_every_line_has(self) -> None:
        forged = {"level": "forged", "time": "never", "broker": "b9"}
        made = record("x")
        made.__dict__.update(forged)
        assert not set(forged.items()) & set(parsed(made).items())

    def test_values_that_json_has_no_form_for(self) -> None:
        assert parsed(record("x", error=ValueError("no"), half="\ud800"))["level"]


class TestSecrets:
    @pytest.mark.parametrize("form", [text, parsed])
    def test_a_known_token_is_masked_wherever_it_appears(self, form: Any) -> None:
        made = record(
            "hello from hush-hush", peer="a/hush-hush/b", hello="Hello(token='hush-hush')"
        )
        assert "hush-hush" not in str(form(made, "hush-hush"))

    def test_fields_that_are_called_secrets_are_masked_unseen(self) -> None:
        assert "s3cret" not in text(record("x", token="s3cret", password="s3cret"))
        assert parsed(record("x", token="s3cret"))["token"] == "***"

    def test_in_tracebacks_too(self) -> None:
        made = record("failed")
        try:
            raise ValueError("bad token hush-hush")
        except ValueError:
            made.exc_info = sys.exc_info()
        assert "hush-hush" not in text(made, "hush-hush")

    def test_a_short_one_is_masked_as_a_word(self) -> None:
        assert Redaction(["ab", "abcd"])("ab absent abcde") == "*** absent ***e"

    def test_all_of_the_settings(self) -> None:
        made = Settings(token="one", grants=(Grant("a", token="two"), Grant("b", certificate="c")))
        assert secrets_of(made) == {"one", "two"}


class TestRepeats:
    def test_a_burst_then_a_count_then_anew(self) -> None:
        repeats = Repeats(burst=3, interval=10.0)
        passed = [repeats.admit(record(event="refused"), now=now / 10) for now in range(50)]
        assert passed == [True] * 3 + [False] * 47
        assert repeats.next_due == 10.0
        assert repeats.due(now=9.9) == []
        (summary,) = repeats.due(now=10.0)
        assert summary.getMessage() == "47 more like this in 10 s"
        assert summary.event == "refused"
        assert repeats.next_due is None
        assert repeats.admit(record(event="refused"), now=10.1)

    def test_events_are_counted_apart(self) -> None:
        repeats = Repeats(burst=1, interval=10.0)
        assert repeats.admit(record(event="a"), now=0)
        assert repeats.admit(record(event="b"), now=0)
        assert repeats.admit(record("other text"), now=0)
        assert not repeats.admit(record(event="a"), now=0)

    def test_what_stays_below_the_burst_is_never_held_back(self) -> None:
        repeats = Repeats(burst=2, interval=10.0)
        assert all(repeats.admit(record(event="a"), now=5.0 * i) for i in range(100))

    def test_memory_is_bounded(self) -> None:
        repeats = Repeats(burst=1)
        for number in range(5000):
            repeats.admit(record(event=f"e{number}"), now=0)
        assert len(repeats._events) <= 1024


class TestHandler:
    def test_lines_come_in_order_and_all_are_there_after_closing(self) -> None:
        stream = io.StringIO()
        handler = LogHandler(stream, TextFormatter("", Redaction()), repeats=Repeats(burst=10**6))
        for number in range(1000):
            handler.handle(record(f"line {number}"))
        handler.close()
        assert re.findall(r"line (\d+)", stream.getvalue()) == [str(n) for n in range(1000)]

    def test_what_was_held_back_is_counted_at_the_end(self) -> None:
        stream = io.StringIO()
        handler = LogHandler(stream, TextFormatter("", Redaction()), repeats=Repeats(burst=2))
        for _ in range(7):
            handler.handle(record("again", event="again"))
        handler.close()
        assert stream.getvalue().count("again: again") == 2
        assert "again: 5 more like this" in stream.getvalue()

    def test_a_stream_that_blocks_stalls_nobody_and_losses_are_counted(self) -> None:
        entered, go_on = threading.Event(), threading.Event()

        class Stalled(io.StringIO):
            def write(self, text: str) -> int:
                entered.set()
                go_on.wait()
                return super().write(text)

        stream = Stalled()
        handler = LogHandler(
            stream, TextFormatter("", Redaction()), limit=10, repeats=Repeats(burst=10**6)
        )
        handler.handle(record("first"))
        entered.wait()
        for number in range(25):
            handler.handle(record(f"line {number}"))
        assert handler.dropped == 15
        go_on.set()
        handler.close()
        assert "15 lines of this log were dropped" in stream.getvalue()
        assert "line 9\n" in stream.getvalue()
        assert "line 10\n" not in stream.getvalue()

    def test_a_broken_stream_is_no_error(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w")
        handler = LogHandler(stream, TextFormatter("", Redaction()))
        handler.handle(record("into the void"))
        handler.close()
        assert handler.dropped == 1
        os.close(writing)
        stream.detach().detach()

    def test_a_process_ends_though_its_log_is_stuck(self) -> None:
        """Nobody reads the pipe; the process must still come to its end in time, in order."""
        program = (
            "import logging\n"
            "from stentor.broker.logs import *\n"
            "handler = configure(Settings())\n"
            "handler._repeats = Repeats(burst=10**9)\n"
            "for n in range(3000): logging.getLogger('stentor').info('x' * 1000)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
            assert process.wait(30) == 0


class TestConfigure:
    def test_level_format_and_stream(self, untouched: None) -> None:
        stream = io.StringIO()
        settings = Settings(name="b7", log_level="warning", log_format="json", token="hush")
        handler = configure(settings, stream=stream)
        log = logging.getLogger("stentor.broker.test")
        log.info("not this")
        log.warning("but hush this", extra={"event": "warned"})
        logging.getLogger("asyncio").info("nor this")
        handler.close()
        (line,) = stream.getvalue().splitlines()
        assert json.loads(line)["message"] == "but *** this"
        assert json.loads(line)["broker"] == "b7"

    def test_twice_does_not_log_twice(self, untouched: None) -> None:
        first, second = io.StringIO(), io.StringIO()
        configure(Settings(), stream=first)
        handler = configure(Settings(), stream=second)
        logging.getLogger("stentor").warning("once")
        handler.close()
        assert first.getvalue() == ""
        assert second.getvalue().count("once") == 1
