"""What filters refer to by name: registered operators and declared event types.

Filters are parsed, and events typed, in processes that have never run the user's program. So what
the program has registered travels with the filters and is registered again where they arrive.
An operator whose functions cannot be sent, or not be read because their module is missing there,
is left out: filters that use it are refused by name, and all others work.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stentor.filters import register_operator
from stentor.filters.custom import registered
from stentor.model.event_types import event_types

_log: Final = logging.getLogger("stentor.pipeline")


@dataclass(frozen=True)
class Vocabulary:
    """A picture of both registries, as bytes."""

    operators: bytes
    types: bytes

    @classmethod
    def of_this_process(cls) -> Vocabulary:
        """Everything that is registered by now."""
        operators = list(_operators())
        types = sorted(
            (d.name, sorted(d.parents), sorted(d.attributes.items()), d.abstract)
            for d in event_types.declarations()
        )
        return cls(
            operators=pickle.dumps(operators) if operators else b"",
            types=pickle.dumps(types) if types else b"",
        )

    def install(self) -> None:
        """Register all of it here, too. Doing so again changes nothing."""
        if self.operators:
            for operator in pickle.loads(self.operators):
                try:
                    found = pickle.loads(operator)
                except Exception as error:  # anything may happen in the user's modules
                    _log.warning("an operator of the program is not known here: %s", error)
                    continue
                register_operator(found)
        if self.types:
            for name, parents, attributes, abstract in pickle.loads(self.types):
                event_types.declare(name, parents, dict(attributes), abstract)


def _operators() -> Iterator[bytes]:
    if not registered:
        return
    from pyspark import cloudpickle  # the user's functions need not be importable elsewhere

    for name, operator in sorted(registered.items()):
        try:
            yield cloudpickle.dumps(operator)  # type: ignore[no-untyped-call]
        except Exception as error:  # anything may happen in the user's classes
            _log.warning("the operator %r cannot be sent to workers: %s", name, error)
            continue
