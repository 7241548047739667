"""Pipelines that are written in TOML, and how they are run.

    pipeline = load("market.toml")                    read and check it; nothing is started
    outcome = Runner(pipeline, spark, once=True).run()

    definition   the form of the file, and the pipeline as a value
    loader       from the file to the value; all mistakes are told at once
    runner       the queries of a pipeline, from start to end

`stentor pipeline` is the command for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.runs.definition import Pipeline
    from stentor.pipeline.runs.figures import Outcome
    from stentor.pipeline.runs.loader import load
    from stentor.pipeline.runs.runner import Runner

__all__ = ["Outcome", "Pipeline", "Runner", "load"]

__getattr__ = lazily(
    __name__, definition="Pipeline", figures="Outcome", loader="load", runner="Runner"
)
