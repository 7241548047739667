"""A bridge at work: each way over it in a thread of its own, until all end together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from stentor.errors import StentorError
from stentor.pipeline.bridges.cluster import check_client
from stentor.pipeline.bridges.crossing import Crossing
from stentor.pipeline.bridges.inbound import Inbound, Stopped
from stentor.pipeline.bridges.outbound import Outbound
from stentor.pipeline.runs.definition import Pipeline
from stentor.pipeline.runs.engines import legs
from stentor.pipeline.runs.figures import Figures, Outcome, Watcher

_LOOK: Final = 0.1


class Bridge:
    """One run of a pipeline that is a bridge.

        outcome = Bridge(load("bridge.toml"), once=True).run()

    `stop`, which may be called from anywhere, even a signal handler, ends it in good order: each
    way finishes the batch that it is at, and has it confirmed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        once: bool = False,
        tell: Callable[[str], None] = lambda text: None,
        registry: Any = None,
    ) -> None:
        """`tell` gets what people should know at once; `registry` is a client for schemas."""
        check_client()
        self.pipeline = pipeline
        self.watch: Watcher | None = None
        self._asked = False
        self._failed = False
        self._failure: BaseException | None = None
        self._ways: list[tuple[Crossing, Inbound | Outbound]] = []
        for leg in legs(pipeline):
            crossing = Crossing(
                Figures(leg.sink.name), self._stopping, self._changed, tell, once=once
            )
            kind = Inbound if leg.source.kind == "kafka" else Outbound
            name = f"{pipeline.name}.{leg.sink.name}"
            self._ways.append((crossing, kind(leg, name, crossing, registry)))

    @property
    def figures(self) -> dict[str, Figures]:
        """By the names of the sinks; they change while it runs."""
        return {crossing.figures.name: crossing.figures for crossing, _ in self._ways}

    def stop(self) -> None:
        """Let it end soon."""
        self._asked = True

    def _stopping(self) -> bool:
        return self._asked or self._failed

    def _changed(self, figures: Figures, progress: Mapping[str, Any] | None = None) -> None:
        if self.watch is not None:
            self.watch(figures, progress)

    def run(self) -> Outcome:
        """Run until everything is done, something has failed, or it is told to stop."""
        began = time.monotonic()
        threads = [
            threading.Thread(target=self._run, args=way, name=f"sink {name}", daemon=True)
            for name, way in zip(self.figures, self._ways, strict=True)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(_LOOK)
        if self._failure is not None:
            raise self._failure
        problems = [each.problem for each in self.figures.values() if each.state == "failed"]
        stopped = any(each.state == "stopped" for each in self.figures.values())
        return Outcome(
            self.figures, problems[0] if problems else None, stopped, time.monotonic() - began
        )

    def _run(self, crossing: Crossing, way: Inbound | Outbound) -> None:
        try:
            way.run()
        except Stopped:
            crossing.state("stopped")
        except StentorError as error:
            self._failed = True
            crossing.figures.problem = f"sink {crossing.figures.name!r}: {error}"
            crossing.state("failed")
        except BaseException as error:
            self._failed = True
            self._failure = error
            crossing.state("failed")
        else:
            crossing.figures.problem = None
            crossing.state("stopped" if self._stopping() else "done")
