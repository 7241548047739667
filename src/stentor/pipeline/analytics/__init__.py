"""What operators want to know: tables, and a page of them with pictures.

    popularity(subscriptions)                      how many subscriptions have the same filter
    selectivity(events, subscriptions)             how much each filter matches
    covering_potential(subscriptions)              how much smaller routing tables could be
    hot_attributes(subscriptions, events)          what is asked for, and what events carry
    hot_constants(subscriptions)                   the values that are asked for most
    traffic(events)                                events by broker, type and time
    report(events, subscriptions, path)            all of it on a page

Events are tables as everywhere in the pipeline; subscriptions are tables with a column `filter`.
"""

from stentor.pipeline.analytics.attributes import hot_attributes, hot_constants
from stentor.pipeline.analytics.filters import distinct_filters, popularity
from stentor.pipeline.analytics.potential import covering_potential
from stentor.pipeline.analytics.reports import report
from stentor.pipeline.analytics.selectivity import selectivity
from stentor.pipeline.analytics.traffic import traffic

__all__ = [
    "covering_potential",
    "distinct_filters",
    "hot_attributes",
    "hot_constants",
    "popularity",
    "report",
    "selectivity",
    "traffic",
]
