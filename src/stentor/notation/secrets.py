"""Secrets as people give them: in plain text, or as `@FILE`, which keeps them out of sight.

A secret that begins with an at sign itself is written with two.
"""

from __future__ import annotations

from pathlib import Path

from stentor.errors import InvalidConfiguration


def names_file(secret: str) -> bool:
    """Whether this is the name of a file, after an at sign, that holds the secret."""
    return secret.startswith("@") and not secret.startswith("@@")


def read_secret(value: str, base: Path | None = None) -> str:
    """The secret itself, if it is not the name of a file that holds it.

    >>> read_secret("hush"), read_secret("@@hush")
    ('hush', '@hush')
    """
    if not names_file(value):
        return value.removeprefix("@")
    path = Path(value[1:]).expanduser()
    if base is not None:
        path = base / path
    try:
        secret = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InvalidConfiguration(f"cannot read the secret in {path}: {reason}") from None
    if not secret:
        raise InvalidConfiguration(f"{path} is empty; it should hold the secret")
    return secret
