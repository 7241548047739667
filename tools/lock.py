"""Writes requirements.lock: the exact version of everything that the project and its extras use.

pip resolves the dependencies named in pyproject.toml without installing them and reports what it
would install; only names and versions are kept, so that the file says nothing about the index or
the machine on which it was made. `./dev lock` runs this inside a fresh virtual environment.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from pip._vendor.packaging.specifiers import SpecifierSet  # a fresh environment has only pip

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
#: The oldest Python that has to do, whichever resolves: distributions keep the first releases.
OLDEST = "3.11.2"
EXTRAS = ("dev", "broker", "archive", "spark", "connect", "kafka")

HEADER = """\
# Exact versions of everything Stentor uses, its extras included, for Python 3.11 to 3.13.
# Made from pyproject.toml by ./dev lock. To change a version, edit that file and run it again.
"""


def wanted() -> list[str]:
    """The requirements of the package and of its extras, as pyproject.toml writes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements: list[str] = list(project["dependencies"])
    for extra in EXTRAS:
        requirements += project["optional-dependencies"][extra]
    return [each for each in requirements if not each.startswith(f"{project['name']}[")]


def resolve(requirements: list[str]) -> dict[str, str]:
    """Canonical name and version of every distribution that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--quiet", "--no-input", "--disable-pip-version-check"]
        plan = ["--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, *plan, *requirements], check=True
        )
        installs = json.loads(report.read_text("utf-8"))["install"]
    found = [entry["metadata"] for entry in installs]
    newer = [
        f"{each['name']} {each['version']} needs Python {asked}"
        for each in found
        if (asked := each.get("requires_python")) and OLDEST not in SpecifierSet(asked)
    ]
    if newer:
        raise SystemExit(
            f"{'; '.join(newer)}, and the oldest that is supported is {OLDEST}: name an earlier "
            "version in pyproject.toml"
        )
    return {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in found}


def main() -> int:
    try:
        pins = resolve(wanted())
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    LOCK.write_text(HEADER + "".join(lines), "utf-8")
    print(f"{LOCK.name}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
