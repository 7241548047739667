"""The project keeps the promises that its files make about each other."""

import itertools
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conformance import citations, render, unknown
from spec_index import Sheet, read_sheet, read_sheets

ROOT = Path(__file__).resolve().parent.parent
DEV = ROOT / "dev"
PAGES = [ROOT / "CONTRIBUTING.md", *ROOT.glob("README.md"), *sorted((ROOT / "docs").glob("*.md"))]


def test_the_site_shows_code_as_code_and_text_as_text() -> None:
    """What stands behind the language of a block would turn both around, from there on."""
    import docs_site

    page = "```python no-run\nx = 1\n```\ntext\n```\nplain\n```\n"
    assert docs_site.plain_fences(page) == page.replace(" no-run", "")


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def sheets() -> list[Sheet]:
    return read_sheets(ROOT / "docs" / "spec")


def project_files() -> list[Path]:
    """Every file that is or would be committed; all sources where there is no repository."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        files = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        folders = ("src", "tests", "tools", "docs", "bench", "demo", ".ci")
        files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        files += ROOT.glob("*")
    return [path for path in files if path.is_file() and path.suffix not in {".pyc", ".png"}]


class TestSpecification:
    def test_every_cited_entry_exists(
        self, request: pytest.FixtureRequest, sheets: list[Sheet]
    ) -> None:
        assert list(unknown(citations(request.session.items), sheets)) == []

    def test_every_r_id_a_sheet_mentions_of_itself_is_found(self, sheets: list[Sheet]) -> None:
        for sheet in sheets:
            text = (ROOT / "docs" / "spec" / sheet.name).read_text("utf-8")
            mentioned = set(re.findall(rf"\bR-{sheet.number}\.\d+", text))
            found = {entry.id for entry in sheet.entries if entry.id.startswith("R-")}
            assert mentioned == found

    def test_each_form_of_definition_is_recognized(self) -> None:
        text = """\
# 09 Example
## 3. Capabilities
### 3.1 Tables
| ID | Capability |
|---|---|
| R-09.01 | **Bold lead** and more |
| R-09.02 | Cites R-09.01 and P1 |
**R-09.03 First** (x). **R-09.04 Second** (y).
## 4. Algorithms
**A-1 Machine** does it
### A2 Other machine
| A1 | A2 |
|---|---|
| P7 | not an ID: the table's first column is not headed so |
## 5. Examples
**5.1 Tuples**: a, see R-09.05–R-09.09
## 6. Properties
1. First property
| # | Property |
|---|---|
| P1 Safety | holds |
"""
        sheet = read_sheet("09-example.md", text)
        assert [(entry.id, entry.title) for entry in sheet.entries] == [
            ("09/3.1", "Tables"),
            ("R-09.01", "Bold lead"),
            ("R-09.02", "Cites R-09.01 and P1"),
            ("R-09.03", "First"),
            ("R-09.04", "Second"),
            ("09/A-1", "Machine"),
            ("09/A2", "Other machine"),
            ("09/5.1", "Tuples"),
            ("09/6.1", "First property"),
            ("09/P1", "Safety"),
        ]
        assert [entry.id for entry in sheet.entries if entry.container] == ["09/3.1"]

    def test_page_lists_tests_or_says_not_yet(self) -> None:
        sheet = read_sheet("09-x.md", "# 09 X\n| ID | |\n|---|---|\n| P1 | One |\n| P2 | Two |")
        page = render([sheet], {"09/P1": {"tests/b.py::test_b", "tests/a.py::test_a"}})
        links = "[a.py::test_a](../tests/a.py)<br>[b.py::test_b](../tests/b.py)"
        assert f"| 09/P1 | One | {links} |" in page
        assert "| 09/P2 | Two | not yet |" in page
        assert "| [09 X](spec/09-x.md) | 1 | 2 |" in page

    def test_a_wrong_citation_names_the_test_and_the_nearest_entry(self) -> None:
        sheet = read_sheet("09-x.md", "# 09 X\n| ID | |\n|---|---|\n| R-09.01 | One |")
        (line,) = unknown({"R-09.1": {"tests/a.py::test_a"}}, [sheet])
        assert "R-09.1" in line
        assert "tests/a.py::test_a" in line
        assert "did you mean R-09.01?" in line


class TestPackaging:
    def test_every_module_of_the_package_has_its_layer(self, pyproject: dict[str, Any]) -> None:
        contracts = pyproject["tool"]["importlinter"]["contracts"]
        layered = [each for each in contracts if each["type"] == "layers"]
        containers = [name for each in layered for name in each["containers"]]
        assert containers == ["stentor", "stentor.broker", "stentor.pipeline"]
        for contract, container in zip(layered, containers, strict=True):
            layers = contract["layers"]
            named = {name.strip(" ()") for layer in layers for name in re.split("[|:]", layer)}
            modules = {
                path.stem
                for path in (ROOT / "src" / container.replace(".", "/")).iterdir()
                if path.suffix == ".py" or any(path.rglob("*.py"))
            }
            assert modules - {"__init__", "__main__"} <= named

    def test_lock_pins_every_dependency_as_asked(self, pyproject: dict[str, Any]) -> None:
        lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
        pins = dict(line.split("==") for line in lines if not line.startswith("#"))
        project = pyproject["project"]
        asked = [project["dependencies"], *project["optional-dependencies"].values()]
        for requirement in map(Requirement, itertools.chain.from_iterable(asked)):
            if requirement.name == project["name"]:
                continue  # an extra that includes another
            pin = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin), f"{requirement} but locked at {pin}"

    def test_lock_holds_nothing_but_pins(self) -> None:
        lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert pins == sorted(pins, key=lambda pin: pin.partition("==")[0])
        assert all(re.fullmatch(r"[a-z0-9-]+==[\w.!+]+", pin) for pin in pins)


class TestArchitecture:
    PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

    def test_every_file_is_found_by_its_name(self) -> None:
        source = ROOT / "src" / "stentor"
        there: dict[str, list[str]] = {}
        for path in sorted(source.rglob("*.py")):
            if path.name != "__init__.py":
                folder = path.parent.relative_to(source).as_posix()
                there.setdefault("stentor" if folder == "." else folder, []).append(path.stem)
        section = self.PAGE.partition("## Every file")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `([\w/]+)/` \| (.+) \|$", section, re.M)
        assert {folder: re.findall(r"`(\w+)`", names) for folder, names in rows} == there

    def test_every_file_that_is_explained_exists(self) -> None:
        names = {path.name for path in project_files()}
        assert set(re.findall(r"`[\w/]*?(\w+\.py)`", self.PAGE)) <= names


class TestDeveloperCommand:
    def test_help_lists_exactly_the_commands_there_are(self) -> None:
        assert commands_of_help() == set(re.findall(r"^  (\w+)\)? ?.*;;$", DEV.read_text(), re.M))

    @pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
    def test_documented_commands_exist(self, page: Path) -> None:
        mentioned = set(re.findall(r"\./dev ([a-z]+)", page.read_text("utf-8")))
        assert mentioned <= commands_of_help()

    def test_unknown_command_is_refused_with_help(self) -> None:
        answer = subprocess.run([DEV, "dance"], capture_output=True, text=True, check=False)
        assert answer.returncode == 2
        assert "unknown command: dance" in answer.stderr
        assert "usage: ./dev" in answer.stderr


def commands_of_help() -> set[str]:
    usage = subprocess.run([DEV, "help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  ([a-z]+)  ", usage, re.M))


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    homes = "|".join(["home/[a-z][\\w-]*", "Users/[A-Za-z][\\w-]*", "root", "work", "tmp"])
    places = re.compile(rf"(?<![\w./~$}}])/(?:{homes})/[\w.]")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in project_files()
        for match in places.finditer(path.read_text("utf-8", errors="replace"))
    ]
    assert found == []
