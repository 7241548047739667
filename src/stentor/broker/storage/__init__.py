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
from stentor.broker.storage.outdated import (
    Ends,
    Outdated,
    declare_outdated,
    outdated,
    set_aside_outdated,
)
from stentor.broker.storage.repairing import JournalReport, check, repair

__all__ = [
    "Committed",
    "Ends",
    "Journal",
    "JournalBatch",
    "JournalReport",
    "Moved",
    "Outdated",
    "check",
    "confirmed",
    "copy_journal",
    "declare_outdated",
    "hand_over",
    "outdated",
    "repair",
    "set_aside",
    "set_aside_outdated",
]
