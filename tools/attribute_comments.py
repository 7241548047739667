"""For griffe, which reads docstrings for the site: what stands above an attribute, behind `#:`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import griffe


class AttributeComments(griffe.Extension):
    """Gives attributes without a docstring the comment above them."""

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **rest: Any
    ) -> None:
        if attr.docstring is not None or attr.lineno is None:
            return
        assert isinstance(attr.filepath, Path)
        found: list[str] = []
        for line in reversed(attr.lines_collection[attr.filepath][: attr.lineno - 1]):
            if not line.strip().startswith("#:"):
                break
            found.insert(0, line.strip().removeprefix("#:").strip())
        if found:
            attr.docstring = griffe.Docstring("\n".join(found), parent=attr)
