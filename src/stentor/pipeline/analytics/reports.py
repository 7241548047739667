"""`report`: what an operator wants to know of a system, on one page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from stentor.errors import PipelineError
from stentor.pipeline.analytics import plots
from stentor.pipeline.analytics.attributes import hot_attributes, hot_constants
from stentor.pipeline.analytics.filters import distinct_filters
from stentor.pipeline.analytics.potential import check_budget, potential_of
from stentor.pipeline.analytics.selectivity import selectivity
from stentor.pipeline.analytics.traffic import traffic

#: Rows of a table on the page.
SHOWN: Final = 20
#: Points of a picture: beyond, a sample would be needed, and the driver's memory.
DRAWN: Final = 100_000

_CODE: Final = frozenset({"filter", "attribute", "constant"})


def report(
    events: DataFrame,
    subscriptions: DataFrame,
    path: str | Path,
    *,
    title: str = "Events and subscriptions",
    every: str = "1 minute",
    budget: float = 0.0,
    filter: str = "filter",
) -> Path:
    """Write a page about events and subscriptions: HTML that holds everything.

        report(history(spark, "archive"), spark.table("subscriptions"), "report.html")

    `every` is the span of time over which rates are taken, `budget` that of imperfect merging. What
    a page shows is small; the tables behind it come from `traffic`, `selectivity`,
    `covering_potential`, `hot_attributes` and `hot_constants`. Pictures need matplotlib.
    """
    check_budget(budget, events)
    distinct = distinct_filters(subscriptions, filter=filter).cache()
    matched = selectivity(events, distinct).cache()
    try:
        sections = _traffic(events, every) if "_time" in events.columns else []
        sections += [
            *_interest(distinct),
            _selectivity(matched),
            _potential(potential_of(distinct, events, budget=budget)),
            _attributes(hot_attributes(distinct, events)),
            Section(
                "Constants",
                "The constants that are asked for most.",
                _table(hot_constants(distinct)),
            ),
        ]
        total = distinct.agg(
            F.coalesce(F.sum("subscriptions"), F.lit(0)).alias("subscriptions"),
            F.count_if(F.col("problem").isNull()).alias("filters"),
        ).collect()[0]
    finally:
        distinct.unpersist()
        matched.unpersist()
    intro = (
        f"{events.count():,} events; {total['subscriptions']:,} subscriptions with "
        f"{total['filters']:,} distinct filters."
    )
    return Page(title, intro, sections).write(path)


def _traffic(events: DataFrame, every: str) -> list[Section]:
    by_broker = traffic(events, every, by=["_broker"]).where("start is not null")
    rows = by_broker.limit(DRAWN).toArrow().to_pylist()
    sections: list[Section] = []
    if rows:
        points = [(row["start"], row.get("_broker") or "", row["per_second"]) for row in rows]
        span = timedelta(seconds=rows[0]["events"] / rows[0]["per_second"])
        picture = plots.traffic_plot(points, span, every)
        sections.append(
            Section(
                "Traffic",
                f"Events per second, each value the mean over {every}; the first and the last may "
                "not have been recorded as a whole."
                + (" Only the first part is drawn." if len(rows) == DRAWN else ""),
                _busiest(by_broker),
                (picture, "Events per second over time, by broker"),
            )
        )
    if "_type" in events.columns:
        kinds = (
            events.groupBy(F.coalesce("_type", F.lit("(none)")).alias("type"))
            .agg(F.count("*").alias("events"))
            .orderBy(F.desc("events"), "type")
            .limit(1_000)
            .collect()
        )
        if kinds:
            picture = plots.types_plot([(row["type"], row["events"]) for row in kinds])
            sections.append(Section("Event types", picture=(picture, "Events by event type")))
    return sections


def _busiest(by_broker: DataFrame) -> Table:
    brokers = ["_broker"] if "_broker" in by_broker.columns else []
    sizes = [F.sum("bytes").alias("payload bytes")] if "bytes" in by_broker.columns else []
    found = (
        by_broker.groupBy(*brokers)
        .agg(F.sum("events").alias("events"), F.max("per_second").alias("most per second"), *sizes)
        .withColumnsRenamed({"_broker": "broker"})
        .orderBy(F.desc("events"))
    )
    return _table(found)


def _interest(distinct: DataFrame) -> list[Section]:
    good = distinct.where("problem is null").orderBy(F.desc("subscriptions"), "filter")
    counts = [row["subscriptions"] for row in good.select("subscriptions").limit(DRAWN).collect()]
    sections = [
        Section(
            "Popularity",
            "How many subscriptions have the same filter, in whatever words.",
            _table(good.drop("problem")),
            (plots.popularity_plot(counts), "Subscriptions by rank of their filter")
            if counts
            else None,
        )
    ]
    problems = distinct.where("problem is not null").orderBy(F.desc("subscriptions"))
    table = _table(problems)
    if table.rows:
        text = "These subscriptions match nothing, because their filters cannot be read."
        sections.append(Section("Filters with a problem", text, table))
    return sections


def _selectivity(matched: DataFrame) -> Section:
    good = matched.where("share is not null")
    shares = [row["share"] for row in good.select("share").limit(DRAWN).collect()]
    return Section(
        "Selectivity",
        "Which share of the events a filter matches; below, those that match most. Deliveries are "
        "matches times subscriptions.",
        _table(matched.drop("problem")),
        (plots.selectivity_plot(shares), "Filters by the share of events that they match")
        if shares
        else None,
    )


def _potential(sizes: DataFrame) -> Section:
    rows = sizes.collect()
    picture = plots.potential_plot([(r["strategy"], r["filters"], r["certainty"]) for r in rows])
    return Section(
        "Size of routing tables",
        "If all subscriptions came from one neighbor. Covering is exact; merging is greedy, so its "
        "size can be reached but need not be the smallest.",
        Table(sizes.columns, [tuple(row) for row in rows]),
        (picture, "Entries in the routing table by strategy"),
    )


def _attributes(found: DataFrame) -> Section:
    kept = found.limit(plots.BARS).collect()
    shares = [(row["attribute"], row["asked"], row["carried"] or 0.0) for row in kept]
    return Section(
        "Attributes",
        "What subscriptions ask for, and what events carry. Numbers of distinct values are "
        "estimates.",
        _table(found),
        (plots.attributes_plot(shares), "Attributes asked for and carried") if shares else None,
    )


def _table(found: DataFrame) -> Table:
    rows: list[Row] = found.limit(SHOWN).collect()
    values: list[tuple[Any, ...]] = [tuple(row) for row in rows]
    return Table([name.replace("_", " ") for name in found.columns], values, _CODE)


# -- the page


_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 14px; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #eee;
         vertical-align: top; overflow-wrap: anywhere; }
th { color: #666; font-weight: 600; } td.number { text-align: right; white-space: nowrap;
     font-variant-numeric: tabular-nums; }
img { max-width: 100%; } code { font-size: 13px; }
"""


@dataclass
class Table:
    """Rows under headings; texts in `code` columns are shown as code."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    code: frozenset[str] = frozenset()


@dataclass
class Section:
    """A heading, what is to be said, and what is to be seen."""

    title: str
    text: str = ""
    table: Table | None = None
    #: A PNG, and what it shows in a sentence.
    picture: tuple[bytes, str] | None = None


@dataclass
class Page:
    title: str
    intro: str
    sections: list[Section] = field(default_factory=list)

    def write(self, path: str | Path) -> Path:
        """Write it, as HTML."""
        target = Path(path)
        if target.suffix != ".html":
            raise PipelineError(f"a page is HTML; let the name {target.name!r} end with .html")
        target.write_text(self.html(), encoding="utf-8")
        return target

    def html(self) -> str:
        parts = [
            "<!doctype html>",
            f"<html lang='en'><head><meta charset='utf-8'><title>{escape(self.title)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(self.title)}</h1><p>{escape(self.intro)}</p>",
        ]
        for section in self.sections:
            parts.append(f"<h2>{escape(section.title)}</h2>")
            if section.text:
                parts.append(f"<p>{escape(section.text)}</p>")
            if section.picture is not None:
                png, says = section.picture
                data = b64encode(png).decode()
                parts.append(f"<img alt='{escape(says)}' src='data:image/png;base64,{data}'>")
            if section.table is not None:
                parts.append(_html_table(section.table))
        return "\n".join([*parts, "</body></html>", ""])


def _html_table(table: Table) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{escape(h)}</th>" for h in table.headings) + "</tr>"]
    for row in table.rows:
        cells = []
        for heading, value in zip(table.headings, row, strict=True):
            text = escape(written(value))
            if heading in table.code and value is not None:
                text = f"<code>{text}</code>"
            number = isinstance(value, int | float) and not isinstance(value, bool)
            cells.append(f"<td class='number'>{text}</td>" if number else f"<td>{text}</td>")
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def written(value: Any) -> str:
    """A value for people.

    >>> written(1234567), written(0.12345), written(None), written(True)
    ('1,234,567', '0.123', '–', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
