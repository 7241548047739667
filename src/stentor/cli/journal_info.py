"""What a journal says about itself, without verifying all of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from stentor.broker.storage import database
from stentor.broker.storage.directory import DATABASE
from stentor.errors import InvalidConfiguration
from stentor.notation.counts import counted
from stentor.notation.units import short_size


def read_info(directory: Path) -> dict[str, Any]:
    """The numbers, as plain data; `JournalDamaged` if not even they can be read."""
    path = directory / DATABASE
    if not path.exists():
        raise InvalidConfiguration(f"there is no journal in {directory}")
    try:
        with closing(database.connect_to_read(path)) as db:
            if database.is_new(db):
                raise InvalidConfiguration(f"{path}: the journal was made, and nothing more")
            fault = database.fault_of_format(db, path)
            state = database.load(db)
            if fault is not None or state is None:
                raise database.damaged(path, fault or "the row that says what is in it is altered")
            oldest = db.execute("SELECT time FROM block ORDER BY first LIMIT 1").fetchone()
            counts = {
                name: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for name, table in (
                    ("blocks", "block"),
                    ("producers", "producer"),
                    ("last_values", "last_value"),
                )
            }
            stored = db.execute("SELECT name FROM durable ORDER BY name")
            durables = [name for (name,) in stored if database.is_durable(name)]
    except sqlite3.Error as error:
        raise database.damaged(path, f"SQLite cannot read it ({error})") from error
    return {
        "path": str(path),
        "broker": state.name,
        "stream": state.stream,
        "low": state.low,
        "head": state.head,
        "notifications": state.head - state.low + 1,
        "bytes": state.bytes,
        "file_bytes": path.stat().st_size,
        "commits": state.commits,
        "earliest": None if oldest is None else database.when(oldest[0]),
        "latest": None if oldest is None else database.when(state.time),
        **counts,
        "durables": durables,
    }


def shown(info: dict[str, Any]) -> str:
    """The same for people."""
    kept = counted(info["notifications"], "notification")
    rows = [
        ("broker", info["broker"]),
        ("stream", info["stream"]),
        ("holds", f"{kept} in {counted(info['blocks'], 'block')}"),
        ("offsets", f"{info['low']:,} to {info['head']:,}" if info["notifications"] else "none"),
        ("journaled", f"{info['earliest']} to {info['latest']}" if info["earliest"] else "never"),
        ("size", f"{short_size(info['bytes'])}, the file {short_size(info['file_bytes'])}"),
        ("producers", f"{info['producers']:,}"),
        ("values", f"{info['last_values']:,} last values"),
        ("durables", ", ".join(info["durables"]) or "none"),
    ]
    return "\n".join([info["path"], *(f"  {name:<10} {value}" for name, value in rows)])
