"""The broker's storage: its journal, and the tools to check and repair one."""

from stentor.broker.storage.batch import JournalBatch
from stentor.broker.storage.journal import Committed, Journal
from stentor.broker.storage.moving import (
    Moved,
    confirmed,
    copy_journal,
    hand_over,
    set_aside,
)
from stentor.broker.storage.repairing import JournalReport, check, repair

__all__ = [
    "Committed",
    "Journal",
    "JournalBatch",
    "JournalReport",
    "Moved",
    "check",
    "confirmed",
    "copy_journal",
    "hand_over",
    "repair",
    "set_aside",
]
