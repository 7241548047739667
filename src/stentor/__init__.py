"""Stentor delivers every event to exactly those who asked for it, by what the event says.

>>> from stentor import Filter, Notification
>>> f = Filter("symbol = 'IBM' and price > 100")
>>> f.matches(Notification({"symbol": "IBM", "price": 120.5}))
True
"""

from stentor.errors import StentorError
from stentor.filters import Filter, merge_all
from stentor.model import Notification

__all__ = ["Filter", "Notification", "StentorError", "merge_all"]
__version__ = "0.1.0"
