"""Whether anybody is at the address of a Spark master, before Spark tries for more than a minute.

Spark asks a standalone master three times, twenty seconds apart, and then fails in words of its
own. A connection that is made and closed tells within moments that nobody is there, or that there
is no such host. Other masters (`local`, `yarn`, `k8s://…`) are left to Spark.
"""

from __future__ import annotations

import re
import socket
import threading
from queue import Empty, SimpleQueue
from typing import Final

from stentor.errors import InvalidConfiguration, PipelineError

#: Seconds in which a master must take a connection.
PATIENCE: Final = 3.0

_SCHEME: Final = "spark://"
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,]+):(?P<port>[0-9]{1,5})")


def check_master(url: str, patience: float = PATIENCE) -> None:
    """`PipelineError` if no master answers at `spark://host:port[,host:port]`.

    >>> check_master("local[2]")
    """
    if url.startswith("sc://"):
        raise InvalidConfiguration(
            f"{url} is a server of Spark Connect, and a pipeline needs a Spark of its own; give a "
            "master, such as spark://host:7077 or local[4]"
        )
    if not url.startswith(_SCHEME):
        return
    addresses = [_address(url, part) for part in url[len(_SCHEME) :].split(",")]
    answers: SimpleQueue[str | None] = SimpleQueue()
    for address in addresses:
        # To look up a name may take any time, and nothing can interrupt it.
        ask = threading.Thread(target=_ask, args=(*address, patience, answers), daemon=True)
        ask.start()
    problems = []
    for _ in addresses:
        try:
            problem = answers.get(timeout=patience)
        except Empty:
            problem = f"no answer within {patience:g} s"
        if problem is None:
            return
        problems.append(problem)
    raise PipelineError(
        f"there is no Spark master at {url} ({'; '.join(dict.fromkeys(problems))}); is it running, "
        "and is the address the one that it shows on its web page? Without --master and [spark] "
        "master, Spark runs on this machine"
    )


def _address(url: str, part: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(part)
    if match is None or not 0 < int(match["port"]) < 65_536:
        raise InvalidConfiguration(
            f"{url!r} is no address of a Spark master; write spark://host:port, the port is 7077 "
            "unless it was chosen, and several with commas: spark://h1:7077,h2:7077"
        )
    return match["host"].strip("[]"), int(match["port"])


def _ask(host: str, port: int, patience: float, answers: SimpleQueue[str | None]) -> None:
    try:
        socket.create_connection((host, port), timeout=patience).close()
    except TimeoutError:
        answers.put(f"{host}:{port} does not answer")
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or str(error)
        answers.put(f"{host}:{port}: {text}")
    else:
        answers.put(None)
