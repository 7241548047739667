"""What a machine must have to run a pipeline, and what to install if it has not."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from stentor.errors import PipelineError

#: The first release of Java that Spark runs on.
JAVA: Final = 17


def check_package() -> None:
    """`PipelineError` that says what to install, if there is no package `pyspark`."""
    if importlib.util.find_spec("pyspark") is None:
        raise PipelineError("this needs the package pyspark: pip install 'stentor[spark]'")


def check_requirements() -> None:
    """`PipelineError` that says what to install, if Spark or Java is missing. Starts nothing."""
    check_package()
    if find_java() is None:
        home = os.environ.get("JAVA_HOME")
        found = f"there is none in JAVA_HOME, {home}" if home else "there is none on this machine"
        raise PipelineError(f"Spark needs Java {JAVA} or later, and {found}; {_advice()}")


def find_java() -> Path | None:
    """The program `java` that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.exists() else None
    found = shutil.which("java")
    return None if found is None else Path(found)


def java_problem() -> str:
    """Why Java did not start Spark, as far as can be told."""
    java = find_java()
    if java is None:
        return f"there is no Java; {_advice()}"
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
        said = run.stderr + run.stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run: {error}; {_advice()}"
    version = java_version(said)
    if version is not None and version < JAVA:
        return f"{java} is Java {version}, and Spark needs {JAVA} or later; {_advice()}"
    return f"{java} could not start Spark"


def java_version(text: str) -> int | None:
    """The release that `java -version` names.

    >>> java_version('openjdk version "17.0.9" 2023-10-17'), java_version('version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])


def _advice() -> str:
    return (
        f"install one (Debian and Ubuntu: apt install openjdk-{JAVA}-jre-headless) "
        "or let JAVA_HOME point at it"
    )
