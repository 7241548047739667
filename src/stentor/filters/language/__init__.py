"""The subscription language: text to `Expression` and back.

The grammar is in `grammar.lark`; `docs/language.md` describes the language for its users.
"""

from stentor.filters.language.parser import parse, reading_steps
from stentor.filters.language.printer import (
    format_atom,
    format_expression,
    format_literal,
    format_name,
    format_term,
)

__all__ = [
    "format_atom",
    "format_expression",
    "format_literal",
    "format_name",
    "format_term",
    "parse",
    "reading_steps",
]
