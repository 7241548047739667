"""Telling an application of filters that are surely, or probably, not what was meant."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from stentor.client.requests import CORRELATION, IN_REPLY_TO, REPLY_TO
from stentor.client.typed import event_type_of, field_names, filter_of, is_event_class
from stentor.errors import FilterWarning, NeverMatches

if TYPE_CHECKING:
    from stentor.filters import Filter

#: Where the frames of this package come from.
_PACKAGE: Final = str(Path(__file__).parent.parent)


def told(filter: str | Filter | type[Any], where: str | Filter | None, strict: bool) -> Filter:
    """The filter that was given; whoever gave it is told if nothing can match it.

    Also if it reads otherwise than it was probably meant. `NeverMatches` if it is to be `strict`.
    """
    from stentor.filters.advice import Advice, advice, unknown_fields

    wanted = filter_of(filter, where)
    texts = [each for each in (filter, where) if isinstance(each, str)]
    found = [each for text in texts for each in advice(text)]
    if wanted.is_never and not any(each.never for each in found) and filter != "false":
        found.append(Advice("nothing can match this filter", never=True))
    if is_event_class(filter) and where is not None:
        narrowing = filter_of(where)
        fields = {*field_names(filter), REPLY_TO, IN_REPLY_TO, CORRELATION}
        found += unknown_fields(narrowing, event_type_of(filter), fields)
    for each in found:
        if strict and each.never:
            raise NeverMatches(each.text)
        warnings.warn(each.text, FilterWarning, stacklevel=application()[1])
    return wanted


def application() -> tuple[FrameType, int]:
    """The frame of the application, and how many frames above the caller of this it is."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    return frame, depth
