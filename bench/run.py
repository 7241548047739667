"""Measures the engines: tables on the terminal, JSON and plots in bench/results.

./dev bench                the sizes 1,000 to 100,000, five to ten minutes
./dev bench --quick        small sizes, about a minute
./dev bench --full         a million filters, too
./dev bench --only stock   only some of: stock, shapes, sweep, tuples
./dev bench --write-docs   then put the results into docs/benchmarks.md
./dev bench --report       show the results of the last run again, measuring nothing
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from onecore import ROOT, use_one_core

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"


def main(arguments: list[str]) -> None:
    use_one_core()  # before Numba and Arrow are imported
    from console import show
    from docs import write_docs
    from plots import save_plots
    from profiles import PARTS, PROFILES
    from progress import progress

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    amount = parser.add_mutually_exclusive_group()
    for name in ("quick", "full"):
        amount.add_argument(f"--{name}", dest="profile", action="store_const", const=name)
    parser.set_defaults(profile="default")
    parser.add_argument("--only", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)

    latest: Path = options.results / "latest.json"
    if options.report:
        if not latest.exists():
            parser.error(f"{latest} is not there: run without --report first")
        results = json.loads(latest.read_text(encoding="utf-8"))
    else:
        from suite import run_suite

        parts = tuple(options.only or PARTS)
        results = run_suite(PROFILES[options.profile], parts)
        options.results.mkdir(parents=True, exist_ok=True)
        latest.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    show(results)
    saved = [latest, *save_plots(results, options.results)]
    if options.write_docs:
        write_docs(results, PAGE)
        saved.append(PAGE)
    for path in saved:
        progress(f"see {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


if __name__ == "__main__":
    main(sys.argv[1:])
