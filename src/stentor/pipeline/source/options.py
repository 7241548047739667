"""The options of `format("stentor")`: what there is, what each means, and what is wrong with one.

Spark hands options over as text and knows nothing of them, so a misspelled one would be ignored.
Here an unknown option is an error that names the nearest known one. Names are read without regard
to case, as everywhere in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from stentor.client.times import since_seconds
from stentor.errors import InvalidConfiguration, InvalidValue
from stentor.filters import Filter
from stentor.filters.addressing import event_type
from stentor.model.moments import TIME
from stentor.pipeline.columns import MODES
from stentor.transport import Address

#: The name of the source and of the sink.
FORMAT: Final = "stentor"

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

#: Events that one task reads at most.
ROWS_PER_PARTITION: Final = 250_000
#: Seconds that a task waits for a broker that is down.
PATIENCE: Final = 300.0
#: Events per broker from which a schema is inferred.
SAMPLE: Final = 1_000

_CONNECTING: Final = {
    "brokers": "addresses of brokers, separated by commas",
    "token": "shown to brokers that ask who may connect",
    "tlsCa": "PEM file of the CA that signed the brokers' certificates, on every machine",
    "tlsCertificate": "PEM file of the own certificate",
    "tlsKey": "PEM file of its key",
    "patience": "seconds that a task waits for a broker that is down",
}
_READING: Final = {
    "filter": "a subscription: only what it matches is read; the brokers filter",
    "eventType": "only events of this type and its subtypes",
    "startingOffsets": "earliest, latest (streams), or JSON: offsets by broker or journal",
    "endingOffsets": "latest, or JSON: the first offset that is not read, by broker or journal",
    "startingTimestamp": "ISO time: what was journaled at that time or later",
    "endingTimestamp": "ISO time: what was journaled before that time",
    "maxRowsPerBatch": "events that a micro-batch looks at, over all brokers",
    "maxBytesPerBatch": "bytes of events that a micro-batch reads, over all brokers",
    "limit": "batches: so many events are enough",
    "maxRowsPerPartition": "events that one task looks at",
    "timeColumn": "by which time a stream that catches up is read: _time, or an attribute",
    "waitForBrokers": "whether a stream waits for brokers that are down, or goes on without them",
    "failOnDataLoss": "whether events that are gone are an error, or are passed over",
    "mode": f"what happens with events that do not fit the schema: {', '.join(MODES)}",
    "sample": "events per broker from which a schema is inferred",
}
#: Which columns the table has, where that is not said by `.schema(...)`.
COLUMN_OPTIONS: Final = {
    "columns": "attributes and their types, as in 'symbol string, price double'",
    "attributes": "JSON: types by which a schema is inferred, as declared of an event type",
}
#: Set by the writer in the driver; see `stentor.pipeline.sink.transactions`.
VERIFY: Final = "txnverify"
#: Of Spark itself.
_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", VERIFY})

_WRITING: Final = {
    "txnAppId": "with txnVersion: a batch that is written again under the same two is there once",
    "txnVersion": "a number that rises from batch to batch, such as the batch id of foreachBatch",
    "txnKey": "columns that tell the rows of a batch apart, separated by commas; all by default",
}

#: What becomes of rows that cannot be published.
_ASIDE: Final = {"deadLetters": "where rows go that cannot be published; without it they fail"}

READ_OPTIONS: Final = _CONNECTING | _READING
WRITE_OPTIONS: Final = _CONNECTING | _WRITING | _ASIDE

#: Offsets by broker name or journal id.
Offsets = Mapping[str, "int | str"]


@dataclass(frozen=True)
class Connecting:
    """How brokers are reached. Picklable."""

    brokers: tuple[str, ...]
    token: str | None = None
    tls: Mapping[str, str] | None = None
    patience: float = PATIENCE


@dataclass(frozen=True)
class WriteIdentity:
    """Which batch of rows it is that is written, however often. Picklable."""

    app: str
    version: int
    #: The columns that tell rows apart; none for all.
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What is read, and how. Picklable."""

    connecting: Connecting
    #: The filter as text, "" for everything.
    filter: str = ""
    event_type: str | None = None
    #: The attributes that are columns, as DDL; None if that is inferred, or the schema says it.
    columns: str | None = None
    #: The types of attributes that are known without looking at events.
    attributes: Mapping[str, str] | None = None
    starting: str | Offsets | float = EARLIEST
    ending: str | Offsets | float = LATEST
    rows_per_batch: int | None = None
    rows_per_partition: int = ROWS_PER_PARTITION
    fail_on_data_loss: bool = True
    mode: str = MODES[0]
    sample: int = SAMPLE
    time_column: str = TIME
    wait_for_brokers: bool = True
    bytes_per_batch: int | None = None
    limit: int | None = None


def connecting(options: Mapping[str, str], known: Mapping[str, str] = WRITE_OPTIONS) -> Connecting:
    """The options of a connection; `InvalidConfiguration`.

    >>> connecting({"BROKERS": "127.0.0.1:7411, 127.0.0.1:7412"}).brokers
    ('127.0.0.1:7411', '127.0.0.1:7412')
    """
    given = _known(options, known)
    written = given.get("brokers") or given.get("path") or ""
    brokers = tuple(dict.fromkeys(part.strip() for part in written.split(",") if part.strip()))
    if not brokers:
        raise InvalidConfiguration(
            "which brokers? Give their addresses, as in "
            '.option("brokers", "127.0.0.1:7411,127.0.0.1:7412")'
        )
    for broker in brokers:
        Address.parse(broker)
    files = {"ca": "tlsca", "certificate": "tlscertificate", "key": "tlskey"}
    tls = {part: given[name] for part, name in files.items() if name in given}
    return Connecting(
        brokers, given.get("token"), tls or None, _number(given, "patience", PATIENCE, float, 0.0)
    )


def transaction(options: Mapping[str, str]) -> WriteIdentity | None:
    """The identity of a write, if one is given; `InvalidConfiguration`.

    >>> transaction({"txnAppId": "bars", "txnVersion": "7", "txnKey": "symbol, minute"})
    WriteIdentity(app='bars', version=7, key=('symbol', 'minute'))
    """
    given = _known(options, WRITE_OPTIONS)
    named = [name for name in _WRITING if name.lower() in given]
    if not named:
        return None
    app, version = given.get("txnappid", "").strip(), given.get("txnversion")
    if not app or version is None:
        raise InvalidConfiguration(
            f"{named[0]} is given: a transaction needs both txnAppId, a name, and txnVersion, a "
            "number that rises, such as the batch id of foreachBatch"
        )
    key = tuple(part.strip() for part in given.get("txnkey", "").split(",") if part.strip())
    return WriteIdentity(app, _number(given, "txnversion", 0, int, 0), key)


def dead_letters(options: Mapping[str, str]) -> str | None:
    """Where rows go that cannot be published: a URI, or an absolute path; None if they fail.

    >>> dead_letters({"deadLetters": "s3://bucket/refused"})
    's3://bucket/refused'
    """
    path = _known(options, WRITE_OPTIONS).get("deadletters", "").strip()
    if not path:
        return None
    return path if "://" in path else str(Path(path).absolute())


def reading(options: Mapping[str, str], *, streaming: bool | None = None) -> Reading:
    """The options of a read; `InvalidConfiguration`, or what is wrong with the filter.

    `streaming` is None if it is not known yet what they are for.
    """
    known = READ_OPTIONS | COLUMN_OPTIONS
    found = connecting(options, known)
    given = _known(options, known)
    filter = Filter(given.get("filter", ""))
    kind = given.get("eventtype")
    if kind is not None:
        filter = filter & event_type(kind)
    if streaming and "limit" in given:
        raise InvalidConfiguration("limit is for batches; a stream has maxRowsPerBatch")
    mode = given.get("mode", MODES[0]).upper()
    if mode not in MODES:
        raise InvalidConfiguration(f"mode={mode} is none; choose one of {', '.join(MODES)}")
    return Reading(
        found,
        "" if filter.is_always else str(filter),
        kind,
        given.get("columns"),
        _attributes(given),
        _moment(given, "starting", EARLIEST, streaming=streaming),
        _moment(given, "ending", LATEST, streaming=streaming),
        _number(given, "maxrowsperbatch", None, int, 1),
        _number(given, "maxrowsperpartition", ROWS_PER_PARTITION, int, 1),
        _flag(given, "failOnDataLoss", True),
        mode,
        _number(given, "sample", SAMPLE, int, 1),
        given.get("timecolumn", TIME),
        _flag(given, "waitForBrokers", True),
        _number(given, "maxbytesperbatch", None, int, 1),
        _number(given, "limit", None, int, 0),
    )


def _known(options: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in known}
    given = {}
    for name, value in options.items():
        lower = name.lower()
        if lower not in names and lower not in _SPARK:
            near = get_close_matches(lower, names, n=1)
            hint = f"did you mean {names[near[0]]}? " if near else ""
            listed = sorted(known, key=lambda each: (each in COLUMN_OPTIONS, each))
            raise InvalidConfiguration(
                f"there is no option {name!r}; {hint}There are {', '.join(listed)}"
            )
        given[lower] = value
    return given


def _attributes(given: Mapping[str, str]) -> Mapping[str, str] | None:
    written = given.get("attributes")
    if written is None:
        return None
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(kind, str) for kind in found.values()):
        raise InvalidConfiguration(
            f"attributes={written}: write JSON with a type for each, such as "
            '{"price": "number", "symbol": "string"}'
        )
    return found


def _number(given: Mapping[str, str], name: str, default: Any, kind: type, least: float) -> Any:
    written = given.get(name)
    if written is None:
        return default
    try:
        found = kind(written)
    except ValueError:
        found = None
    if found is None or not found >= least:
        known = READ_OPTIONS | WRITE_OPTIONS
        shown = next(option for option in known if option.lower() == name)
        raise InvalidConfiguration(f"{shown}={written}: give a number of at least {least}")
    return found


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    written = given.get(name.lower())
    if written is None:
        return default
    if written.lower() not in ("true", "false"):
        raise InvalidConfiguration(f"{name}={written}: write true or false")
    return written.lower() == "true"


def _moment(
    given: Mapping[str, str], which: str, default: str, *, streaming: bool | None
) -> str | Offsets | float:
    """Where to start, or to end: a word, offsets by broker, or seconds since 1970."""
    offsets, timestamp = given.get(f"{which}offsets"), given.get(f"{which}timestamp")
    starting = which == "starting"
    if streaming and not starting and (offsets or timestamp) is not None:
        raise InvalidConfiguration(
            f"a stream has no end: leave out {which}Offsets and {which}Timestamp, or use spark.read"
        )
    if offsets is not None and timestamp is not None:
        raise InvalidConfiguration(f"give {which}Offsets or {which}Timestamp, not both")
    if timestamp is not None:
        try:
            return since_seconds(timestamp)
        except InvalidValue as error:
            raise InvalidConfiguration(
                str(error).replace("since=", f"{which}Timestamp=", 1)
            ) from None
    if offsets is None:
        return default
    words: tuple[str, ...] = (EARLIEST, LATEST)
    if streaming is False:
        words = (EARLIEST,) if starting else (LATEST,)
    if offsets.strip().lower() in words:
        return offsets.strip().lower()
    try:
        found = json.loads(offsets)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(map(_is_offset, found.values())):
        raise InvalidConfiguration(
            f"{which}Offsets={offsets}: write {' or '.join(words)}, or JSON such as "
            '{"b1": 1000, "b2": "earliest"}, with brokers or journals and their offsets from 1 on'
        )
    return found


def _is_offset(value: object) -> bool:
    return value in (EARLIEST, LATEST) or (type(value) is int and value >= 1)
