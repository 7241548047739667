"""The event model: values, notifications, their identity, their types, and their bytes.

The registry that notifications consult is `stentor.model.event_types.event_types`.
"""

from stentor.model.codec import (
    MAX_HEADER_BYTES,
    Envelope,
    any_handled,
    decode,
    decode_header,
    decode_headers,
    decode_many,
    encode,
    encode_batch,
)
from stentor.model.event_types import EventType, EventTypes
from stentor.model.identity import IdSource, NotificationId
from stentor.model.names import (
    MAX_ATTRIBUTES,
    MAX_DEPTH,
    MAX_NAME_BYTES,
    MAX_SUBJECT_BYTES,
)
from stentor.model.notification import (
    MAX_ELEMENTS,
    MAX_PAYLOAD_BYTES,
    MAX_VALUE_BYTES,
    Notification,
)
from stentor.model.null import NULL
from stentor.model.seen import SeenIds
from stentor.model.values import (
    COLLECTION,
    INT_MAX,
    INT_MIN,
    ValueType,
    normal,
    register_value_type,
    value_type,
    value_type_names,
    value_type_of,
)

__all__ = [
    "COLLECTION",
    "INT_MAX",
    "INT_MIN",
    "MAX_ATTRIBUTES",
    "MAX_DEPTH",
    "MAX_ELEMENTS",
    "MAX_HEADER_BYTES",
    "MAX_NAME_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MAX_SUBJECT_BYTES",
    "MAX_VALUE_BYTES",
    "NULL",
    "Envelope",
    "EventType",
    "EventTypes",
    "IdSource",
    "Notification",
    "NotificationId",
    "SeenIds",
    "ValueType",
    "any_handled",
    "decode",
    "decode_header",
    "decode_headers",
    "decode_many",
    "encode",
    "encode_batch",
    "normal",
    "register_value_type",
    "value_type",
    "value_type_names",
    "value_type_of",
]
