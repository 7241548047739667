"""Everything a live broker decides, without input or output: `Service`."""

from stentor.node.service.base import FILTERS_AT_ONCE
from stentor.node.service.service import Service

__all__ = ["FILTERS_AT_ONCE", "Service"]
