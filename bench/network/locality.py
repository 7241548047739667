"""What advertisements save as publishers are found in fewer places (01/B3).

The same stock quotes under covering, without advertisements and with covering ones, while the feeds
move together from all leaves of the tree to a single one.
"""

from __future__ import annotations

from typing import Any

from network.configurations import Configuration
from network.populations import LEAVES, stock_quotes
from network.profiles import Profile
from network.traffic import count_messages
from progress import progress


def measure_locality(profile: Profile) -> list[dict[str, Any]]:
    """One row for each number of leaves with feeds."""
    rows = []
    places = len(LEAVES)
    while places:
        progress(f"feeds at {places} of {len(LEAVES)} leaves")
        population = stock_quotes(profile.stock_filters, profile.publications, LEAVES[:places])
        rows.append(
            {
                "places": places,
                "leaves": len(LEAVES),
                "without": count_messages(population, Configuration("covering")),
                "with": count_messages(population, Configuration("covering", "covering")),
            }
        )
        places //= 2
    return rows
