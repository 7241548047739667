"""Everything a live broker decides, without input or output: `Service`."""

from stentor.node.service.service import Service

__all__ = ["Service"]
