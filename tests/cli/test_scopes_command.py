"""`stentor scopes check` and `stentor scopes format`, as somebody at a terminal meets them."""

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stentor.cli import main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TEXT = """define scope world as all from reader   -- everybody
deploy world;
DEFINE SCOPE market AS ALL FROM ticker SUPERSCOPE ALL FROM world INTERFACES OUTPUT(Quote)
DEPLOY market
"""


@pytest.fixture
def run(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["scopes", *map(str, arguments)])
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "market.scopes"
    path.write_text(TEXT)
    return path


def test_a_graph_is_checked_and_drawn(run, file):
    code, out, err = run("check", file)
    assert code == 0
    assert out.startswith("[world]\n├── reader\n└── [market]  out: Quote\n    └── ticker\n")
    assert out.endswith("2 scopes, 2 components, 2 definitions\n")
    assert "warning: market has the member 'ticker', which nothing defines" in err


@pytest.mark.parametrize("name", ["market", "tenants", "building"])
def test_a_picture_shows_every_node(run, tmp_path, name):
    picture = tmp_path / "graph.svg"
    code, out, _ = run("check", "-q", "--svg", picture, EXAMPLES / f"{name}.scopes")
    assert (code, out) == (0, "")
    texts = [each.text for each in ElementTree.parse(picture).iter() if each.tag.endswith("text")]
    from stentor.scopes import ScopeGraph

    assert set(ScopeGraph.load(EXAMPLES / f"{name}.scopes").nodes) <= set(texts)


def test_mistakes_are_told_with_file_and_place(run, file):
    file.write_text("DEFINE SCOPE x AS ALL FORM a")
    code, out, err = run("check", file)
    assert (code, out) == (2, "")
    assert f"{file}, line 1, column 23" in err
    assert "did you mean FROM?" in err
    file.write_text("DEFINE SCOPE x AS ALL FROM a\nDEPLOY y")
    code, _, err = run("check", file)
    assert code == 2
    assert f"{file}:2:1: 'y' is not defined" in err
    code, _, err = run("check", file.parent / "absent.scopes")
    assert code == 2
    assert "there is no file" in err


def test_a_file_is_formatted(run, file, monkeypatch):
    code, out, _ = run("format", file)
    assert code == 0
    assert "    -- everybody\n    ALL FROM reader;" in out
    assert file.read_text() == TEXT
    assert run("format", "--check", file)[0] == 1
    assert run("format", "--write", file)[0] == 0
    assert file.read_text() == out
    assert run("format", "--check", file)[0] == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    assert run("format", "-")[1] == out


def test_several_files_make_one_graph(run, file, tmp_path):
    more = tmp_path / "more.scopes"
    more.write_text("ALTER SCOPE market ADD ALL FROM desk")
    code, out, _ = run("check", file, more)
    assert code == 0
    assert "├── desk" in out
