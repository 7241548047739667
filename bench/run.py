"""Measures engines, routing, service and pipeline: tables here, JSON and plots in bench/results.

./dev bench                the engines at 1,000 to 100,000 filters, five to ten minutes
./dev bench routing        routing: messages, table entries, time per change; about five minutes
./dev bench live           brokers as processes, beside Mosquitto, NATS and SQLite; about a minute
./dev bench pipeline       Spark: match beside a join, journals, archives; ten minutes
./dev bench --quick        small sizes, about a minute
./dev bench --full         a million filters, too; for routing and live, 100,000
./dev bench --only stock   only some of: stock, shapes, sweep, tuples, lists;
                           for routing of: traffic, locality, changes, survey, replacement, scale
                           for live of: throughput, durability, latency, overlay, clients
                           for pipeline of: match, journal, archive
./dev bench --write-docs   then put the results into docs/benchmarks.md; with --only, also those of
                           other parts from the last runs of that size
./dev bench --report       show the results of the last run again, measuring nothing
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from onecore import ROOT, use_one_core

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"


def main(arguments: list[str]) -> None:
    use_one_core()  # before Numba and Arrow are imported
    from console import show
    from docs import write_docs
    from progress import progress
    from subjects import SUBJECTS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", nargs="?", choices=SUBJECTS, default="matching")
    amount = parser.add_mutually_exclusive_group()
    for name in ("quick", "full"):
        amount.add_argument(f"--{name}", dest="profile", action="store_const", const=name)
    parser.set_defaults(profile="default")
    parser.add_argument("--only", action="append", metavar="PART", help="may be repeated")
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    subject = SUBJECTS[options.subject]
    parts = tuple(options.only or subject.parts)
    for part in parts:
        if part not in subject.parts:
            parser.error(f"no part {part!r} here; choose from {', '.join(subject.parts)}")

    latest: Path = options.results / subject.file
    if options.report:
        if not latest.exists():
            parser.error(f"{latest} is not there: run without --report first")
        results = json.loads(latest.read_text(encoding="utf-8"))
    else:
        results = subject.run(subject.profiles[options.profile], parts)
        if len(parts) < len(subject.parts) and latest.exists():
            results = joined(json.loads(latest.read_text(encoding="utf-8")), results)
        options.results.mkdir(parents=True, exist_ok=True)
        latest.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    tables = subject.tables(results)
    show(results, tables)
    saved = [latest, *subject.save_plots(results, options.results)]
    if options.write_docs:
        write_docs(results, tables, PAGE, subject.section)
        saved.append(PAGE)
    for path in saved:
        progress(f"see {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def joined(earlier: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """With the parts that were measured before, if that was done alike."""
    if any(earlier[key] != results[key] for key in ("profile", "machine")):
        return results
    return earlier | results | {"seconds": earlier["seconds"] + results["seconds"]}


if __name__ == "__main__":
    main(sys.argv[1:])
