"""What went wrong, in words: the cause inside of what Spark reports.

An error in a Python worker reaches the driver as text: a Java stack trace, in it the Python
traceback, and at its end the line that matters. An error of analysis has a plan below its message.
Here the line that matters is found. The rest is still there for those who want it, in `--debug`.
"""

from __future__ import annotations

import re
from typing import Final

#: The module before the name of an exception, in the last line of a Python traceback.
_MODULE: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*:)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_JAVA: Final = re.compile(
    r"^(?:Caused by: |: )?(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error)\w*: "
)
_NOISE: Final = re.compile(
    r"^(\s+at |\s*\.\.\. \d+ more|=== |== |Driver stacktrace|JVM stacktrace|Job aborted"
    r"|An error occurred while calling )"
)
#: Conditions of Spark that only wrap others, and say nothing themselves.
_WRAPPERS: Final = re.compile(
    r"^\[(STREAM_FAILED|PYTHON_DATA_SOURCE_ERROR|PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR"
    r"|TASK_WRITE_FAILED|FAILED_EXECUTE_UDF|FOREACH_BATCH_USER_FUNCTION_ERROR)\]"
)


def cause(error: BaseException | str) -> str:
    """The line that says what went wrong.

    >>> cause("org.apache.spark.SparkException: Job aborted\\n  at x.y(Z.scala:1)\\n"
    ...       "Traceback (most recent call last):\\n  File ...\\nValueError: no such price")
    'ValueError: no such price'
    """
    text = str(error)
    return _python_cause(text) or _spark_cause(text) or type(error).__name__


def _python_cause(text: str) -> str | None:
    """What the innermost Python traceback ends with; its message may have several lines."""
    start = text.rfind(_TRACEBACK)
    if start < 0:
        return None
    lines = text[start:].splitlines()[1:]
    for number, line in enumerate(lines):
        if line.startswith((" ", "\t")) or not line.strip():
            continue
        message = [line.strip()]
        for further in lines[number + 1 :]:
            if not further.strip() or _NOISE.match(further) or _JAVA.match(further):
                break
            message.append(further.rstrip())
        return _STATE.sub("", _MODULE.sub("", "\n".join(message)))
    return None


def _spark_cause(text: str) -> str | None:
    """What Spark says, without stack traces, plans and codes."""
    found: list[str] = []
    for line in text.splitlines():
        if _NOISE.match(line) or not line.strip():
            if found:
                break
            continue
        plain = _JAVA.sub("", line)
        if _WRAPPERS.match(plain):
            continue
        found.append(_STATE.sub("", plain).rstrip().removesuffix(";"))
        if line.rstrip().endswith(";"):  # a plan follows
            break
    return "\n".join(found) or None
