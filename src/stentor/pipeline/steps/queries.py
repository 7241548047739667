"""Continuous queries: SQL over event tables, as over any other tables.

A subscription that says what it wants in SQL: several streams are joined, filtered, aggregated and
projected, and the answer is a stream again. Each table is known to the query by the name that it
is given here, and only there: nothing is left behind in the session's catalog, and nothing in it
is hidden or replaced for others.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.pipeline.filters.sql import quoted
from stentor.pipeline.steps.durations import Duration
from stentor.pipeline.steps.events import watermark as with_watermark

#: A code of the SQL standard, which tells people nothing.
_STATE: Final = re.compile(r" SQLSTATE: \w+")


def multi_topic(
    query: str, *, watermark: Duration = "10 minutes", **tables: DataFrame
) -> DataFrame:
    """The answer to a query over named event tables, now and as events come.

        multi_topic('''
            SELECT trades.symbol, trades.price, news.headline, trades._time
            FROM trades JOIN news ON trades.symbol = news.symbol
             AND news._time BETWEEN trades._time - INTERVAL 10 MINUTES AND trades._time
        ''', trades=trades, news=news)

    Streams get a watermark of that length, unless they have one. A join of streams needs a bound on
    their times, as above, for Spark to forget old events, and an aggregate needs a window.
    """
    if not tables:
        raise PipelineDefinitionError("a query needs tables; give each under its name")
    return query_tables(tables, query, watermark)


def relational(events: DataFrame, query: str, watermark: Duration = "10 minutes") -> DataFrame:
    """The answer to a query over one event table, which it calls `events`.

    relational(quotes, "SELECT symbol, price * volume AS value, _time FROM events")
    """
    return query_tables({"events": events}, query, watermark)


def query_tables(
    tables: Mapping[str, DataFrame], query: str, watermark: Duration = "10 minutes"
) -> DataFrame:
    """As `multi_topic`, with names that need not be those of Python."""
    spark = next(iter(tables.values())).sparkSession
    views: list[str] = []
    parts: list[str] = []
    try:
        for name, table in tables.items():
            if table.isStreaming and "_time" in table.columns:
                table = with_watermark(table, watermark)
            views.append(f"stentor_{uuid.uuid4().hex}")
            table.createTempView(views[-1])
            parts.append(f"{quoted(name)} AS (SELECT * FROM {views[-1]})")
        # The query stands in a subquery: it may have a WITH of its own, and can only be a query. It
        # is analyzed here and now, so the views are not needed any longer than this.
        return spark.sql(f"WITH {', '.join(parts)} SELECT * FROM (\n{query.strip().rstrip(';')}\n)")
    except AnalysisException as error:
        raise PipelineError(f"the query cannot be answered: {_message(error)}") from error
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def _message(error: AnalysisException) -> str:
    """What Spark says, without the plan that it shows below."""
    return _STATE.sub("", str(error).partition("\n")[0].removesuffix(";"))
