"""Pipelines in TOML: what is right becomes a value, what is wrong is told with its line."""

import subprocess
import sys
from pathlib import Path

import pytest

from stentor.errors import PipelineDefinitionError
from stentor.pipeline.runs import Pipeline, load
from stentor.pipeline.runs.kinds import SINKS, SOURCES
from stentor.pipeline.runs.loader import cycles, needed, ordered

HEAD = """\
name = "market"

[source.quotes]
brokers = ["127.0.0.1:7411"]
schema = "symbol string, price double"
"""
DETECT = """[[step]]
name = 'a'
[step.detect]
events = { A = "x = 1", B = "x = 2" }
"""
SINK = '[[sink]]\nparquet = "out"\n'
BATCH = "[source.files]\njson = 'in'\n[[sink]]\n"


def read(tmp_path: Path, text: str, *set: str) -> Pipeline:
    file = tmp_path / "p.toml"
    file.write_text(text)
    return load(file, set=set)


def problems(tmp_path: Path, text: str, *set: str) -> list[str]:
    """What is said about a file, each without the path."""
    with pytest.raises(PipelineDefinitionError) as caught:
        read(tmp_path, text, *set)
    return str(caught.value).replace(str(tmp_path / "p.toml"), "p.toml").split("\np.toml")


def only(tmp_path: Path, text: str, *set: str) -> str:
    (found,) = problems(tmp_path, text, *set)
    return found


def test_everything_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "subs.parquet").touch()
    (tmp_path / "my_test_mappings.py").write_text("def same(n):\n    return n\n")
    pipeline = read(
        tmp_path,
        """
        name = "market"
        python = ["my_test_mappings.py"]
        checkpoints = "s3a://bucket/checkpoints"

        [spark]
        master = "local[2]"
        config = { "spark.sql.shuffle.partitions" = 8, spark.ui.enabled = false }

        [source.quotes]
        brokers = "127.0.0.1:7411, 127.0.0.1:7412"
        filter = "symbol = 'IBM'"
        schema = "symbol string, price double"
        starting_offsets = { b1 = 5 }
        max_rows_per_batch = 1000
        patience = "10 seconds"

        [source.past]
        archive = "archive"
        since = 2026-01-01T00:00:00Z

        [source.companies]
        csv = "companies.csv"

        [[step]]
        name = "matched"
        from = "quotes"
        match = { subscriptions = "subs.parquet" }

        [[step]]
        name = "known"
        from = "quotes"
        enrich = { table = "companies", on = "symbol" }

        [[step]]
        name = "dear"
        select = "price > 100"

        [[step]]
        name = "bars"
        [step.collapse]
        key = ["symbol"]
        rule = { close = "last price" }
        window = "1 minute"
        watermark = "10 seconds"

        [[step]]
        name = "latest"
        from = "quotes"
        collapse = { key = ["symbol"], rule = { price = "last" } }

        [[step]]
        name = "pairs"
        from = ["quotes", "past"]
        sql = "SELECT * FROM quotes JOIN past USING (symbol)"

        [[step]]
        name = "mapped"
        from = "quotes"
        apply = { function = "my_test_mappings:same", schema = "x int" }

        [[step]]
        name = "short"
        rename = { x = "y" }

        [[sink]]
        from = "bars"
        stentor = { brokers = ["127.0.0.1:7411"], type = "bar" }
        trigger = "0 seconds"

        [[sink]]
        name = "states"
        from = "latest"
        console = true

        [[sink]]
        from = "matched"
        archive = "kept"

        [[sink]]
        from = "pairs"
        parquet = { path = "pairs", partition_by = "symbol" }
        checkpoint = "own"

        [[sink]]
        from = "past"
        json = "past"
        existing = "replace"

        [[sink]]
        from = "companies"
        stentor = { brokers = ["127.0.0.1:7411"] }

        [[sink]]
        from = "short"
        memory = "mapped"
        """,
    )
    assert pipeline.config == {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}
    quotes = pipeline.sources["quotes"]
    assert quotes.stream
    assert quotes.options["brokers"] == ["127.0.0.1:7411", "127.0.0.1:7412"]
    assert not pipeline.sources["past"].stream
    assert pipeline.steps["dear"].inputs == ("known",)
    assert pipeline.steps["bars"].inputs == ("dear",)
    assert pipeline.steps["known"].options["on"] == ["symbol"]
    assert pipeline.steps["short"].options == {"names": {"x": "y"}}
    sinks = pipeline.sinks
    assert list(sinks) == [
        "bars-stentor",
        "states",
        "matched-archive",
        "pairs-parquet",
        "past-json",
        "companies-stentor",
        "short-memory",
    ]
    assert sinks["bars-stentor"].checkpoint == "s3a://bucket/checkpoints/bars-stentor"
    assert (sinks["bars-stentor"].mode, sinks["bars-stentor"].trigger) == ("append", "0 seconds")
    assert sinks["states"].mode == "update"
    assert sinks["matched-archive"].checkpoint is None
    assert sinks["matched-archive"].options["path"] == str(tmp_path / "kept")
    assert sinks["pairs-parquet"].checkpoint == str(tmp_path / "own")
    assert sinks["pairs-parquet"].options["partition_by"] == ["symbol"]
    assert pipeline.warnings == ()
    assert "sink states: latest to console, update" in pipeline.describe()
    assert "sink past-json: past to json, once, replaces what is there" in pipeline.describe()
    assert "companies to stentor, once, adds to what is there" in pipeline.describe()


def test_the_least_that_can_be_written(tmp_path: Path) -> None:
    pipeline = read(tmp_path, '[source.q]\nbrokers = "b:1"\n[[sink]]\nstentor = "c:2"\n')
    assert pipeline.name == "p"
    sink = pipeline.sinks["q-stentor"]
    assert sink.checkpoint == str(tmp_path / ".stentor" / "p" / "q-stentor")
    assert (sink.input, sink.mode, sink.trigger) == ("q", "append", "1 seconds")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (HEAD + SINK + "[sparc]\n", 8, "there is no key 'sparc'; did you mean 'spark'?"),
        (HEAD + "filtr = 'x'\n" + SINK, 6, "did you mean 'filter'?"),
        (HEAD + "filter = 'price >'\n" + SINK, 6, "ends too early\n    price >\n           ^"),
        (HEAD + "patience = 5\n" + SINK, 6, "patience: it must be a length of time"),
        (HEAD + "mode = 'x'\n" + SINK, 6, "mode: it must be one of PERMISSIVE"),
        (HEAD + "archive = 'x'\n" + SINK, 3, "not brokers and archive"),
        (HEAD + "[source.x]\nbrokrs = []\n" + SINK, 7, "did you mean 'brokers'?"),
        (HEAD + "[source.x]\nschema = 'x int'\n" + SINK, 6, "where does it read?"),
        (HEAD + "[source.x]\njson = 'a'\nstream = true\n" + SINK, 6, "schema is missing"),
        (HEAD + "[source.x]\narchive = 'a'\nstream = true\n" + SINK, 8, "not as a stream"),
        (HEAD + "[source.'a b']\njson = 'a'\n" + SINK, 6, "'a b' is not a name"),
        (HEAD + "[[step]]\nname = 'a'\n" + SINK, 6, "what does it do?"),
        (HEAD + "[[step]]\nselect = 'x = 1'\n" + SINK, 6, "name is missing"),
        (
            HEAD + "[[step]]\nname = 'quotes'\nselect = 'x = 1'\n" + SINK,
            7,
            "another table 'quotes'",
        ),
        (HEAD + "[[step]]\nname = 'a'\nselekt = 'x'\n" + SINK, 8, "did you mean 'select'?"),
        (
            HEAD + "[[step]]\nname = 'a'\nselect = 'x = 1'\norder = '1s'\n" + SINK,
            9,
            "not select and order",
        ),
        (
            HEAD + "[[step]]\nname = 'a'\nfrom = 'quots'\nselect = 'x = 1'\n" + SINK,
            8,
            "there is no table 'quots'; did you mean 'quotes'?",
        ),
        (
            HEAD + "[[step]]\nname = 'a'\nfrom = ['quotes', 'quotes']\nselect = 'x = 1'\n" + SINK,
            8,
            "select takes one table, not 2",
        ),
        (HEAD + "[[step]]\nname = 'a'\ncollapse = 'x'\n" + SINK, 8, "it is a table, with key"),
        (
            HEAD + "[[step]]\nname = 'a'\ncollapse = {rule = {x = 'last'}}\n" + SINK,
            8,
            "key is missing",
        ),
        (
            HEAD + "[[step]]\nname = 'a'\nmatch = 'subs.parquet'\n" + SINK,
            8,
            "there is no file",
        ),
        (HEAD + "[[step]]\nname = 'a'\nmatch = 'subs'\n" + SINK, 8, "there is no table 'subs'"),
        (
            HEAD + "[[step]]\nname = 'a'\ntransform = {_id = 'x'}\n" + SINK,
            8,
            "'_id' cannot be set",
        ),
        (HEAD + DETECT + "pattern = 'A ; ; B'\n" + SINK, 10, "unexpected ';'"),
        (HEAD + DETECT + "pattern = 'A ; C'\n" + SINK, 8, "names C, which is not defined"),
        (HEAD + DETECT + "pattern = 3\n" + SINK, 10, "a pattern of composite events"),
        (HEAD + DETECT.replace("= 1", "= = 1") + "pattern = 'A'\n" + SINK, 9, "x = = 1"),
        (HEAD + "[[sink]]\nfrom = 'quotes'\n", 6, "where does it go?"),
        (HEAD + "[[sink]]\nparket = 'x'\n", 7, "did you mean 'parquet'?"),
        (HEAD + "[[sink]]\nparquet = 'x'\njson = 'y'\n", 8, "not parquet and json"),
        (HEAD + "[[sink]]\nparquet = 'x'\nfrom = 'quote'\n", 8, "did you mean 'quotes'?"),
        (HEAD + "[[sink]]\nparquet = 'x'\nmode = 'updat'\n", 8, "one of append, update, complete"),
        (HEAD + "[[sink]]\nparquet = 'x'\nmode = 'update'\n", 8, "parquet can only append"),
        (HEAD + "[[sink]]\nparquet = 'x'\ntrigger = 'soon'\n", 8, "is not a length of time"),
        (HEAD + "[[sink]]\nstentor = {type = 'x'}\n", 7, "brokers is missing"),
        (HEAD + SINK + "existing = 'add'\n", 8, "'quotes' is a stream, and goes on where it was"),
        (BATCH + "archive = 'x'\nexisting = 'replace'\n", 5, "one of fail, add, not 'replace'"),
        (BATCH + "stentor = 'b:1'\nexisting = 'fail'\n", 5, "one of add, not 'fail'"),
        (
            HEAD + "[[sink]]\nmemory = 'm'\n[[sink]]\nname = 'n'\nmemory = 'm'\n",
            10,
            "the sink 'quotes-memory' makes the table 'm', too",
        ),
        (HEAD + SINK + SINK, 8, "another sink 'quotes-parquet'"),
        (HEAD, 1, "there is no sink"),
        (SINK, 1, "there is no table before it"),
        ("python = ['nowhere.py']\n" + HEAD[16:] + SINK, 1, "there is no file"),
        ("python = ['README.md']\n" + HEAD[16:] + SINK, 1, "neither a Python file"),
        ("spark = 3\n" + HEAD[16:] + SINK, 1, "write [spark]"),
        (HEAD + SINK + "[spark.config]\nfoo = 1\n", 9, "begin with spark."),
        ("name = 'a/b'\n" + HEAD[16:] + SINK, 1, "'a/b' is not a name"),
        ("name = \n", 1, "invalid value"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    found = problems(tmp_path, text)
    assert any(said in each for each in found), found
    assert any(said in each and each.lstrip("p.toml").startswith(f":{line}:") for each in found)


def test_all_mistakes_are_told_at_once_in_order(tmp_path: Path) -> None:
    text = HEAD + "[[step]]\nname = 'a'\nselect = 'x >'\n[[sink]]\nparket = 'x'\ntrigger = 5\n"
    found = problems(tmp_path, "colour = 1\n" + text + "[spark]\nmastr = 'x'\n")
    lines = [int(each.lstrip("p.toml").split(":")[1]) for each in found]
    assert lines == sorted(lines)
    assert len(lines) == 4


def test_steps_in_any_order_but_not_in_a_circle(tmp_path: Path) -> None:
    first = "[[step]]\nname = 'a'\nfrom = 'b'\nselect = 'x = 1'\n"
    second = "[[step]]\nname = 'b'\nfrom = 'quotes'\nselect = 'x = 1'\n"
    pipeline = read(tmp_path, HEAD + first + second + "[[sink]]\nfrom = 'a'\nparquet = 'x'\n")
    assert list(pipeline.steps) == ["b", "a"]
    said = only(tmp_path, HEAD + first + second.replace("quotes", "a") + SINK)
    assert said.startswith("p.toml:6: ")
    assert said.endswith("it depends on itself: a → b → a")


def test_what_nothing_uses_is_a_warning(tmp_path: Path) -> None:
    unused = "[source.spare]\njson = 'x'\n"
    pipeline = read(tmp_path, HEAD + unused + "[[sink]]\nfrom = 'quotes'\nparquet = 'x'\n")
    (warning,) = pipeline.warnings
    assert warning.endswith("p.toml:6: nothing uses 'spare', so it is not read")


def test_states_go_only_where_rows_can_be_replaced(tmp_path: Path) -> None:
    state = "[[step]]\nname = 's'\ncollapse = { key = ['symbol'], rule = { price = 'last' } }\n"
    after = "[[step]]\nname = 'after'\nselect = 'price > 1'\n"
    assert "rows replace earlier ones" in only(tmp_path, HEAD + state + after + SINK)
    batch = HEAD + "stream = false\n" + state + SINK
    assert read(tmp_path, batch).sinks["s-parquet"].mode == "append"


# -- --set


def test_values_can_be_changed_from_outside(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        HEAD + SINK,
        "source.quotes.filter=price > 5",
        "source.quotes.max_rows_per_batch=10",
        "sink.0.trigger=5s",
        "spark.master=local[1]",
        'name="other"',
    )
    assert pipeline.sources["quotes"].options["filter"] == "price > 5"
    assert pipeline.sources["quotes"].options["max_rows_per_batch"] == 10
    assert pipeline.sinks["quotes-parquet"].trigger == "5 seconds"
    assert (pipeline.master, pipeline.name) == ("local[1]", "other")


@pytest.mark.parametrize(
    ("set", "said"),
    [
        ("source.quotes.filter=price >", "--set source.quotes.filter: filter: line 1"),
        ("source.quotes.filtr=x", "--set source.quotes.filtr: there is no key 'filtr'"),
        ("sink.nope.trigger=5s", "--set sink.nope.trigger: there is no 'nope' in sink"),
        ("name.x=5", "--set name.x: name has no keys"),
        ("nothing", "write --set KEY=VALUE"),
    ],
)
def test_mistakes_from_outside_name_the_option(tmp_path: Path, set: str, said: str) -> None:
    assert said in only(tmp_path, HEAD + SINK, set)


# -- what else


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(PipelineDefinitionError, match="no such file"):
        load(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_bytes(b"name = 1\n\xff")
    with pytest.raises(PipelineDefinitionError, match=r"bad\.toml:2: not UTF-8"):
        load(tmp_path / "bad.toml")
    with pytest.raises(PipelineDefinitionError, match="cannot be read"):
        load(tmp_path)


def test_a_python_file_can_bring_steps(tmp_path: Path) -> None:
    (tmp_path / "my_test_steps.py").write_text(
        "from stentor.pipeline.steps import Option, register_step\n"
        "def keep(events, share):\n    return events.sample(1 / share)\n"
        "register_step('keep_some', keep, {'share': Option('count', 'one of so many')},"
        " main='share')\n"
    )
    own = "[[step]]\nname = 'a'\nkeep_some = 10\n"
    text = "python = 'my_test_steps.py'\n" + HEAD + own + SINK
    assert read(tmp_path, text).steps["a"].options == {"share": 10}
    (tmp_path / "my_broken_steps.py").write_text("import nowhere_at_all\n")
    said = only(tmp_path, text.replace("my_test_steps", "my_broken_steps").replace(own, ""))
    assert "my_broken_steps.py cannot be loaded: ModuleNotFoundError" in said


def test_checking_does_not_load_spark(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(HEAD + "[[step]]\nname='a'\norder='1 second'\n" + SINK)
    code = (
        "import sys; from stentor.pipeline.runs import load; "
        f"print(load({str(tmp_path / 'p.toml')!r}).name, 'pyspark' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["market", "False"]


def test_keys_of_brokers_are_the_options_of_the_source() -> None:
    from stentor.pipeline.runs.tables import spark_options
    from stentor.pipeline.source.options import READ_OPTIONS, WRITE_OPTIONS

    def spelled(names: object) -> set[str]:
        return set(spark_options(dict.fromkeys(names, "1 s")))  # type: ignore[call-overload]

    assert spelled(SOURCES["stentor"].options) == set(READ_OPTIONS)
    by_hand = {"txnAppId", "txnVersion", "txnKey"}  # for batches that nobody else numbers
    assert spelled(SINKS["stentor"].options) - {"type"} == set(WRITE_OPTIONS) - by_hand


def test_graphs(tmp_path: Path) -> None:
    chain = "".join(
        f"[[step]]\nname = '{name}'\nfrom = '{source}'\nselect = 'x = 1'\n"
        for name, source in [("c", "b"), ("b", "a"), ("a", "quotes"), ("d", "quotes")]
    )
    steps = read(tmp_path, HEAD + chain + "[[sink]]\nfrom = 'c'\nparquet = 'x'\n").steps
    assert ordered(steps) == list(steps) == ["a", "b", "c", "d"]
    assert needed(steps, ["c"]) == {"a", "b", "c", "quotes"}
    assert cycles(steps) == []
