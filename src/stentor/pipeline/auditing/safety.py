"""Safety: no phantom, nothing altered, interest at delivery, at most once, only what is advertised.

Four conditions stand in the row of the delivery itself (see `acts`). Interest at delivery is an
anti-join of deliveries with the subscriptions that mattered to their notification and were active
at that moment; advertisements are the same for publishers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from stentor.pipeline.auditing.relevance import decoded, filter_of
from stentor.pipeline.auditing.words import sentence, told, violations
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.semantics import Condition
from stentor.semantics.oracle import differing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def safety(
    actions: DataFrame, intervals: DataFrame, relevant: DataFrame, *, advertisements: bool
) -> list[DataFrame]:
    """The violations of each condition."""
    parts = [_in_the_row(actions), _altered(actions)]
    parts.append(_not_subscribed(actions, intervals, relevant))
    if advertisements:
        parts.append(_unadvertised(actions, relevant))
    return parts


def _in_the_row(actions: DataFrame) -> DataFrame:
    """What needs nothing but the row of the action: phantoms, duplicates, repeated publications."""
    happened = sentence(
        F.col("comp"),
        F.when(F.col("op") == "pub", " published ").otherwise(" was notified of "),
        *(F.col("nid"), " at action ", F.col("pos")),
    )
    published = sentence(F.col("publisher"), " had published it at action ", F.col("at"))
    before = sentence("had been notified of it at action ", F.col("first"))
    faults: list[tuple[Condition, str, str | Column]] = [
        (Condition.PHANTOM, "op = 'notify' and subject = pos", "nobody had published it"),
        (Condition.DUPLICATE, "op = 'notify' and first < pos", before),
        (Condition.REPEATED_PUBLICATION, "op = 'pub' and at < pos", published),
    ]
    found = F.array(
        *(
            F.when(
                F.expr(is_so),
                F.struct(
                    F.lit(condition.value).alias("condition"),
                    sentence(happened, ", but ", why).alias("explanation"),
                ),
            )
            for condition, is_so, why in faults
        )
    )
    fault = F.explode(F.array_compact(found)).alias("fault")
    exploded = actions.select("trace", "pos", "comp", "nid", fault)
    return violations(exploded, F.col("fault.condition"), F.col("fault.explanation"))


def _altered(actions: DataFrame) -> DataFrame:
    """Different bytes may say the same, so what looks altered is compared as notifications."""
    suspected = actions.where("published is not null").select(
        *("trace", "pos", "comp", "nid", "at", "publisher", "body", "published")
    )
    found = suspected.mapInArrow(
        _really_altered,
        "trace string, pos bigint, comp string, nid string, at bigint, publisher string, "
        "parts string",
    )
    why = sentence(
        *(told(), ", but ", F.col("publisher"), " had published it at action ", F.col("at")),
        *(" with another value of ", F.col("parts")),
    )
    return violations(found, Condition.ALTERED, why)


def _really_altered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        pairs = zip(decoded(table, "published"), decoded(table), strict=True)
        parts = [differing(before.notification(), now.notification()) for before, now in pairs]
        texts = pa.array([", ".join(names) or None for names in parts], pa.string())
        found = batch.drop_columns(["body", "published"]).append_column("parts", texts)
        yield found.filter(texts.is_valid())


def _not_subscribed(actions: DataFrame, intervals: DataFrame, relevant: DataFrame) -> DataFrame:
    d = actions.where("op = 'notify'").select("trace", "pos", "comp", "nid", "subject").alias("d")
    r = relevant.where("not advertised").alias("r")
    unwanted = d.join(
        r,
        (F.col("d.trace") == F.col("r.trace"))
        & (F.col("d.subject") == F.col("r.subject"))
        & (F.col("d.comp") == F.col("r.comp"))
        & (F.col("r.since") < F.col("d.pos"))
        & (F.col("r.until").isNull() | (F.col("r.until") > F.col("d.pos"))),
        "left_anti",
    )
    found = _with_last(unwanted, actions, intervals)
    last = F.col("withdrawn")
    why = sentence(
        told(),
        F.when(last.isNull(), ", but it had never had a matching subscription").otherwise(
            sentence(
                *(", but its last matching subscription ", last["fid"], " (", last["filter"]),
                *(") was withdrawn at action ", last["until"]),
            )
        ),
    )
    found = found.withColumn("fid", last["fid"])
    return violations(found, Condition.NOT_SUBSCRIBED, why, subscription="fid")


def _with_last(unwanted: DataFrame, actions: DataFrame, intervals: DataFrame) -> DataFrame:
    """With the subscription of the component that had matched and ended last, if there is one."""
    u = unwanted.alias("u")
    e = intervals.where("not advertised and until is not null").alias("e")
    candidates = u.join(
        e,
        (F.col("u.trace") == F.col("e.trace"))
        & (F.col("u.comp") == F.col("e.comp"))
        & (F.col("e.until") < F.col("u.pos")),
        "left",
    ).select("u.*", "e.fid", "e.filter", "e.until")
    bodies = actions.where("subject = pos").select("trace", "subject", "body")
    tested = (
        candidates.join(bodies, ["trace", "subject"])
        .select("trace", "pos", "comp", "nid", "fid", "filter", "until", "body")
        .mapInArrow(
            partial(_tested, vocabulary=Vocabulary.of_this_process()),
            "trace string, pos bigint, comp string, nid string, fid string, filter string, "
            "until bigint, matched boolean",
        )
    )
    ended = F.when(F.col("matched"), F.struct("until", "fid", "filter"))
    return tested.groupBy("trace", "pos", "comp", "nid").agg(F.max(ended).alias("withdrawn"))


def _tested(
    batches: Iterable[pa.RecordBatch], *, vocabulary: Vocabulary
) -> Iterator[pa.RecordBatch]:
    """Whether notifications match filters, pair by pair: runs in a worker."""
    vocabulary.install()
    for batch in batches:
        envelopes = decoded(pa.Table.from_batches([batch]))
        matched = [
            text is not None and filter_of(text).matches(envelope.notification())
            for text, envelope in zip(batch.column("filter").to_pylist(), envelopes, strict=True)
        ]
        yield batch.drop_columns(["body"]).append_column("matched", pa.array(matched, pa.bool_()))


def _unadvertised(actions: DataFrame, relevant: DataFrame) -> DataFrame:
    conforming = relevant.where("advertised").select("trace", "subject").distinct()
    found = actions.where("op = 'notify' and subject < pos").join(
        conforming, ["trace", "subject"], "left_anti"
    )
    why = sentence(
        *(told(), ", but no advertisement of its publisher ", F.col("publisher")),
        *(" matched when it was published at action ", F.col("at")),
    )
    return violations(found, Condition.UNADVERTISED, why)
