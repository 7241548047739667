"""What can be measured: the engines, routing, the live service, the pipeline. Each for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docs
import live.plots
import live.profiles
import live.tables
import network.plots
import network.profiles
import network.tables
import pipeline.profiles
import pipeline.tables
import plots
import profiles
import tables
from docs import Section
from tables import Results, Table


@dataclass(frozen=True)
class Subject:
    """How one subject is measured and shown."""

    #: The results' name in their folder.
    file: str
    parts: tuple[str, ...]
    profiles: Mapping[str, Any]
    run: Callable[[Any, tuple[str, ...]], Results]
    tables: Callable[[Results], list[Table]]
    save_plots: Callable[[Results, Path], list[Path]]
    section: Section


def _run_matching(profile: profiles.Profile, parts: tuple[str, ...]) -> Results:
    from stentor.matching.index.preparing import prepare
    from suite import run_suite  # imports the engines, which a mere report can do without

    prepare()  # as brokers do before they listen
    return run_suite(profile, parts)


def _run_routing(profile: network.profiles.Profile, parts: tuple[str, ...]) -> Results:
    from network.suite import run_routing

    return run_routing(profile, parts)


def _run_live(profile: live.profiles.Profile, parts: tuple[str, ...]) -> Results:
    from live.suite import run_live

    return run_live(profile, parts)


def _run_pipeline(profile: pipeline.profiles.Profile, parts: tuple[str, ...]) -> Results:
    from pipeline.suite import run_pipeline

    return run_pipeline(profile, parts)


def _no_plots(results: Results, folder: Path) -> list[Path]:
    return []


SUBJECTS: Final = {
    "matching": Subject(
        "latest.json",
        profiles.PARTS,
        profiles.PROFILES,
        _run_matching,
        tables.tables_of,
        plots.save_plots,
        docs.MATCHING,
    ),
    "routing": Subject(
        "routing.json",
        network.profiles.PARTS,
        network.profiles.PROFILES,
        _run_routing,
        network.tables.routing_tables,
        network.plots.save_routing_plots,
        docs.ROUTING,
    ),
    "live": Subject(
        "live.json",
        live.profiles.PARTS,
        live.profiles.PROFILES,
        _run_live,
        live.tables.live_tables,
        live.plots.save_live_plots,
        docs.LIVE,
    ),
    "pipeline": Subject(
        "pipeline.json",
        pipeline.profiles.PARTS,
        pipeline.profiles.PROFILES,
        _run_pipeline,
        pipeline.tables.pipeline_tables,
        _no_plots,
        docs.PIPELINE,
    ),
}
