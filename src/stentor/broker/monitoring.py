"""The HTTP endpoints by which others watch a broker.

    /metrics   numbers in the text format of Prometheus, version 0.0.4
    /healthz   200 while the broker works, else 503: restart it
    /readyz    200 while the broker takes clients, else 503: send them elsewhere
    /status    everything that `stentor status` shows, as JSON

The server speaks as much HTTP/1.1 as scrapers, probes and curl need: GET and HEAD, with
connections that are kept open. It shares its process with a broker and its port may be reachable
for anybody, so it is bounded in every direction: connections, bytes of a request, requests per
connection, and seconds that a request or the reading of its answer may take. Whatever does not fit
is answered with an error, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from stentor.errors import InvalidAddress, InvalidConfiguration
from stentor.node.latencies import Histogram
from stentor.transport.address import Address

log = logging.getLogger(__name__)

#: One number of a metric: labels, and the value.
Sample: TypeAlias = tuple[Mapping[str, str], float | Histogram]
#: Name, type ("counter", "gauge" or "histogram"), help, and the numbers.
Metric: TypeAlias = tuple[str, str, str, Sequence[Sample]]

#: Connections at the same time.
MAX_CONNECTIONS: Final = 64
#: Bytes of a request's line and headers.
MAX_REQUEST_BYTES: Final = 16_384
#: Requests on one connection.
MAX_REQUESTS: Final = 1000
#: Seconds for a request to come in, and for its answer to go out.
TIMEOUT: Final = 10.0

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE: Final = "application/json"

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TYPES: Final = frozenset({"counter", "gauge", "histogram", "untyped"})
_REQUEST_LINE: Final = re.compile(rb"([!-~]+) ([!-~]+) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Watched(Protocol):
    """What is asked of a broker."""

    def metrics(self) -> Iterable[Metric]: ...

    def health(self) -> tuple[bool, dict[str, Any]]: ...

    def ready(self) -> tuple[bool, dict[str, Any]]: ...

    def status(self) -> dict[str, Any]: ...


# -- the text format


def render_metrics(metrics: Iterable[Metric]) -> str:
    """Metrics in the text format. A name, type or label that it has no place for is an error.

    >>> print(render_metrics([("jobs_total", "counter", "Jobs.", [({"kind": 'a"b'}, 3)])]), end="")
    # HELP jobs_total Jobs.
    # TYPE jobs_total counter
    jobs_total{kind="a\\"b"} 3
    """
    lines: list[str] = []
    seen: set[str] = set()
    for name, kind, help, samples in metrics:
        if not _NAME.fullmatch(name) or name in seen:
            raise InvalidConfiguration(f"{name!r} is not a name for a metric, or is used twice")
        if kind not in _TYPES:
            raise InvalidConfiguration(f"{name}: there is no type {kind!r} of metrics")
        seen.add(name)
        shown = help.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {shown}")
        lines.append(f"# TYPE {name} {kind}")
        for labels, value in samples:
            if isinstance(value, Histogram):
                lines += _buckets(name, labels, value)
            else:
                lines.append(f"{name}{_labels(name, labels)} {_number(value)}")
    return "\n".join([*lines, ""])


def _buckets(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    buckets = [*histogram.buckets(), (math.inf, histogram.count)]
    for bound, count in buckets:
        shown = _labels(name, {**labels, "le": "+Inf" if bound == math.inf else f"{bound:g}"})
        yield f"{name}_bucket{shown} {count}"
    yield f"{name}_sum{_labels(name, labels)} {_number(histogram.sum)}"
    yield f"{name}_count{_labels(name, labels)} {histogram.count}"


def _labels(metric: str, labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = []
    for name, value in labels.items():
        if not _LABEL.fullmatch(name):
            raise InvalidConfiguration(f"{metric}: {name!r} is not a name for a label")
        text = str(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        pairs.append(f'{name}="{text}"')
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


# -- HTTP


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class BadRequest(Exception):
    """A request that is answered with an error, after which the connection is closed."""

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(reason)
        self.answer = Answer(status, "text/plain; charset=utf-8", f"{reason}\n".encode(), headers)


class _Request(NamedTuple):
    method: str
    path: str
    keep_alive: bool


def parse_request(head: bytes) -> _Request:
    """The request that these lines make; raises `BadRequest`.

    >>> parse_request(b"GET /metrics?x=1 HTTP/1.1\\r\\nHost: b1\\r\\n")
    _Request(method='GET', path='/metrics', keep_alive=True)
    """
    first, *rest = head.replace(b"\r\n", b"\n").split(b"\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        if re.fullmatch(rb"[!-~]+ [!-~]+ HTTP/\d+(\.\d+)?", first):
            raise BadRequest(505, "this server speaks HTTP/1.1")
        raise BadRequest(400, "this is not an HTTP request")
    headers: dict[str, str] = {}
    for text in rest:
        if not text:
            continue
        match = _HEADER.fullmatch(text)
        if match is None:
            raise BadRequest(400, "a header line is malformed")
        name = match[1].decode("ascii").lower()
        value = match[2].decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    newer = line[3] == b"1"
    if newer and "host" not in headers:
        raise BadRequest(400, "the Host header is missing")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequest(413, "no request here has a body")
    tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    keep = "close" not in tokens and (newer or "keep-alive" in tokens)
    path = line[2].decode("ascii").partition("?")[0]
    return _Request(line[1].decode("ascii"), path, keep)


class Monitor:
    """The server. It is started and stopped with its broker.

    `address` is host:port; with port 0 the system chooses one, which `address` then has.
    """

    def __init__(self, broker: Watched, address: str, *, timeout: float = TIMEOUT) -> None:
        where = Address.parse(address)
        if where.kind != "tcp":
            raise InvalidAddress(f"{address!r}: monitoring is over HTTP; write host:port")
        self._where = where
        self._timeout = timeout
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._pages: dict[str, Callable[[], Answer]] = {
            "/metrics": lambda: _metrics(broker),
            "/healthz": lambda: _verdict(broker.health()),
            "/readyz": lambda: _verdict(broker.ready()),
            "/status": lambda: Answer(200, JSON_TYPE, _json(broker.status())),
        }

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        return str(self._where)

    async def __aenter__(self) -> Monitor:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; `InvalidAddress` if the address cannot be used."""
        try:
            self._server = await asyncio.start_server(
                self._connected,
                self._where.host or None,
                self._where.port,
                limit=MAX_REQUEST_BYTES,
            )
        except OSError as error:
            raise InvalidAddress(
                f"cannot listen for monitoring at {self._where}: {error.strerror or error}; "
                "choose another address with --monitor"
            ) from error
        self._where = self._where.with_port(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close every connection, and listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the other side is gone, or the broker is
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(MAX_REQUESTS):
            request = _Request("GET", "", False)
            try:
                head = await self._head(reader)
                if head is None:
                    return
                request = parse_request(head)
                answer = self._answer(request)
            except BadRequest as refused:
                answer = refused.answer
                request = request._replace(keep_alive=False)
            async with asyncio.timeout(self._timeout):
                await _send(writer, answer, request)
            if not request.keep_alive:
                await self._linger(reader, writer)
                return

    async def _head(self, reader: asyncio.StreamReader) -> bytes | None:
        """The request's line and headers; None if the other side asks nothing more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                first = await reader.read(1)
            if not first:
                return None
            try:
                async with asyncio.timeout(self._timeout):
                    return first + await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                raise BadRequest(431, f"a request has at most {MAX_REQUEST_BYTES} bytes") from None
            except asyncio.IncompleteReadError:
                raise BadRequest(400, "the request ended early") from None
            except TimeoutError:
                raise BadRequest(408, "the request took too long") from None
        return None

    def _answer(self, request: _Request) -> Answer:
        page = self._pages.get(request.path)
        if page is None:
            raise BadRequest(404, f"there is nothing here; try {', '.join(self._pages)}")
        if request.method not in ("GET", "HEAD"):
            raise BadRequest(405, "ask with GET or HEAD", ("Allow", "GET, HEAD"))
        try:
            return page()
        except Exception:
            log.exception("cannot answer %s", request.path, extra={"event": "monitoring_failed"})
            raise BadRequest(500, "the broker could not answer; its log says why") from None

    async def _linger(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Close without destroying the answer.

        A connection that is closed while unread bytes are waiting is reset, and the other side
        may lose what it has not read yet. So what it still sends is read and thrown away, for as
        long and as much as a request may take.
        """
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(self._timeout):
                if writer.can_write_eof():
                    writer.write_eof()
                left = 4 * MAX_REQUEST_BYTES
                while left > 0:
                    data = await reader.read(left)
                    if not data:
                        return
                    left -= len(data)


async def _send(writer: asyncio.StreamWriter, answer: Answer, request: _Request) -> None:
    headers = [
        ("Content-Type", answer.type),
        ("Content-Length", str(len(answer.body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "keep-alive" if request.keep_alive else "close"),
        *answer.headers,
    ]
    head = f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers)
    writer.write(f"{head}\r\n".encode("latin-1"))
    if request.method != "HEAD":
        writer.write(answer.body)
    await writer.drain()


def _metrics(broker: Watched) -> Answer:
    return Answer(
        200, METRICS_TYPE, render_metrics(broker.metrics()).encode("utf-8", "backslashreplace")
    )


def _verdict(verdict: tuple[bool, dict[str, Any]]) -> Answer:
    good, details = verdict
    return Answer(200 if good else 503, JSON_TYPE, _json(details))


def _json(data: Any) -> bytes:
    return msgspec.json.encode(data, enc_hook=str) + b"\n"
