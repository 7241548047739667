"""The plan for up to millions of filters: the production index inside an Arrow function.

The index is compiled once, on the driver, and broadcast (see `broadcasts`). The function takes only
the columns that filters look at and returns a list of ids for each row; the list is exploded in the
JVM, where all other columns of the events have stayed. `explain()` shows the function as
`stentor_match_index`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.pipeline.matching.broadcasts import lifetime, shipped
from stentor.pipeline.matching.filter_columns import flat, inputs
from stentor.pipeline.matching.packed_index import Packed
from stentor.pipeline.matching.subscriptions import Subscriptions
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.matching.worker import Part, matched
from stentor.pipeline.spark_features import arrow_function

#: Sets of filters that the driver remembers: who calls `match` for every micro-batch with the same
#: subscriptions has them parsed and compiled once. What is forgotten is not destroyed: a query may
#: be running by it, and Spark cleans up when nothing refers to it any more.
REMEMBERED: Final = 4

_made: OrderedDict[tuple[str, str], tuple[Part, frozenset[str]]] = OrderedDict()
#: Queries call from threads of their own.
_making: Final = Lock()


def match_indexed(events: DataFrame, subscriptions: Subscriptions, id: str) -> DataFrame:
    """Match by an index that every worker has."""
    part, looked_at = part_of(events.sparkSession, subscriptions)
    chosen = inputs(events.schema, looked_at)
    names, columns = flat(chosen)

    def stentor_match_index(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return matched(part, names, batches)

    function = arrow_function(stentor_match_index, T.ArrayType(subscriptions.id_type, False))
    found = function(*(columns or [F.lit(True)]))
    return events.select(F.explode(found).alias(id), "*")


def part_of(spark: SparkSession, subscriptions: Subscriptions) -> tuple[Part, frozenset[str]]:
    """The filters as the workers will find them, and the attributes that they look at."""
    vocabulary = Vocabulary.of_this_process()
    session = lifetime(spark)
    key = session, _digest(subscriptions, vocabulary)
    with _making:
        for known in [known for known in _made if known[0] != session]:
            del _made[known]  # of a session that has ended
        if key in _made:
            _made.move_to_end(key)
            return _made[key]
    # Without the lock, so that nobody waits for filters of others.
    filters = subscriptions.parsed()
    packed = Packed.of(subscriptions.ids, filters, vocabulary)
    names = frozenset().union(*{filter_.names for filter_ in filters})
    found = Part(key[1], shipped(spark, packed)), names
    with _making:
        found = _made.setdefault(key, found)  # the first that was made, if there are two by now
        _made.move_to_end(key)
        while len(_made) > REMEMBERED:
            _made.popitem(last=False)
    return found


def _digest(subscriptions: Subscriptions, vocabulary: Vocabulary) -> str:
    digest = hashlib.sha256()
    for part in (vocabulary.operators, vocabulary.types, *subscriptions.as_bytes()):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
