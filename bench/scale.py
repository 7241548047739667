"""One simulated network of any size: what it takes to run it.

bench/scale.py                           100 brokers, 1,000 clients, 1,000 publications
bench/scale.py 1000 20000 100000         as large as given
bench/scale.py 1000 20000 100000 --unchecked   neither recorded nor judged, which takes less memory
"""

from __future__ import annotations

import argparse
import sys

from onecore import use_one_core


def main(arguments: list[str]) -> None:
    use_one_core()  # before Numba and Arrow are imported
    from console import show
    from network.scale import measure_scale
    from network.tables import routing_tables
    from suite import machine

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("brokers", nargs="?", type=int, default=100)
    parser.add_argument("clients", nargs="?", type=int, default=1_000)
    parser.add_argument("publications", nargs="?", type=int, default=1_000)
    parser.add_argument("--unchecked", action="store_true")
    given = parser.parse_args(arguments)
    row = measure_scale(given.brokers, given.clients, given.publications, check=not given.unchecked)
    results = {"profile": "one", "machine": machine(), "seconds": row["seconds"], "scale": [row]}
    show(results, routing_tables(results))


if __name__ == "__main__":
    main(sys.argv[1:])
