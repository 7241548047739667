"""Teaching Spark's readers about event tables, because Spark gives data sources no way to.

A user who writes `.schema("symbol string, price double")` names attributes. The table has more
columns: `_id`, `_type`, `_time` and so on. Spark passes a schema that was given to the source as it
is, and takes nothing else for an answer. And what the program has declared of event types is known
in the driver only, while Spark asks sources for a schema in another process, from where an error
comes back wrapped in two languages.

So `load` of both readers is wrapped: for the format "stentor", and for no other, it completes the
schema, passes on what is declared of the option `eventType`, and says at once what is wrong with
schema and options. To know these, it notes what was given to `format`, `schema` and `option`.
"""

from __future__ import annotations

import json
from functools import wraps
from typing import Any, Final

from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType, _parse_datatype_string
from pyspark.sql.utils import to_str

from stentor.model.event_types import event_types
from stentor.pipeline.columns import Layout, with_reserved
from stentor.pipeline.source.options import DECLARED, reading

_FORMAT: Final = "stentor"
_MARK: Final = "_stentor_taught"


def teach_readers() -> None:
    """Once is enough; more does no harm."""
    for reader in (DataFrameReader, DataStreamReader):
        if not hasattr(reader, _MARK):
            setattr(reader, _MARK, True)
            _teach(reader)


def _teach(reader: Any) -> None:
    given_format, given_schema = reader.format, reader.schema
    given_option, given_options, given_load = reader.option, reader.options, reader.load

    @wraps(given_format)
    def format(self: Any, source: str) -> Any:
        self._stentor_format = source
        return given_format(self, source)

    @wraps(given_schema)
    def schema(self: Any, schema: StructType | str) -> Any:
        self._stentor_schema = schema
        return given_schema(self, schema)

    @wraps(given_option)
    def option(self: Any, key: str, value: Any) -> Any:
        _note(self, {key: value})
        return given_option(self, key, value)

    @wraps(given_options)
    def options(self: Any, **options: Any) -> Any:
        _note(self, options)
        return given_options(self, **options)

    @wraps(given_load)
    def load(
        self: Any,
        path: Any = None,
        format: str | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> Any:
        if format is not None:
            self.format(format)
        if schema is not None:
            self.schema(schema)
        self.options(**options)
        if str(getattr(self, "_stentor_format", "")).lower() == _FORMAT:
            given = getattr(self, "_stentor_options", {})
            if path is not None:
                given = given | {"path": str(path)}
            found = reading(given, streaming=isinstance(self, DataStreamReader))
            wanted = getattr(self, "_stentor_schema", None)
            if wanted is not None:
                given_schema(self, _complete(wanted))
            if found.event_type is not None:
                declared = event_types.attributes(found.event_type)
                given_option(self, DECLARED, json.dumps(declared))
        return given_load(self, path)

    reader.format, reader.schema = format, schema
    reader.option, reader.options, reader.load = option, options, load


def _note(reader: Any, options: dict[str, Any]) -> None:
    noted = {key: to_str(value) for key, value in options.items() if value is not None}
    reader._stentor_options = getattr(reader, "_stentor_options", {}) | noted


def _complete(schema: StructType | str) -> StructType:
    found = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    assert isinstance(found, StructType)
    complete = with_reserved(found)
    Layout(complete)  # what no event can have is refused
    return complete
