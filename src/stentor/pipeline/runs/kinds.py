"""The kinds of sources and sinks, and the keys that each has in a pipeline.

A source is told by the key that names where it reads: `brokers`, `kafka`, `archive`, `parquet`,
`json`, `csv` or `jdbc`; its other keys stand beside it. A sink has a key by the name of its kind,
with a table of its own; given just a value, that is the main one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from stentor.pipeline.steps.options import Option


@dataclass(frozen=True)
class EndKind:
    """A kind of source or sink."""

    name: str
    #: The key that makes a source one of this kind, or the main one of a sink's own table.
    main: str
    options: dict[str, Option]
    about: str
    #: Of sources: whether they are streams unless they say otherwise, and whether they may be both.
    stream: bool = False
    both: bool = False
    #: Of sinks: whether they keep their own checkpoints, and which output modes they take.
    own_checkpoint: bool = False
    modes: tuple[str, ...] = ("append", "update", "complete")
    #: Of sinks: what a batch can do with a target that is there already; by default the first.
    existing: tuple[str, ...] = ("fail", "replace", "add")


_CONNECTING: Final = {
    "brokers": Option("addresses", "the brokers", required=True),
    "token": Option("text", "shown to brokers that ask who may connect; @FILE reads it"),
    "tls_ca": Option("path", "PEM file of the authority that signed the brokers' certificates"),
    "tls_certificate": Option("path", "PEM file of the own certificate"),
    "tls_key": Option("path", "PEM file of its key"),
    "patience": Option("duration", "how long to wait for a broker that is down"),
}
_SCHEMA: Final = Option("schema", "attributes and their types; by default from a sample")
#: What both ends of Kafka have in common.
_KAFKA: Final = {
    "servers": Option("servers", "brokers of Kafka, as host:port", required=True),
    "format": Option(
        "text", "what values are; json by default", choices=("json", "avro", "json_schema", "raw")
    ),
    "registry": Option("text", "the schema registry's URL, for avro and json_schema"),
    "settings": Option("settings", "settings of Kafka's client, such as security.protocol"),
    "registry_settings": Option("settings", "settings of the registry's client"),
    "dead_letter": Option("dead_letter", "where it goes what cannot be read or written"),
}
_JDBC: Final = {
    "user": Option("text", "who connects"),
    "password": Option("text", "their password; @FILE reads it"),
    "driver": Option("text", "the driver's class, where it does not follow from the URL"),
    "settings": Option("settings", "further options of Spark's JDBC source and sink"),
}


def _files(form: str, about: str) -> EndKind:
    options = {
        form: Option("path", "a file, a directory or a pattern", required=True),
        "schema": Option("schema", "columns and their types; a stream needs them"),
        "max_files": Option("count", "files that a micro-batch of a stream takes at most"),
    }
    if form == "csv":
        options["header"] = Option("flag", "whether the first line has the names")
    return EndKind(form, form, options, about, both=True)


SOURCES: Final = {
    kind.name: kind
    for kind in (
        EndKind(
            "stentor",
            "brokers",
            {
                **_CONNECTING,
                "filter": Option("filter", "a subscription: the brokers send only what it matches"),
                "schema": _SCHEMA,
                "event_type": Option("text", "only events of this type and its subtypes"),
                "starting_offsets": Option("offsets", "earliest, latest, or offsets by broker"),
                "ending_offsets": Option("offsets", "where a batch ends: latest, or offsets"),
                "starting_timestamp": Option("moment", "what was journaled then or later"),
                "ending_timestamp": Option("moment", "what was journaled before, in a batch"),
                "limit": Option("count", "so many events are enough, in a batch"),
                "max_rows_per_batch": Option("count", "events that a micro-batch looks at"),
                "max_bytes_per_batch": Option("count", "bytes of events that it reads, about"),
                "max_rows_per_partition": Option("count", "events that one task looks at"),
                "time_column": Option("text", "by which time a stream catches up; _time"),
                "wait_for_brokers": Option("flag", "whether to wait for brokers that are down"),
                "fail_on_data_loss": Option("flag", "whether events that are gone are an error"),
                "mode": Option(
                    "text",
                    "what happens with events that do not fit the schema",
                    choices=("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
                ),
                "sample": Option("count", "events per broker from which a schema is inferred"),
            },
            "the journals of brokers",
            stream=True,
            both=True,
        ),
        EndKind(
            "kafka",
            "kafka",
            {
                "kafka": Option("texts", "the topics", required=True),
                **_KAFKA,
                "type": Option("text", "the event type; the topic's name by default"),
                "filter": Option("filter", "which of them are taken"),
                "schema": Option("schema", "attributes and their types, for Spark"),
                "starting_offsets": Option(
                    "text", "where to begin; earliest by default", choices=("earliest", "latest")
                ),
                "max_rows_per_batch": Option("count", "records that are taken at a time"),
                "fail_on_data_loss": Option("flag", "whether records that are gone are an error"),
            },
            "the records of Kafka topics",
            stream=True,
            both=True,
        ),
        EndKind(
            "archive",
            "archive",
            {
                "archive": Option("path", "where it is", required=True),
                "filter": Option("filter", "what is wanted of it"),
                "since": Option("moment", "what was published then or later"),
                "until": Option("moment", "what was published before"),
            },
            "the history in an archive",
        ),
        _files("parquet", "Parquet files"),
        _files("json", "files with a JSON object per line"),
        _files("csv", "comma-separated files"),
        EndKind(
            "jdbc",
            "jdbc",
            {
                "jdbc": Option("text", "the database, as jdbc:…", required=True),
                "table": Option("text", "the table"),
                "query": Option("sql", "or what to ask for"),
                **_JDBC,
            },
            "a table of a database",
        ),
    )
}


def _written_files(form: str, about: str) -> EndKind:
    options = {
        "path": Option("path", "a directory", required=True),
        "partition_by": Option("texts", "columns that make subdirectories"),
    }
    if form == "csv":
        options["header"] = Option("flag", "whether the first line of each has the names")
    return EndKind(form, "path", options, about, modes=("append",))


SINKS: Final = {
    kind.name: kind
    for kind in (
        EndKind(
            "stentor",
            "brokers",
            {
                **_CONNECTING,
                "type": Option("text", "the event type of what is published"),
                "dead_letters": Option("path", "where rows go that cannot be published"),
            },
            "publish each row at a broker",
            modes=("append",),  # Spark has no other for sources and sinks in Python
            existing=("add",),
        ),
        EndKind(
            "archive",
            "path",
            {
                "path": Option("path", "where it is", required=True),
                "deduplicate": Option("flag", "leave out events that the archive has already"),
                "compaction": Option("flag", "merge small files on the way"),
                "grace": Option("duration", "how long files that were merged stay for readers"),
            },
            "keep events as an archive",
            own_checkpoint=True,
            modes=("append",),
            existing=("fail", "add"),
        ),
        _written_files("parquet", "write Parquet files"),
        _written_files("json", "write files with a JSON object per line"),
        _written_files("csv", "write comma-separated files"),
        EndKind(
            "jdbc",
            "url",
            {
                "url": Option("text", "the database, as jdbc:…", required=True),
                "table": Option("text", "the table", required=True),
                **_JDBC,
            },
            "write to a table of a database",
            modes=("append", "update"),
        ),
        EndKind(
            "kafka",
            "topic",
            {
                "topic": Option("text", "the topic", required=True),
                **_KAFKA,
                "key": Option("text", "the attribute that is the key"),
                "exactly_once": Option("flag", "whether each is there once; true by default"),
            },
            "write each row as a record of a Kafka topic",
            modes=("append", "update"),
            existing=("add",),
        ),
        EndKind(
            "console",
            "rows",
            {"rows": Option("count", "how many rows of each batch are shown")},
            "print each batch",
            own_checkpoint=True,
            existing=("add",),
        ),
        EndKind(
            "memory",
            "table",
            {"table": Option("text", "the name of the table", required=True)},
            "keep everything in the driver as a table, to look at from a program",
            own_checkpoint=True,
            existing=("replace",),
        ),
    )
}

# An archive is a Delta table, and may be called so.
_DELTA: Final = {
    ("delta" if k == "archive" else k): v for k, v in SOURCES["archive"].options.items()
}
SOURCES["delta"] = replace(SOURCES["archive"], name="delta", main="delta", options=_DELTA)
SINKS["delta"] = replace(SINKS["archive"], name="delta")

#: What a batch can do with a target that is there already, and what Spark calls it.
EXISTING: Final = {"fail": "errorifexists", "replace": "overwrite", "add": "append"}
