"""Logs of a broker process: structured, in text or JSON, never in the way.

All code logs through the standard library:

    log.warning("lost %s", peer, extra={"event": "link_lost", "peer": peer})

What is passed as `extra` becomes fields of the line; `event` names what happened in one word,
`code` an error (STN-...), and the rest, such as `peer` and `client`, whom it happened to. This
module decides how that is written, and keeps four promises.

*A log never stalls the broker.* A terminal that was stopped or a pipe that nobody reads blocks
whoever writes to it. So a thread writes, from a bounded queue; when that is full, lines are dropped
and counted, and the count is written as soon as that is possible.

*A storm is a few lines.* Of records with the same event only a burst is written per interval; how
many more there were is said at its end.

*One record is one line* (and, in text, the indented lines of a traceback), whatever bytes a peer
put into its name.

*No secret is written.* Fields with the name of a secret are left out, and every token that the
process knows is replaced wherever it shows up, be it in the text of an exception.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from stentor.broker.settings import Settings
from stentor.errors import StentorError
from stentor.notation.counts import counted

#: Lines that may wait to be written.
QUEUE_LIMIT: Final = 10_000
#: Of one event, so many lines per interval of so many seconds are written.
BURST: Final = 20
INTERVAL: Final = 10.0

_MAX_EVENTS: Final = 1024
_MAX_VALUE: Final = 4096
_HIDDEN: Final = "***"
_SECRET_NAMES: Final = frozenset({"token", "password", "secret", "authorization", "credentials"})
#: What every record has; the rest are fields.
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BARE: Final = re.compile(r"[\w.:/@\[\]+-]+")


class Redaction:
    """Replaces secrets in text.

    >>> Redaction(["hush-hush"])("token=hush-hush")
    'token=***'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Hide these, too."""
        self._known |= set(secrets) - {""}
        known = self._known
        self._long = sorted((s for s in known if len(s) >= 4), key=len, reverse=True)
        # A short one is masked only where it stands alone, or nothing would be left to read.
        short = "|".join(re.escape(s) for s in sorted(known) if len(s) < 4)
        self._short = re.compile(rf"(?<!\w)(?:{short})(?!\w)") if short else None

    def __call__(self, text: str) -> str:
        for secret in self._long:
            if secret in text:
                text = text.replace(secret, _HIDDEN)
        return text if self._short is None else self._short.sub(_HIDDEN, text)


def secrets_of(settings: Settings) -> set[str]:
    """Every token in the settings."""
    tokens = [settings.token, *(grant.token for grant in settings.grants)]
    return {token for token in tokens if token}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the record says beside its message; the code of an exception included."""
    fields = {
        name: _HIDDEN if name in _SECRET_NAMES else value
        for name, value in record.__dict__.items()
        if name not in _STANDARD and value is not None
    }
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, StentorError):
        fields.setdefault("code", error.code)
    return fields


class LineFormatter(logging.Formatter):
    """What both formats have in common."""

    def __init__(self, broker: str, redaction: Redaction) -> None:
        super().__init__()
        #: Whose log it is.
        self.broker = broker
        self._redaction = redaction

    def hide(self, secrets: Iterable[str]) -> None:
        """Show these as little as those that it was given."""
        self._redaction.add(secrets)

    @staticmethod
    def _time(record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @staticmethod
    def _traceback(record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[0] is None:
            return ""
        return "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")


class TextFormatter(LineFormatter):
    """`2026-01-01T12:00:00.000Z info  b1 link_up: linked with b2  peer=b2`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record)
        event = fields.pop("event", "")
        code = fields.pop("code", "")
        parts = [self._time(record), f"{record.levelname.lower():<7}"]
        parts += [_one_line(str(part)) for part in (self.broker, event, code) if part]
        line = f"{' '.join(parts)}: {_one_line(record.getMessage())}"
        shown = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
        if shown:
            line = f"{line}  {shown}"
        lines = [_one_line(each) for each in self._traceback(record).splitlines()]
        return self._redaction("\n    ".join([line, *lines]))


class JsonFormatter(LineFormatter):
    """One JSON object: time, level, broker, message, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self._time(record),
            "level": record.levelname.lower(),
            "broker": self.broker,
            "message": record.getMessage()[:_MAX_VALUE],
        }
        for name, value in fields_of(record).items():
            line.setdefault(name, value[:_MAX_VALUE] if isinstance(value, str) else value)
        trace = self._traceback(record)
        if trace:
            line["exception"] = trace
        return self._redaction(_json(line))


def _json(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        # Half a surrogate pair, a key that is no text, ...: say it in ASCII.
        return json.dumps({str(name): repr(value) for name, value in line.items()})


def _one_line(text: str) -> str:
    if len(text) > _MAX_VALUE:
        text = f"{text[:_MAX_VALUE]}..."
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)[:_MAX_VALUE]
    return text if _BARE.fullmatch(text) else json.dumps(text)


class Repeats:
    """Decides which records are written, and owes a line on those that were not.

    >>> repeats = Repeats(burst=1, interval=10.0)
    >>> record = logging.makeLogRecord({"event": "refused", "msg": "no"})
    >>> [repeats.admit(record, now=now) for now in (0.0, 1.0, 2.0)]
    [True, False, False]
    >>> [summary.getMessage() for summary in repeats.due(now=11.0)]
    ['2 more like this in 10 s']
    """

    def __init__(self, burst: int = BURST, interval: float = INTERVAL) -> None:
        self._burst = burst
        self._interval = interval
        #: Per event: when its interval began, how many came in it, and the last one.
        self._events: OrderedDict[Any, tuple[float, int, logging.LogRecord]] = OrderedDict()

    def admit(self, record: logging.LogRecord, *, now: float) -> bool:
        key = (record.name, record.levelno, getattr(record, "event", None) or record.msg)
        began, count, _ = self._events.get(key, (now, 0, record))
        if now - began >= self._interval and count <= self._burst:
            began, count = now, 0
        if key not in self._events and len(self._events) >= _MAX_EVENTS:
            self._events.popitem(last=False)
        self._events[key] = (began, count + 1, record)
        return count < self._burst

    @property
    def next_due(self) -> float | None:
        """When `due` will next have something to say."""
        owed = [began for began, count, _ in self._events.values() if count > self._burst]
        return min(owed) + self._interval if owed else None

    def due(self, *, now: float, everything: bool = False) -> list[logging.LogRecord]:
        """Records that say how many were left out in intervals that are over."""
        over = [
            (key, count - self._burst, record)
            for key, (began, count, record) in self._events.items()
            if count > self._burst and (everything or now - began >= self._interval)
        ]
        return [self._summary(key, left_out, record) for key, left_out, record in over]

    def _summary(self, key: Any, left_out: int, last: logging.LogRecord) -> logging.LogRecord:
        del self._events[key]
        summary = logging.LogRecord(
            last.name,
            last.levelno,
            last.pathname,
            last.lineno,
            "%d more like this in %g s",
            (left_out, self._interval),
            None,
        )
        summary.event = getattr(last, "event", None) or "repeated"
        return summary


class LogHandler(logging.Handler):
    """Writes lines from a thread of its own."""

    def __init__(
        self,
        stream: TextIO,
        formatter: LineFormatter,
        *,
        limit: int = QUEUE_LIMIT,
        repeats: Repeats | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines = formatter
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self._limit = limit
        self._repeats = Repeats() if repeats is None else repeats
        self._clock = clock
        self._waiting: deque[str] = deque()
        self._wake = threading.Condition()
        self._closed = False
        #: Lines that could not be written because too many were waiting.
        self.dropped = 0
        self._unreported = 0
        self._thread = threading.Thread(target=self._run, name="stentor-log", daemon=True)
        self._thread.start()

    def hide(self, secrets: Iterable[str]) -> None:
        """Let nobody read these in the log, either."""
        self._lines.hide(secrets)

    def name_broker(self, name: str) -> None:
        """From now on the log is that of this broker."""
        self._lines.broker = name

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with self._wake:
                if not self._repeats.admit(record, now=self._clock()):
                    self._wake.notify()  # the writer may have to wait for less long
                    return
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        with self._wake:
            self._put(line)

    def _put(self, line: str) -> None:
        if len(self._waiting) >= self._limit:
            self.dropped += 1
            self._unreported += 1
        else:
            self._waiting.append(line)
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._sum_up(everything=False)
                while not self._waiting and not self._closed:
                    due = self._repeats.next_due
                    self._wake.wait(None if due is None else max(0.0, due - self._clock()))
                    self._sum_up(everything=False)
                lines = list(self._waiting)
                self._waiting.clear()
                if self._unreported:
                    lines.append(self.format(self._loss()))
                    self._unreported = 0
                closed = self._closed
            if lines:
                self._write("\n".join([*lines, ""]))
            elif closed:
                return

    def _sum_up(self, *, everything: bool) -> None:
        for record in self._repeats.due(now=self._clock(), everything=everything):
            self._put(self.format(record))

    def _loss(self) -> logging.LogRecord:
        lost = counted(self._unreported, "line of this log was", "lines of this log were")
        text = "%s dropped: it was written too slowly"
        record = logging.LogRecord("stentor", logging.WARNING, "", 0, text, (lost,), None)
        record.event = "log_overflow"
        return record

    def _write(self, text: str) -> None:
        try:
            if self._descriptor is None:
                self._stream.write(text)
                self._stream.flush()
                return
            # Not through the stream, whose lock a write that blocks would hold for ever: the
            # interpreter could not end.
            data = text.encode("utf-8", "backslashreplace")
            while data:
                data = data[os.write(self._descriptor, data) :]
        except (OSError, ValueError, UnicodeError):
            # Nobody is left to tell: the log itself is what is broken.
            self.dropped += text.count("\n")

    def close(self) -> None:
        """Write what waits, for at most two seconds."""
        with self._wake:
            if not self._closed:
                self._sum_up(everything=True)
                self._closed = True
            self._wake.notify()
        self._thread.join(2.0)
        super().close()


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None  # a stream in memory


def reconfigure(handler: LogHandler, settings: Settings) -> None:
    """Log as these settings say from now on, and hide their secrets as well."""
    handler.hide(secrets_of(settings))
    set_level(settings)


def set_level(settings: Settings) -> None:
    """Log what is as important as the settings say."""
    level = settings.log_level.upper()
    logging.getLogger().setLevel(max(logging.WARNING, logging.getLevelName(level)))
    logging.getLogger("stentor").setLevel(level)


def configure(
    settings: Settings, *, broker: str | None = None, stream: TextIO | None = None
) -> LogHandler:
    """Send the log of this process to a stream (stderr), as the settings say.

    The handler that it returns can be closed to flush the log; it is closed at exit anyway.
    """
    name = broker or settings.name or (settings.listen[0] if settings.listen else "")
    kind = JsonFormatter if settings.log_format == "json" else TextFormatter
    formatter = kind(name, Redaction(secrets_of(settings)))
    handler = LogHandler(sys.stderr if stream is None else stream, formatter)
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, LogHandler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    set_level(settings)
    logging.captureWarnings(True)
    return handler
