"""How often, and after how long, what a subscriber could not deal with comes again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from stentor.errors import InvalidConfiguration
from stentor.notation.units import seconds_of
from stentor.protocol.messages import Settlement

#: How often a notification is given before it is a dead letter, unless it was said.
ATTEMPTS: Final = 5
#: Seconds after which what a member of a group has begun is given to another, unless it was said.
DEADLINE: Final = 300.0


@dataclass(frozen=True)
class Retry:
    """What happens to a notification that its subscriber refuses, or does not settle.

    attempts   how often it is given at most; None for as often as it takes
    backoff    the time until it comes again: at first, and at most; it doubles each time
    deadline   how long an application may have it before it counts as failed; None for five
               minutes in a group, and for ever otherwise
    overtake   whether later ones of the same publisher may come before it

    >>> Retry(attempts=5, backoff="1s..1m").terms(dead_letter=True).most
    60.0
    """

    attempts: int | None = None
    backoff: str | float | timedelta = "1s..1m"
    deadline: str | float | timedelta | None = None
    overtake: bool = False

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise InvalidConfiguration(
                f"attempts={self.attempts} would deliver nothing; give at least 1"
            )
        self.terms()

    def terms(
        self, *, dead_letter: bool = False, group: bool = False, ranked: bool = False
    ) -> Settlement:
        """The same in the words of the protocol."""
        least, most = self.backoff, self.backoff
        if isinstance(self.backoff, str) and ".." in self.backoff:
            least, _, most = self.backoff.partition("..")
        deadline = self.deadline
        if deadline is None:
            deadline = DEADLINE if group else 0.0
        attempts = self.attempts or (ATTEMPTS if dead_letter else 0)
        terms = Settlement(
            attempts=attempts,
            least=seconds_of(least, "backoff"),
            most=seconds_of(most, "backoff"),
            deadline=seconds_of(deadline, "deadline"),
            dead_letter=dead_letter,
            overtake=self.overtake,
            ranked=ranked,
        )
        if terms.least > terms.most:
            raise InvalidConfiguration(f"backoff={self.backoff!r} ends before it begins")
        return terms
