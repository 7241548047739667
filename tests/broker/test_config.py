"""Configuration: units, layers, places of mistakes, and the way back to a file."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.broker.config import load, to_toml, with_absolute_paths
from stentor.broker.config_keys import broker_keys, grant_keys, reference
from stentor.broker.settings import (
    LOG_FORMATS,
    LOG_LEVELS,
    OVERFLOW,
    ROUTING,
    Grant,
    Limits,
    Retention,
    Settings,
    TlsFiles,
)
from stentor.errors import InvalidConfiguration
from stentor.model.names import text_problem
from stentor.notation.document import Document
from stentor.notation.toml_lines import KeyPath, TomlLines
from stentor.notation.units import (
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    short_size,
)

ROOT = Path(__file__).resolve().parents[2]


def problems(text: str, tmp_path: Path, **more: Any) -> list[str]:
    """What is wrong with a file, without the directory it is in."""
    file = tmp_path / "broker.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidConfiguration) as caught:
        load(file, environment=more.get("environment", {}), flags=more.get("flags"))
    return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).splitlines()]


def settings(text: str, tmp_path: Path, **more: Any) -> Settings:
    file = tmp_path / "broker.toml"
    file.write_text(text, "utf-8")
    return load(file, environment=more.get("environment", {}), flags=more.get("flags")).settings


class TestUnits:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("500ms", 0.5),
            ("30s", 30),
            ("30 s", 30),
            ("1h 30m", 5400),
            ("1h30m", 5400),
            ("1.5H", 5400),
            ("7d", 604_800),
            ("2w", 1_209_600),
            ("90", 90),
            ("1e3", 1000),
            (".5s", 0.5),
            ("1m 5ms", 60.005),
            ("5 minutes", 300),
            ("1 hour, 30 min", 5400),
            ("250us", 0.00025),
        ],
    )
    def test_durations(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == pytest.approx(seconds, rel=1e-15)

    @pytest.mark.parametrize(
        "text", ["", " ", "s", "5 years", "-5s", "30m 1h", "1h 1h", "1h,", "inf", "nan", "5ss"]
    )
    def test_no_durations(self, text: str) -> None:
        with pytest.raises(InvalidConfiguration, match="a duration such as"):
            parse_duration(text)

    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("0", 0),
            ("4096", 4096),
            ("512 KiB", 512 * 1024),
            ("10GiB", 10 * 2**30),
            ("10 gib", 10 * 2**30),
            ("10 GB", 10**10),
            ("1.5 kB", 1500),
            ("0.5 MiB", 2**19),
            ("7 b", 7),
            ("2 TiB", 2**41),
        ],
    )
    def test_sizes(self, text: str, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", ["", "K", "10 GiBs", "-1", "1e9", "10 apples", "0.5", "1.3 B"])
    def test_no_sizes(self, text: str) -> None:
        with pytest.raises(InvalidConfiguration):
            parse_size(text)

    def test_beyond_any_number_is_refused(self) -> None:
        for text in ("9" * 400, "9" * 400 + "w"):
            with pytest.raises(InvalidConfiguration, match="too large"):
                parse_duration(text)

    @given(st.floats(min_value=0, allow_infinity=False))
    def test_durations_are_written_as_they_are_read(self, seconds: float) -> None:
        assert parse_duration(format_duration(seconds)) == seconds

    @given(st.integers(min_value=0, max_value=2**60))
    def test_sizes_are_written_as_they_are_read(self, size: int) -> None:
        assert parse_size(format_size(size)) == size

    @given(st.integers(min_value=0, max_value=2**49))
    def test_short_sizes_have_three_digits_and_are_right(self, size: int) -> None:
        number, unit = short_size(size).split()
        assert len(number.replace(".", "")) <= 3
        factor = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[unit]
        assert float(number) * factor == pytest.approx(size, rel=0.006)


# -- lines

_names = st.text("ab_-1", min_size=1, max_size=3) | st.text(min_size=0, max_size=3).filter(
    lambda name: all(ch.isprintable() for ch in name)
)
_scalars = (
    st.integers(-5, 5)
    | st.booleans()
    | st.text(min_size=0, max_size=6).filter(
        lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s)
    )
)
_trees = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=12,
)


class Writer:
    """Writes data as TOML in whatever style the draw says, and remembers where each key went."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[KeyPath, int] = {(): 1}

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def put(self, text: str) -> None:
        self.text += text

    def blank(self) -> None:
        self.put(self.choose("", "", "\n", "# [no] = 'header'\n", "  \n\n"))

    def note(self, path: KeyPath) -> None:
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], self.line)

    def name(self, name: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9_-]+", name) and self.choose(True, True, False):
            return name
        if "'" not in name and self.choose(True, False):
            return f"'{name}'"
        return self.string(name)

    def string(self, text: str) -> str:
        escaped = "".join(
            f"\\u{ord(ch):04x}" if ord(ch) < 0x20 or ord(ch) == 0x7F or ch in '"\\' else ch
            for ch in text
        )
        return f'"{escaped}"'

    def table(self, table: dict[str, Any], path: KeyPath, inside: list[str]) -> None:
        """A table's own keys, then those of its tables that get headers."""
        later = []
        for key, value in table.items():
            tables = isinstance(value, dict)
            many = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
            style = self.choose("inline", "header") if tables or many else "inline"
            if style == "header":
                later.append((key, value))
                continue
            if tables and value and self.choose(True, False):
                for inner, inner_value in value.items():  # dotted
                    self.blank()
                    self.note((*path, key, inner))
                    self.put(f"{self.name(key)} {'.'} {self.name(inner)} = ")
                    self.value(inner_value, (*path, key, inner))
                    self.put("\n")
                continue
            self.blank()
            self.put(self.choose("", "  "))
            self.note((*path, key))
            self.put(f"{self.name(key)}{self.choose(' = ', '=')}")
            self.value(value, (*path, key))
            self.put(self.choose("\n", " # the end ] }\n"))
        for key, value in later:
            for index, one in enumerate(value if isinstance(value, list) else [value]):
                self.blank()
                names = [*inside, self.name(key)]
                here: KeyPath = (*path, key)
                if isinstance(value, list):
                    self.note(here)
                    here = (*here, index)
                self.note(here)
                header = " . ".join(names)
                self.put(f"[[{header}]]\n" if isinstance(value, list) else f"[ {header} ]\n")
                self.table(one, here, names)

    def value(self, value: Any, path: KeyPath) -> None:
        if isinstance(value, bool):
            self.put("true" if value else "false")
        elif isinstance(value, int):
            self.put(str(value))
        elif isinstance(value, str):
            style = self.choose("basic", "long", "literal")
            plain = "'" not in value and value.isprintable()
            if style == "literal" and plain:
                self.put(f"'{value}'")
            elif style == "literal" and plain is False and "'" not in value and value.isascii():
                lines = all(ch.isprintable() or ch == "\n" for ch in value)
                self.put(f"'''\n{value}'''" if lines else self.string(value))
            elif style == "long":
                inner = self.string(value)[1:-1].replace("\\u000a", "\n")
                self.put(f'"""\n{inner}"""')
            else:
                self.put(self.string(value))
        elif isinstance(value, list):
            self.put("[")
            for index, item in enumerate(value):
                self.put(self.choose("", "\n", " # ] comment\n  "))
                self.note((*path, index))
                self.value(item, (*path, index))
                self.put(self.choose(",", " ,\n") if index < len(value) - 1 else "")
            self.put(self.choose("", ",", ",\n# last\n", "\n") if value else "")
            self.put("]")
        else:
            self.put("{ ")
            for index, (key, item) in enumerate(value.items()):
                self.put(", " if index else "")
                self.note((*path, key))
                self.put(f"{self.name(key)} = ")
                self.value(item, (*path, key))
            self.put(" }")


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], Writer]:
    data = draw(st.dictionaries(_names, _trees, max_size=4))
    writer = Writer(draw)
    writer.table(data, (), [])
    return data, writer


def paths(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += paths(inner, (*path, index))
    return found


class TestTomlLines:
    @given(documents())
    def test_every_key_is_found_where_it_was_written(
        self, document: tuple[dict[str, Any], Writer]
    ) -> None:
        data, writer = document
        assert tomllib.loads(writer.text) == data, "the writer of this test is wrong"
        lines = TomlLines(writer.text)
        for path in paths(data):
            assert path in lines
            assert lines.of(*path) == writer.lines[path]

    def test_a_header_inside_an_array_of_tables_means_its_last(self) -> None:
        text = (
            "[[b]]\n[b.limits]\nx = 1\n[[b]]\n[b.limits]\nx = 2\n[[b.c]]\ny = 1\n[[b.c]]\ny = 2\n"
        )
        lines = TomlLines(text)
        assert lines.of("b", 0, "limits", "x") == 3
        assert lines.of("b", 1, "limits", "x") == 6
        assert lines.of("b", 1, "c", 1, "y") == 10
        assert lines.of("b", 0, "c") == 1, "there is none: the line of the table that lacks it"

    def test_a_table_is_where_its_own_header_is(self) -> None:
        lines = TomlLines("[a.b]\nx = 1\n\n[a]\ny = 2\n")
        assert (lines.of("a", "b"), lines.of("a"), lines.of("a", "y")) == (1, 4, 5)

    def test_strings_that_look_like_structure(self) -> None:
        text = 'a = """\n]\n""""\nb = \'\'\'x\n[t]\n\'\'\'\'\'\nc = "\\"]#"\nd = 1\n'
        assert tomllib.loads(text)["d"] == 1
        assert TomlLines(text).of("d") == 8

    def test_windows_lines(self) -> None:
        lines = TomlLines("a = 1\r\n\r\n[t]\r\nb = [\r\n 1,\r\n 2 ]\r\n")
        assert lines.of("t", "b", 1) == 6


# -- layers


class TestPrecedence:
    def test_defaults(self) -> None:
        assert load(environment={}).settings == Settings()

    def test_options_before_environment_before_file_before_default(self, tmp_path: Path) -> None:
        file = "name = 'file'\nrouting = 'simple'\nlog_level = 'error'\n"
        made = settings(
            file,
            tmp_path,
            environment={"STENTOR_NAME": "environment", "STENTOR_ROUTING": "identity"},
            flags={"name": "option", "data": None},
        )
        assert (made.name, made.routing, made.log_level) == ("option", "identity", "error")
        assert made.log_format == "text"

    @pytest.mark.parametrize("key", broker_keys(), ids=lambda key: key.dotted)
    def test_every_key_can_be_set_in_every_layer(self, key: Any, tmp_path: Path) -> None:
        samples = {
            "text": key.about.choices[-1] if key.about.choices else "b1",
            "secret": "hush",
            "flag": "true",
            "count": "17",
            "share": "0.3",
            "duration": "2m",
            "size": "3 MiB",
            "path": str(tmp_path / "x"),
            "address": "127.0.0.1:9000",
            "addresses": "127.0.0.1:9000, 127.0.0.1:9001",
        }
        text = samples[key.about.kind]
        extra = {
            "tls.certificate": {"tls.key": "k"},
            "tls.key": {"tls.certificate": "c"},
            "tls.ca": {"tls.certificate": "c", "tls.key": "k"},
        }.get(key.dotted, {})
        flagged = load(environment={}, flags={key.dotted: text, **extra}).settings
        variables = load(environment={key.variable: text}, flags=extra).settings
        toml = {"flag": "true", "addresses": "['127.0.0.1:9000', '127.0.0.1:9001']"}
        written = toml.get(
            key.about.kind, text if key.about.kind in ("count", "share") else f"'{text}'"
        )
        filed = settings(f"{key.dotted} = {written}\n", tmp_path, flags=extra)
        assert flagged == variables == filed
        assert flagged != Settings()

    def test_an_empty_variable_counts_as_not_set(self) -> None:
        assert load(environment={"STENTOR_NAME": ""}).settings.name is None

    def test_where_each_value_came_from(self, tmp_path: Path) -> None:
        file = tmp_path / "b.toml"
        file.write_text("# a comment\n[limits]\nqueue = 5\n")
        loaded = load(file, environment={"STENTOR_NAME": "x"}, flags={"listen": ["[::1]:1"]})
        assert loaded.origins == {
            "listen": "--listen",
            "name": "STENTOR_NAME",
            "limits.queue": f"{file}:3",
        }
        shown = to_toml(loaded.settings, origins=loaded.origins)
        assert 'listen = ["[::1]:1"]  # --listen\n' in shown
        assert f"queue = 5  # {file}:3\n" in shown
        assert 'routing = "covering"  # default\n' in shown

    def test_a_variable_that_is_no_setting_is_a_warning(self) -> None:
        # A service called "stentor" gives every container on Kubernetes STENTOR_SERVICE_HOST.
        loaded = load(environment={"STENTOR_SERVICE_HOST": "10.0.0.1", "STENTOR_LISTN": "x"})
        assert len(loaded.warnings) == 2
        assert loaded.warnings[0].startswith(
            "STENTOR_LISTN: there is no such setting; did you mean"
        )
        assert "'STENTOR_LISTEN'?" in loaded.warnings[0]


class TestValues:
    def test_paths_in_a_file_are_relative_to_it(self, tmp_path: Path) -> None:
        made = settings(
            "data = 'journal'\nlisten = 'unix:b.sock'\n[tls]\ncertificate='c'\nkey='/k'\n", tmp_path
        )
        assert made.data == tmp_path / "journal"
        assert made.listen == (f"unix:{tmp_path}/b.sock",)
        assert made.tls == TlsFiles(tmp_path / "c", Path("/k"))
        assert load(environment={}, flags={"data": "journal"}).settings.data == Path("journal")

    def test_none_lifts_a_bound(self, tmp_path: Path) -> None:
        made = settings("[retention]\nseconds = 'none'\nbytes = 'none'\n", tmp_path)
        assert made.retention == Retention(None, None)

    def test_a_name_may_be_none(self, tmp_path: Path) -> None:
        assert settings("name = 'none'", tmp_path).name == "none"

    def test_a_secret_from_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "t").write_text("hush\n")
        assert settings("token = '@t'", tmp_path).token == "hush"
        assert settings("token = '@@t'", tmp_path).token == "@t"
        (problem,) = problems("token = '@nowhere'", tmp_path)
        assert problem.startswith("broker.toml:1: token: cannot read the secret in nowhere: ")

    def test_secrets_that_others_can_read_are_warned_about(self, tmp_path: Path) -> None:
        file = tmp_path / "b.toml"
        for text in ("token = 'hush'", "[[grants]]\nname='a'\ntoken='hush'"):
            file.write_text(text)
            file.chmod(0o644)
            (warning,) = load(file, environment={}).warnings
            assert "chmod 600" in warning
            assert "hush" not in warning
            file.chmod(0o600)
            assert load(file, environment={}).warnings == ()

    def test_grants(self, tmp_path: Path) -> None:
        made = settings(
            """
            [[grants]]
            name = "desk"
            token = "hush"
            publish = []
            subscribe = ["price > 100", "symbol = 'IBM'"]

            [[grants]]
            name = "b2"
            certificate = "b2.example"
            broker = true
            """,
            tmp_path,
        )
        assert made.grants == (
            Grant("desk", token="hush", publish=(), subscribe=("price > 100", "symbol = 'IBM'")),
            Grant("b2", certificate="b2.example", broker=True),
        )


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("x = 1\nnmae = 'b'", "2: there is no key 'nmae'; did you mean 'name'?"),
            ("[limits]\n\nqueu = 3", "3: there is no key 'queu' in limits; did you mean 'queue'?"),
            ("limits.queue = -3", "1: limits.queue: -3 is too small; at least 1"),
            (
                "limits = { queue = 1, timeout = 'soon' }",
                "1: limits.timeout: 'soon' is not a duration such as",
            ),
            ("limits = 5", "1: limits is a table; write [limits]"),
            ("[[limits]]\nqueue = 1", "1: limits is a table; write [limits]"),
            ("\n[grants]\nname = 'a'", "2: grants is a list of tables; write [[grants]]"),
            ("[[grants]]\ntoken = 'x'", "1: a grant needs a name"),
            ("[[grants]]\nname = 'x'", "1: a grant needs a token or a certificate"),
            ("[[grants]]\nname='x'\ntoken='t'\nrole = 1", "4: there is no key 'role' in grants"),
            (
                "[[grants]]\nname='x'\ntoken='t'\npublish=['price >']",
                "4: publish: line 1, column 8",
            ),
            (
                "[[grants]]\nname='x'\ntoken='t'\n[[grants]]\nname='y'\ntoken='t'",
                "4: the token is that of the grant at broker.toml:1",
            ),
            ("routing = 'coverin'", "1: routing: 'coverin' is not one of covering, identity,"),
            (
                "log_level = 'loud'",
                "1: log_level: 'loud' is not one of debug, info, warning, error",
            ),
            ("name = 7", "1: name: 7 is not text; put it in quotes"),
            ("name = ''", "1: name: empty"),
            ("listen = 7411", "1: listen: 7411 is not a list of texts"),
            ("listen = []", "1: a broker must listen somewhere"),
            ("listen = 'http://x'", "1: listen: 'http://x': http:// is not supported"),
            ("listen = ['a:1', 'a:1']", "1: an address is given twice"),
            ("listen = 'tls://a:1'", "1: tls:// needs a certificate"),
            ("listen = 'a:1'\nneighbors = 'a:1'", "2: a:1 is this broker's own address"),
            ("neighbors = ['a:0']", "1: a:0: nobody can be reached at port 0"),
            ("neighbors = ['a:1', 'a:1']", "1: a neighbor is given twice"),
            ("monitor = 'unix:/x'", "1: unix:/x is not of the form host:port"),
            ("monitor = '127.0.0.1:7411'", "1: 127.0.0.1:7411 is where the broker listens"),
            (
                "enforce_advertisements = 'yes'",
                "1: enforce_advertisements: 'yes' is neither true nor false",
            ),
            ("limits.clients = true", "1: limits.clients: True is not a whole number"),
            ("limits.frame = 1.5", "1: limits.frame: 1.5 is not a size such as"),
            ("retention.seconds = nan", "1: retention.seconds: nan is not a duration"),
            (
                "\n[tls]\nkey = 'k'",
                "3: tls.certificate is missing; give it with --tls-certificate, STENTOR_TLS_",
            ),
            ("a = 1\nb = = 2", "2:5: invalid value"),
            ("a = 1\nb = '", "2"),
            ("[a\n", "1:3"),
        ],
    )
    def test_is_named_with_its_line(self, text: str, expected: str, tmp_path: Path) -> None:
        found = problems(text, tmp_path)
        assert any(line.startswith(f"broker.toml:{expected}") for line in found), found

    def test_all_are_reported_at_once_and_nothing_else(self, tmp_path: Path) -> None:
        found = problems("nmae = 1\n[limits]\nqueue = 'x'\n", tmp_path, flags={"routing": "best"})
        assert [line.split(": ")[0] for line in found] == [
            "--routing",
            "broker.toml:1",
            "broker.toml:3",
        ]

    def test_options_and_variables_are_named_by_their_own_names(self) -> None:
        with pytest.raises(InvalidConfiguration, match=r"^--limits-queue: 'x' is not a"):
            load(environment={}, flags={"limits.queue": "x"})
        with pytest.raises(
            InvalidConfiguration, match=r"^STENTOR_LIMITS_QUEUE: .*'x' is not a whole"
        ):
            load(environment={"STENTOR_LIMITS_QUEUE": "x"})

    def test_no_file_and_no_text(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidConfiguration, match="there is no such file"):
            load(tmp_path / "absent.toml", environment={})
        with pytest.raises(InvalidConfiguration, match="cannot be read: Is a directory"):
            load(tmp_path, environment={})
        (tmp_path / "b.toml").write_bytes(b"a = 1\nb = '\xff'\n")
        with pytest.raises(InvalidConfiguration, match=r"b\.toml:2: not UTF-8"):
            load(tmp_path / "b.toml", environment={})

    def test_absurd_nesting_is_a_mistake_like_any_other(self) -> None:
        with pytest.raises(InvalidConfiguration, match="nested too deeply"):
            Document(Path("b.toml"), "a = " + "[" * 100_000 + "]" * 100_000, InvalidConfiguration)


# -- the way back

_text = st.text(min_size=1).filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s))
_counts = st.integers(1, 2**40)
_durations = st.floats(0.5, 1e12)
_all_settings = st.builds(
    Settings,
    listen=st.lists(
        st.integers(1, 65535).map(lambda port: f"127.0.0.1:{port}"), min_size=1, unique=True
    ).map(tuple),
    name=st.none() | _text,
    data=st.none() | st.just(Path("/data")),
    neighbors=st.lists(st.integers(1, 65535).map(lambda port: f"[::1]:{port}"), unique=True).map(
        tuple
    ),
    routing=st.sampled_from(ROUTING),
    enforce_advertisements=st.booleans(),
    monitor=st.none() | st.just("localhost:9"),
    tls=st.none()
    | st.builds(
        TlsFiles, st.just(Path("/c")), st.just(Path("/k")), st.none() | st.just(Path("/a"))
    ),
    grants=st.lists(
        st.builds(
            Grant,
            name=_text.filter(lambda s: "@" not in s and text_problem(s) is None),
            token=st.none() | _text.map(lambda s: s),
            certificate=_text,
            publish=st.sampled_from([(), ("",), ("x > 1", "y = 'a'")]),
            subscribe=st.sampled_from([(), ("",), ("x > 1", "y = 'a'")]),
            operate=st.booleans(),
            broker=st.booleans(),
            overflow=st.lists(st.sampled_from(OVERFLOW), unique=True).map(tuple),
            block=st.none() | _durations,
            subscriptions=st.none() | _counts,
            durables=st.none() | _counts,
            groups=st.none() | _counts,
            rate=st.none() | _counts,
            weight=st.none() | _counts,
        ),
        max_size=3,
        unique_by=(lambda grant: grant.certificate, lambda grant: grant.token or object()),
    ).map(tuple),
    token=st.none() | _text,
    limits=st.builds(
        Limits,
        clients=_counts,
        subscriptions_per_client=_counts,
        frame=st.integers(4096, 2**40),
        window=_counts,
        queue=_counts,
        block=_durations,
        link_queue=_counts,
        timeout=_durations,
        shutdown=_durations,
    ),
    retention=st.builds(Retention, st.none() | _durations, st.none() | _counts),
    log_level=st.sampled_from(LOG_LEVELS),
    log_format=st.sampled_from(LOG_FORMATS),
)


class TestWritingBack:
    @given(_all_settings)
    def test_what_is_written_is_read_as_the_same(
        self, tmp_path_factory: pytest.TempPathFactory, made: Settings
    ) -> None:
        file = tmp_path_factory.getbasetemp() / "back.toml"
        file.write_text(to_toml(made, secrets=True), "utf-8")
        file.chmod(0o600)
        assert load(file, environment={}).settings == made

    def test_it_means_the_same_in_another_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = Settings(
            data=Path("d"),
            listen=("unix:s", "a:1"),
            neighbors=("unix:n",),
            tls=TlsFiles(Path("c"), Path("k"), Path("a")),
        )
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        absolute = with_absolute_paths(made)
        assert absolute.data == tmp_path / "d"
        assert absolute.listen == (f"unix:{tmp_path}/s", "a:1")
        file = tmp_path / "elsewhere" / "b.toml"
        file.write_text(to_toml(absolute))
        assert load(file, environment={}).settings == absolute

    def test_secrets_are_not_shown(self) -> None:
        text = to_toml(Settings(token="hush", grants=(Grant("a", token="hush"),)))
        assert "hush" not in text
        assert text.count('"(hidden)"') == 2


class TestReference:
    def test_every_field_is_a_key(self) -> None:
        def fields(cls: Any) -> int:
            total = 0
            for each in dataclasses.fields(cls):
                nested = {"tls": TlsFiles, "limits": Limits, "retention": Retention}.get(each.name)
                total += fields(nested) if nested and cls is Settings else each.name != "grants"
            return total

        assert len(broker_keys()) == fields(Settings)
        assert len(grant_keys()) == fields(Grant)

    def test_every_key_has_a_spelling_of_its_own(self) -> None:
        for spelling in ("dotted", "flag", "variable"):
            assert len({getattr(key, spelling) for key in broker_keys()}) == len(broker_keys())

    def test_defaults_are_shown_as_one_would_write_them(self) -> None:
        for key in broker_keys():
            if key.shown_default:
                loaded = load(environment={}, flags={key.dotted: key.shown_default})
                assert loaded.settings == Settings(), key.dotted

    def test_the_operators_manual_has_it_as_it_is(self) -> None:
        manual = (ROOT / "docs" / "operation.md").read_text("utf-8")
        section = re.search(r"<!-- settings -->\n(.*?)<!-- end of settings -->", manual, re.DOTALL)
        assert section is not None
        assert section[1].strip() == reference().strip(), (
            "put the output of `stentor explain settings` between the two marks"
        )
