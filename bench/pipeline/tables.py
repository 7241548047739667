"""The results of the pipeline's measurements as tables: goals first, ratios before times."""

from __future__ import annotations

from typing import Any, Final

from figures import rate, seconds, times
from tables import Results, Table

#: The most that `match` may cost, to a function that does nothing, by the number of cores.
TO_NOTHING: Final = {1: 1.3, 2: 1.2}
#: How much faster than a join it has to be, at least.
TO_JOIN: Final = 50.0
#: The most that reading a journal may cost, to the same rows from Parquet.
TO_PARQUET: Final = 1.5
#: As many rows per second as Parquet an archive has to take, at least.
ARCHIVED: Final = 0.8
#: By how much two cores have to be ahead of one, at least.
TWO_CORES: Final = 1.3

_SHOWN: Final = {
    "nothing": "mapInArrow that does nothing",
    "given": "as many ids, which nobody has to find",
    "match": "match, index",
    "sharded": "match, sharded",
    "native": "match, native",
    "join": "broadcast nested-loop join",
}


_READ: Final = {
    "journal": "a broker's journal",
    "filtered": "the same, filtered by the broker",
    "parquet": "Parquet through a mapInArrow that does nothing",
}


_WRITTEN: Final = {"archive": "an archive", "parquet": "Parquet, by Spark itself"}


def pipeline_tables(results: Results) -> list[Table]:
    """All tables that the results have something for."""
    tables = []
    if found := results.get("match"):
        tables += [_goals(found), *(_ways(found, one) for one in found["cores"])]
    if found := results.get("journal"):
        tables.append(_journals(found))
    if found := results.get("archive"):
        tables.append(_archives(found))
    return tables


def _archives(found: dict[str, Any]) -> Table:
    table = Table(
        f"Archiving {found['rows']:,} events",
        ["To", "Cores", "To Parquet", "Rows/s", "Time"],
        "Stock quotes of eight attributes and five columns besides. The goal: at least "
        f"{times(ARCHIVED)} of the rows per second of Parquet.",
    )
    for name, shown in _WRITTEN.items():
        table.rows.append(
            [
                shown,
                str(found["cores"]),
                times(_cost(found, "parquet") / _cost(found, name)),
                rate(1e6 / found["ways"][name]["us_per_row"]),
                seconds(min(found["ways"][name]["seconds"])),
            ]
        )
    return table


def _journals(found: dict[str, Any]) -> Table:
    table = Table(
        f"Reading {found['rows']:,} events",
        ["From", "Cores", "To Parquet", "Rows/s", "Time"],
        f"Stock quotes of eight attributes and six columns besides. The goal: at most "
        f"{times(TO_PARQUET)} of Parquet. The broker has the same cores. Publishing them took "
        f"{seconds(found['publish_s'])}.",
    )
    for cores in found["cores"]:
        for name, shown in _READ.items():
            table.rows.append(
                [
                    shown,
                    str(cores["cores"]),
                    times(_cost(cores, name) / _cost(cores, "parquet")),
                    rate(1e6 / cores["ways"][name]["us_per_row"]),
                    seconds(min(cores["ways"][name]["seconds"])),
                ]
            )
    return table


def _goals(found: dict[str, Any]) -> Table:
    table = Table("Goals of match", ["Goal", "Wanted", "Measured", "Met"])
    most = found["cores"][-1]
    goals = [
        (
            f"match to a mapInArrow that does nothing, {cores['cores']} of {most['cores']} cores",
            "at most",
            TO_NOTHING[cores["cores"]],
            _cost(cores, "match") / _cost(cores, "nothing"),
        )
        for cores in found["cores"]
    ]
    to_join = _cost(most, "join") / _cost(most, "match")
    goals.append(("nested-loop join to match, per row", "at least", TO_JOIN, to_join))
    if len(found["cores"]) > 1:
        grows = _cost(found["cores"][0], "match") / _cost(most, "match")
        goals.append(("match on two cores to one", "at least", TWO_CORES, grows))
    for name, bound, wanted, measured in goals:
        met = measured <= wanted if bound == "at most" else measured >= wanted
        row = [name, f"{bound} {times(wanted)}", times(measured), "yes" if met else "no"]
        table.rows.append(row)
    return table


def _ways(found: dict[str, Any], cores: dict[str, Any]) -> Table:
    count = cores["cores"]
    table = Table(
        f"Ways through Spark on {count} core{'s' if count > 1 else ''}",
        ["Way", "To nothing", "Rows/s", "Time", "Rows", "Matches"],
        f"Stock quotes of 9 columns in Parquet against {found['filters']:,} filters (native: the "
        f"first 12; the join over fewer rows). The session took {seconds(cores['start_s'])} to "
        f"start, parsing and compiling the filters {seconds(cores['make_s'])}, the first run of "
        f"match {seconds(cores['first_s'])}, with loading kernels in every worker.",
    )
    for name, shown in _SHOWN.items():
        way = cores["ways"][name]
        table.rows.append(
            [
                shown,
                times(_cost(cores, name) / _cost(cores, "nothing")),
                rate(1e6 / way["us_per_row"]),
                seconds(min(way["seconds"])),
                f"{way['rows']:,}",
                "–" if way["matches"] is None else f"{way['matches']:,}",
            ]
        )
    return table


def _cost(cores: dict[str, Any], way: str) -> float:
    cost: float = cores["ways"][way]["us_per_row"]
    return cost
