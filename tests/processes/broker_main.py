"""What a broker process of the tests runs: the command `stentor broker`."""

from __future__ import annotations

from stentor.cli import main


def run_broker(*, config_file: str) -> int:
    """A broker until SIGTERM; the exit code of the command."""
    try:
        main(["broker", "--config", config_file])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0
