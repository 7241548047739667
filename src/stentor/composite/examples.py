"""Patterns that people recognize, ready to be used or copied."""

from __future__ import annotations

from typing import Final

from stentor.composite.pattern import Pattern

#: Three failed logins of one account within a minute, and no success in the minute after.
BRUTE_FORCE: Final = Pattern(
    "(F{3} within 1m) not followed by S within 1m partition by account",
    events={"F": "type = 'login_failed'", "S": "type = 'login'"},
    name="brute_force",
)
#: A price ten percent higher than one before, confirmed by volume.
PRICE_SPIKE: Final = Pattern(
    "(A ; B ; V) within 5m where B.price > A.price * 1.1 and V.volume > 10000 partition by symbol",
    events={"A": "type = 'quote'", "B": "type = 'quote'", "V": "type = 'volume'"},
    name="price_spike",
)
#: A busy processor, then a disk that is almost full.
FAILING_MACHINE: Final = Pattern(
    "(A ; B) within 10s partition by host",
    events={"A": "type = 'cpu' and load > 0.9", "B": "type = 'disk' and free < 0.05"},
    name="failing_machine",
)
#: Active Office: three different people of one department in one room.
MEETING: Final = Pattern(
    "(P{3} distinct by person) within 30m partition by room",
    events={"P": "type = 'entered' and department = 'messaging'"},
    name="meeting",
)
#: Network monitoring: five workstations in different parts of the network lose bandwidth.
NETWORK_FAULT: Final = Pattern(
    "(W{5} distinct by segment) within 1m",
    events={"W": "type = 'bandwidth' and loss > 0.5"},
    name="network_fault",
)
#: An alarm that nobody acknowledges goes on to the next station (R-01.74).
ESCALATION: Final = Pattern(
    "A not followed by K within 5m partition by alarm",
    events={"A": "type = 'alarm'", "K": "type = 'acknowledged'"},
    name="escalation",
)

EXAMPLES: Final = (
    BRUTE_FORCE,
    PRICE_SPIKE,
    FAILING_MACHINE,
    MEETING,
    NETWORK_FAULT,
    ESCALATION,
)
