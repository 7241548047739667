"""The HTTP endpoints: the text format is read back strictly, and nothing that comes in hurts."""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.broker.host import Broker
from stentor.broker.monitoring import (
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    MAX_REQUESTS,
    BadRequest,
    Metric,
    Monitor,
    parse_request,
    render_metrics,
)
from stentor.broker.settings import Settings
from stentor.errors import InvalidAddress, InvalidConfiguration


class Watched:
    """A broker as far as monitoring is concerned."""

    def __init__(self) -> None:
        self.healthy = True
        self.broken = False

    def metrics(self) -> list[Metric]:
        if self.broken:
            raise RuntimeError("broken")
        return [
            ("stentor_published_total", "counter", "Notifications.", [({}, 12)]),
            ("stentor_queue", "gauge", "Waiting.", [({"client": 'a"b\\c\nd'}, 1.5)]),
        ]

    def health(self) -> tuple[bool, dict[str, Any]]:
        return self.healthy, {"journal": "ok" if self.healthy else "full"}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        return False, {"draining": True}

    def status(self) -> dict[str, Any]:
        return {"name": "b1", "clients": []}


def serve(
    body: Callable[[Monitor], Awaitable[None]], watched: Watched | None = None, timeout: float = 5.0
) -> None:
    async def run() -> None:
        address = "127.0.0.1:0"
        async with (
            asyncio.timeout(30),
            Monitor(watched or Watched(), address, timeout=timeout) as m,
        ):
            await body(m)
        assert len(asyncio.all_tasks()) == 1, "a connection was left behind"

    asyncio.run(run())


async def connect(monitor: Monitor) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = monitor.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def answer(
    reader: asyncio.StreamReader, *, body: bool = True
) -> tuple[int, dict[str, str], bytes]:
    """One response, read as strictly as the grammar of HTTP has it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    first, *lines = head.split("\r\n")[:-2]
    match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z ]+", first)
    assert match is not None
    pairs = [re.fullmatch(r"([A-Za-z-]+): (\S.*)", line) for line in lines]
    headers = {pair[1].lower(): pair[2] for pair in pairs if pair is not None}
    assert len(headers) == len(lines)
    size = int(headers["content-length"])
    return int(match[1]), headers, await reader.readexactly(size) if body else b""


async def ask(monitor: Monitor, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """One exchange, after which the server closes the connection or we do."""
    reader, writer = await connect(monitor)
    writer.write(request)
    result = await answer(reader)
    writer.close()
    return result


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: b1", *headers, "", ""]).encode()


# -- the text format, read by the letter of its description


def read_metrics(text: str) -> dict[str, tuple[str, str, list[tuple[dict[str, str], float]]]]:
    """Families by name: type, help and samples. Anything out of the format fails."""
    assert text == "" or text.endswith("\n")
    found: dict[str, tuple[str, str, list[tuple[dict[str, str], float]]]] = {}
    help_of: dict[str, str] = {}
    for line in text.splitlines():
        if comment := re.fullmatch(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)", line):
            assert comment[1] not in found
            assert re.fullmatch(r"(?:[^\\]|\\\\|\\n)*", comment[2])
            help_of[comment[1]] = unescaped(comment[2])
        elif comment := re.fullmatch(r"# TYPE (\S+) (counter|gauge|histogram|untyped)", line):
            assert comment[1] in help_of
            found[comment[1]] = (comment[2], help_of[comment[1]], [])
        else:
            name, labels, value = read_sample(line)
            family = list(found)[-1]
            if found[family][0] == "histogram":
                part = name.removeprefix(family)
                assert part in ("_bucket", "_sum", "_count")
                labels["part"] = part
            else:
                assert name == family, "samples of a metric follow its header"
            assert labels not in [known for known, _ in found[family][2]]
            found[family][2].append((labels, value))
    assert set(help_of) == set(found)
    return found


def read_sample(line: str) -> tuple[str, dict[str, str], float]:
    match = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
    assert match is not None, line
    labels: dict[str, str] = {}
    rest = match[2] or ""
    while rest:
        pair = re.match(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(?:,(?=.)|$)', rest)
        assert pair is not None, rest
        assert pair[1] not in labels
        labels[pair[1]] = unescaped(pair[2])
        rest = rest[pair.end() :]
    special = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}
    return match[1], labels, special[match[3]] if match[3] in special else float(match[3])


def unescaped(text: str) -> str:
    meaning = {r"\\": "\\", r"\n": "\n", r"\"": '"'}
    return re.sub(r'\\[\\n"]', lambda escape: meaning[escape[0]], text)


_texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from('\n"\\')
)
_names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
_label_names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True)
_values = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
_metrics = st.lists(
    st.tuples(
        _names,
        st.sampled_from(["counter", "gauge"]),
        _texts,
        st.lists(
            st.tuples(st.dictionaries(_label_names, _texts, max_size=3), _values),
            max_size=3,
            unique_by=lambda sample: tuple(sorted(sample[0].items())),
        ),
    ),
    max_size=4,
    unique_by=lambda metric: metric[0],
)


class TestTextFormat:
    @given(_metrics)
    def test_what_is_written_is_read_as_the_same(self, metrics: list[Metric]) -> None:
        read = read_metrics(render_metrics(metrics))
        assert read == {
            name: (kind, help, [(dict(labels), float(value)) for labels, value in samples])
            for name, kind, help, samples in metrics
        }

    def test_numbers_beyond_numbers(self) -> None:
        samples = [({"n": str(value)}, value) for value in (math.inf, -math.inf, math.nan, True)]
        text = render_metrics([("x", "gauge", "", samples)])
        assert [line.split()[-1] for line in text.splitlines()[2:]] == ["+Inf", "-Inf", "NaN", "1"]

    @pytest.mark.parametrize(
        "metric",
        [
            ("no name", "gauge", "", []),
            ("", "gauge", "", []),
            ("x", "meter", "", []),
            ("x", "gauge", "", [({"no name": "a"}, 1)]),
            ("x", "gauge", "", [({"__reserved": "a"}, 1)]),
        ],
    )
    def test_what_has_no_place_in_it_is_an_error(self, metric: Metric) -> None:
        with pytest.raises(InvalidConfiguration):
            render_metrics([metric])

    def test_a_name_is_used_once(self) -> None:
        with pytest.raises(InvalidConfiguration, match="twice"):
            render_metrics([("x", "gauge", "", []), ("x", "counter", "", [])])


class TestEndpoints:
    def test_metrics(self) -> None:
        async def body(monitor: Monitor) -> None:
            status, headers, text = await ask(monitor, get("/metrics"))
            assert (status, headers["content-type"]) == (
                200,
                "text/plain; version=0.0.4; charset=utf-8",
            )
            read = read_metrics(text.decode())
            assert read["stentor_published_total"] == ("counter", "Notifications.", [({}, 12.0)])
            assert read["stentor_queue"][2] == [({"client": 'a"b\\c\nd'}, 1.5)]

        serve(body)

    def test_health_follows_the_broker(self) -> None:
        watched = Watched()

        async def body(monitor: Monitor) -> None:
            status, _, text = await ask(monitor, get("/healthz"))
            assert (status, json.loads(text)) == (200, {"journal": "ok"})
            watched.healthy = False
            status, _, text = await ask(monitor, get("/healthz?verbose"))
            assert (status, json.loads(text)) == (503, {"journal": "full"})
            status, _, text = await ask(monitor, get("/readyz"))
            assert (status, json.loads(text)) == (503, {"draining": True})

        serve(body, watched)

    def test_status(self) -> None:
        async def body(monitor: Monitor) -> None:
            status, headers, text = await ask(monitor, get("/status"))
            assert (status, headers["content-type"]) == (200, "application/json")
            assert json.loads(text) == {"name": "b1", "clients": []}

        serve(body)

    def test_a_broker_that_fails_to_answer_is_an_error_of_the_request_alone(self) -> None:
        watched = Watched()
        watched.broken = True

        async def body(monitor: Monitor) -> None:
            status, _, text = await ask(monitor, get("/metrics"))
            assert status == 500
            assert b"broken" not in text
            assert (await ask(monitor, get("/status")))[0] == 200

        serve(body, watched)

    def test_one_connection_serves_many_requests_also_when_they_come_at_once(self) -> None:
        async def body(monitor: Monitor) -> None:
            reader, writer = await connect(monitor)
            writer.write(get("/status") + get("/healthz") + get("/readyz", "Connection: close"))
            results = [await answer(reader) for _ in range(3)]
            assert [(status, headers["connection"]) for status, headers, _ in results] == [
                (200, "keep-alive"),
                (200, "keep-alive"),
                (503, "close"),
            ]
            assert await reader.read() == b""
            writer.close()

        serve(body)

    def test_head_has_no_body(self) -> None:
        async def body(monitor: Monitor) -> None:
            reader, writer = await connect(monitor)
            writer.write(get("/status").replace(b"GET", b"HEAD") + get("/status"))
            status, headers, _ = await answer(reader, body=False)
            assert status == 200
            _, _, text = await answer(reader)
            assert int(headers["content-length"]) == len(text)
            writer.close()

        serve(body)

    def test_http_1_0_closes_unless_asked_otherwise(self) -> None:
        async def body(monitor: Monitor) -> None:
            _, headers, _ = await ask(monitor, b"GET /status HTTP/1.0\r\n\r\n")
            assert headers["connection"] == "close"
            request = b"GET /status HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
            assert (await ask(monitor, request))[1]["connection"] == "keep-alive"

        serve(body)


class TestHostileInput:
    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (get("/"), 404),
            (get("/metrics/../etc"), 404),
            (get("/metrics").replace(b"GET", b"DELETE"), 405),
            (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
            (b"GET /metrics HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
            (b"GET  /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (get("/metrics", "no colon here"), 400),
            (get("/metrics", "Spaced : x"), 400),
            (get("/metrics", "Content-Length: 5"), 413),
            (get("/metrics", "Transfer-Encoding: chunked"), 413),
            (get("/metrics", "X: " + "y" * 2 * MAX_REQUEST_BYTES), 431),
            (b"x" * 3 * MAX_REQUEST_BYTES, 431),
        ],
    )
    def test_is_answered_and_the_connection_closed(self, request_: bytes, status: int) -> None:
        async def body(monitor: Monitor) -> None:
            reader, writer = await connect(monitor)
            writer.write(request_)
            got, headers, _ = await answer(reader)
            assert (got, headers["connection"]) == (status, "close")
            assert await reader.read() == b""
            writer.close()
            assert (await ask(monitor, get("/status")))[0] == 200

        serve(body)

    @given(st.binary(max_size=200))
    def test_no_bytes_confuse_the_parser(self, head: bytes) -> None:
        with suppress(BadRequest):
            request = parse_request(head)
            assert head.startswith(request.method.encode())

    def test_half_a_request_is_given_up_after_a_while(self) -> None:
        async def body(monitor: Monitor) -> None:
            reader, writer = await connect(monitor)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost:")
            assert (await answer(reader))[0] == 408
            assert await reader.read() == b""
            writer.close()

        serve(body, timeout=0.05)

    def test_an_idle_connection_is_closed_without_a_word(self) -> None:
        async def body(monitor: Monitor) -> None:
            reader, writer = await connect(monitor)
            assert await reader.read() == b""
            writer.close()

        serve(body, timeout=0.05)

    def test_there_are_only_so_many_connections(self) -> None:
        async def body(monitor: Monitor) -> None:
            held = [await connect(monitor) for _ in range(MAX_CONNECTIONS)]
            for reader, writer in held:  # each has been taken on
                writer.write(get("/healthz"))
                assert (await answer(reader))[0] == 200
            reader, writer = await connect(monitor)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()
            first_reader, first_writer = held[0]
            first_writer.write(get("/status", "Connection: close"))
            assert (await answer(first_reader))[0] == 200
            for _, each in held:
                each.close()

        serve(body)

    def test_a_connection_serves_only_so_many_requests(self) -> None:
        async def body(monitor: Monitor) -> None:
            reader, writer = await connect(monitor)
            served = 0
            try:
                while True:
                    writer.write(get("/healthz"))
                    await answer(reader)
                    served += 1
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            writer.close()
            assert served == MAX_REQUESTS

        serve(body)

    def test_stopping_does_not_wait_for_anybody(self) -> None:
        async def body(monitor: Monitor) -> None:
            reader, writer = await connect(monitor)
            writer.write(b"GET /status")
            await asyncio.wait_for(monitor.stop(), 2)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()

        serve(body)


class TestAddress:
    def test_only_network_addresses(self) -> None:
        with pytest.raises(InvalidAddress, match="write host:port"):
            Monitor(Watched(), "unix:/x")

    def test_one_that_is_taken_is_named(self) -> None:
        async def body(monitor: Monitor) -> None:
            with pytest.raises(InvalidAddress, match=rf"{monitor.address}.*--monitor"):
                await Monitor(Watched(), monitor.address).start()

        serve(body)


class TestOfABroker:
    def test_everything_it_counts_is_in_the_format_under_a_proper_name(self) -> None:
        async def run() -> None:
            settings = Settings(listen=("127.0.0.1:0",), name='odd "b1"', monitor="127.0.0.1:0")
            async with asyncio.timeout(30), Broker(settings) as broker:
                assert broker.monitor_address is not None
                host, _, port = broker.monitor_address.rpartition(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(get("/metrics") + get("/healthz") + get("/readyz") + get("/status"))
                status, _, text = await answer(reader)
                assert status == 200
                read = read_metrics(text.decode())
                assert len(read) > 20
                for name, (kind, help, samples) in read.items():
                    assert name.startswith("stentor_")
                    assert name.endswith("_total") == (kind == "counter"), name
                    assert help.endswith(".")
                    assert all(labels["broker"] == 'odd "b1"' for labels, _ in samples)
                assert (await answer(reader))[0] == 200
                assert (await answer(reader))[0] == 200
                assert json.loads((await answer(reader))[2])["name"] == 'odd "b1"'
                writer.close()

        asyncio.run(run())
