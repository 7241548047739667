"""`stentor pipeline`: run pipelines, on Spark or as bridges, check them, and list their steps."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from click.exceptions import Exit

from stentor.cli.command import Argument, Group, Option
from stentor.cli.exits import (
    FAILURE,
    INTERRUPTED,
    OK,
    TERMINATED,
    fail,
    note,
    shows_progress,
    warn,
)
from stentor.cli.json_forms import print_json, print_line
from stentor.cli.options import JsonOption
from stentor.notation.counts import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from stentor.pipeline.bridges import Bridge
    from stentor.pipeline.runs import Outcome, Pipeline, Runner
    from stentor.pipeline.runs.figures import Figures
    from stentor.pipeline.runs.loader import Loaded
    from stentor.pipeline.steps.registry import StepKind

#: Seconds after a signal in which another is the same.
_SAME: Final = 0.5

pipeline = Group(
    "pipeline",
    "Run, check and describe pipelines.",
    {
        "run": "stentor.cli.pipeline:run",
        "check": "stentor.cli.pipeline:check",
        "steps": "stentor.cli.pipeline:steps",
    },
)

_File: TypeAlias = Annotated[
    Path,
    Argument(metavar="FILE", help="The pipeline, in TOML.", show_default=False),
]
_Set: TypeAlias = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help='Change a value of the file, such as source.quotes.filter="price > 5" or '
        "sink.bars.trigger=5s. Repeatable.",
    ),
]


def run(
    file: _File,
    master: Annotated[
        str | None,
        Option(
            "--master",
            metavar="URL",
            help="Where Spark runs, such as local[4] or spark://host:7077. By default what the "
            "file says, else this machine.",
        ),
    ] = None,
    once: Annotated[
        bool,
        Option("--once", metavar="", help="Process everything that is there by now, and end."),
    ] = False,
    set: _Set = None,
    metrics: Annotated[
        Path | None,
        Option(
            "--metrics",
            metavar="FILE",
            help="Append a line of JSON for each micro-batch of each query.",
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        Option(
            "--monitor",
            metavar="ADDRESS",
            help="Serve metrics for Prometheus at http://ADDRESS/metrics.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        Option(
            "--plot",
            metavar="FILE",
            help="Draw rates and lag over time when it ends, as PNG, SVG or PDF.",
        ),
    ] = None,
    grace: Annotated[
        float,
        Option(
            "--grace",
            metavar="SECONDS",
            min=0.0,
            help="How many seconds queries may take to finish their present batch when they "
            "are told "
            "to stop.",
        ),
    ] = 30.0,
    spark_log: Annotated[
        Path | None,
        Option(
            "--spark-log",
            metavar="FILE",
            help="Where Spark's own log goes. By default .stentor/NAME/spark.log beside the file.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a pipeline until it is told to stop.

    Each sink is a query with a checkpoint: when it is run again, it goes on where it was, with
    nothing lost or repeated. SIGTERM or Ctrl-C ends it in good order, after the batches that are
    under way; a second one ends it at once. If one query fails, all are stopped.

    A pipeline that only carries events between Kafka and brokers is a bridge, and needs no Spark
    (see `engine` in the documentation). It goes on trying while Kafka or a broker is away.

    With --json, each micro-batch and each change of a query's state is a line on stdout; the last
    line says how the run ended.

    \b
    Exit codes:
      0    it was stopped by SIGTERM, which is how a pipeline ends; with --once, all is done
      1    something failed, and a line on stderr says what
      2    the file or an option is wrong
      130  it was stopped by Ctrl-C; with --once 143 by SIGTERM, before all was done

    \b
    Examples:
      stentor pipeline run market.toml
      stentor pipeline run market.toml --once --set source.quotes.filter="symbol = 'IBM'"
      stentor pipeline run market.toml --master spark://head:7077 --metrics metrics.jsonl
      stentor pipeline run bridge.toml --plot rates.png
    """
    from contextlib import ExitStack

    from rich.console import Console

    definition = _load(file, set)
    if plot is not None:
        from stentor.pipeline.runs.plots import check_plot

        check_plot(plot)
    console = Console(stderr=True, force_terminal=None if shows_progress() else False)
    runner: Runner | Bridge
    with ExitStack() as stack:
        log = None
        if definition.engine == "bridge":
            from stentor.pipeline.bridges import Bridge

            _refuse_spark(master, spark_log)
            runner = Bridge(definition, once=once, tell=note)
        else:
            from stentor.pipeline.runs.spark_session import (
                check_requirements,
                log_file,
                start_session,
                stop_session,
            )
            from stentor.pipeline.runs.view import waiting

            check_requirements()
            log = spark_log or log_file(definition)
            with waiting(console, "starting Spark"):
                spark = start_session(definition, master=master, log=log)
            stack.callback(stop_session, spark)
            from stentor.pipeline.runs import Runner

            runner = Runner(definition, spark, once=once, grace=grace)
        received = _stop_on_signals(runner)
        outcome = _watched(runner, console, metrics, monitor, plot, json=json)
    if json:
        print_line(_ended(definition, outcome))
    raise Exit(_told(outcome, console, received, log, once=once))


def _refuse_spark(master: str | None, spark_log: Path | None) -> None:
    from stentor.errors import InvalidConfiguration

    for option, value in (("--master", master), ("--spark-log", spark_log)):
        if value is not None:
            raise InvalidConfiguration(
                f"{option} is for Spark, and this pipeline is a bridge, which runs without it; "
                'with engine = "spark" in the file it runs there'
            )


def check(
    file: _File,
    set: _Set = None,
    quick: Annotated[
        bool,
        Option(
            "--quick",
            metavar="",
            help="Without Spark: columns, functions and types in expressions are not checked.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Say what is wrong with a pipeline, or what it does.

    Nothing is read or written, and no broker and no cluster is asked. Spark is started on this
    machine for some seconds, to find columns and functions that do not exist; where it is not
    installed, that is left out, with a warning. Sources need a schema for that. A bridge runs
    without Spark, so Spark is not asked. Every mistake is reported with its line, and the exit code
    is then 2.

    \b
    Examples:
      stentor pipeline check market.toml
      stentor pipeline check market.toml --quick
    """
    from stentor.pipeline.runs.loader import read

    loaded = read(file, set=set or ())
    unchecked = [] if quick or loaded.pipeline.engine == "bridge" else _unchecked(loaded)
    loaded.document.check()
    for warning in (*loaded.pipeline.warnings, *unchecked):
        warn(warning)
    if json:
        print_json(loaded.pipeline.outline())
    else:
        sys.stdout.write(loaded.pipeline.describe() + "\n")


def _unchecked(loaded: Loaded) -> list[str]:
    """Let Spark look at a pipeline, also at what else is right in one with mistakes.

    Returns what it could not look at.
    """
    from rich.console import Console

    from stentor.errors import PipelineError
    from stentor.pipeline.runs.spark_session import check_requirements
    from stentor.pipeline.runs.view import waiting

    try:
        check_requirements()
    except PipelineError as error:
        return [f"columns and functions are not checked: {error}"]
    from stentor.pipeline.runs.spark_session import checking_session

    with waiting(Console(stderr=True), "asking Spark"), checking_session() as spark:
        from stentor.pipeline.runs.analysis import check_tables

        return check_tables(loaded, spark)


def steps(
    name: Annotated[
        str | None,
        Argument(metavar="NAME", help="A step, to see its options.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the steps that a pipeline can have, or the options of one.

    \b
    Examples:
      stentor pipeline steps
      stentor pipeline steps collapse
    """
    from stentor.errors import InvalidConfiguration
    from stentor.pipeline.steps.registry import steps

    known = steps()
    if name is not None and name not in known:
        raise InvalidConfiguration(f"there is no step {name!r}; known: {', '.join(known)}")
    if json:
        about = [_step(kind) for kind in known.values() if name in (None, kind.name)]
        print_json(about if name is None else about[0])
        return
    if name is None:
        width = max(map(len, known))
        lines = [f"{kind.name:<{width}}  {kind.about}" for kind in known.values()]
    else:
        kind = known[name]
        lines = [kind.about, ""]
        for key, option in kind.options.items():
            notes = ["required"] if option.required else []
            notes += ["or just the value"] if key == kind.main else []
            note = f" ({', '.join(notes)})" if notes else ""
            lines.append(f"  {key}: {option.about}{note}")
            lines.append(f"      {option.form}")
    sys.stdout.write("\n".join(lines) + "\n")


def _step(kind: StepKind) -> dict[str, Any]:
    options = [
        {
            "name": name,
            "about": option.about,
            "form": option.form,
            "required": option.required,
            "main": name == kind.main,
        }
        for name, option in kind.options.items()
    ]
    return {"name": kind.name, "about": kind.about, "options": options}


def _load(file: Path, set: list[str] | None) -> Pipeline:
    from stentor.pipeline.runs.loader import load

    definition = load(file, set=set or ())
    for warning in definition.warnings:
        warn(warning)
    return definition


def _stop_on_signals(runner: Runner | Bridge) -> list[signal.Signals]:
    """The first SIGINT or SIGTERM lets the run end, a second one ends the process.

    One that comes in the same moment is the first once more: `timeout` tells the process, and then
    all of its group.
    """
    received: list[signal.Signals] = []
    first = 0.0

    def stop(number: int, frame: Any) -> None:
        nonlocal first
        name, now = signal.Signals(number), time.monotonic()
        if received and now < first + _SAME:
            return
        if received:
            note(f"{name.name} a second time; ending at once")
            os._exit(_code(name))
        received.append(name)
        first = now
        note(f"{name.name}: finishing the batches that are under way")
        runner.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return received


def _watched(
    runner: Runner | Bridge,
    console: Any,
    metrics: Path | None,
    monitor: str | None,
    plot: Path | None,
    *,
    json: bool,
) -> Outcome:
    """Run, showing and recording what happens."""
    from collections.abc import Mapping
    from contextlib import ExitStack

    from stentor.pipeline.runs.metrics import MetricsFile, MetricsServer, prometheus
    from stentor.pipeline.runs.plots import Curves
    from stentor.pipeline.runs.view import shown

    curves = Curves()
    with ExitStack() as stack:
        if plot is not None:
            stack.callback(curves.draw, plot, runner.pipeline.name)
        file = None
        if metrics is not None:
            file = MetricsFile(metrics)
            stack.callback(file.close)
        if monitor is not None:
            name = runner.pipeline.name
            served = MetricsServer(monitor, lambda: prometheus(name, runner.figures.values()))
            stack.callback(served.close)
            note(f"metrics at http://{served.address}/metrics")
        changed: Callable[[Figures], None] = _print_figures
        if not json:
            changed = stack.enter_context(shown(console, lambda: runner.figures.values()))

        def watch(figures: Figures, progress: Mapping[str, Any] | None) -> None:
            changed(figures)
            curves.add(figures)
            if file is not None:
                file.write(figures, progress)

        runner.watch = watch
        return runner.run()


def _print_figures(figures: Figures) -> None:
    print_line(figures.summary())


def _ended(definition: Pipeline, outcome: Outcome) -> dict[str, Any]:
    return {
        "pipeline": definition.name,
        "ended": "failed" if outcome.problem else "stopped" if outcome.stopped else "done",
        "problem": outcome.problem,
        "seconds": round(outcome.seconds, 3),
        "rows": {name: each.rows for name, each in outcome.figures.items()},
    }


def _told(
    outcome: Outcome,
    console: Any,
    received: list[signal.Signals],
    log: Path | None,
    *,
    once: bool,
) -> int:
    """Say how it ended; the exit code."""
    from stentor.errors import PipelineError
    from stentor.pipeline.runs.view import table

    if console.is_terminal:  # else all of it has been told in lines
        console.print(table(outcome.figures.values()))
    for figures in outcome.figures.values():
        if figures.late:
            late = counted(figures.late, "event")
            warn(
                f"{figures.name}: {late} came too late to be in a result; a longer watermark waits "
                "longer"
            )
    if outcome.problem is not None:
        more = "" if log is None else f" (Spark's log: {log})"
        fail(f"{outcome.problem}{more}", code=PipelineError.code)
        return FAILURE
    # To be told to stop is how a pipeline ends, as a broker does, unless it was to end by itself.
    if outcome.stopped and received and (once or received[0] == signal.SIGINT):
        return _code(received[0])
    return OK


def _code(number: signal.Signals) -> int:
    return INTERRUPTED if number == signal.SIGINT else TERMINATED
