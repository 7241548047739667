"""The broker's storage: its journal, and the tools to check and repair one."""

from stentor.broker.storage.batch import Batch
from stentor.broker.storage.journal import Committed, Journal
from stentor.broker.storage.moving import copy_journal, set_aside
from stentor.broker.storage.repairing import Report, check, repair

__all__ = [
    "Batch",
    "Committed",
    "Journal",
    "Report",
    "check",
    "copy_journal",
    "repair",
    "set_aside",
]
