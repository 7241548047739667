"""For griffe, which reads docstrings for the site: how ours say what Markdown and it do not know.

- Examples are sessions (`>>> f(1)`), which Markdown would take for quotations of quotations.
- An attribute is explained by the comment above it, behind `#:`.
- A setting is explained by what stands beside its type: `Annotated[int, About("…")]`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import griffe

_SESSION = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Puts them as griffe and Markdown expect them."""

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **rest: Any
    ) -> None:
        """Where there is no docstring, find what takes its place."""
        if attr.docstring is None and (found := _about(node, attr) or _comment(attr)):
            attr.docstring = griffe.Docstring(found, parent=attr)

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Fence examples."""
        if obj.docstring is not None:
            obj.docstring.value = _SESSION.sub(_fenced, obj.docstring.value)


def _fenced(session: re.Match[str]) -> str:
    return f"{session[1]}```pycon\n{session[0]}\n{session[1]}```"


def _comment(attr: griffe.Attribute) -> str:
    if attr.lineno is None:
        return ""
    assert isinstance(attr.filepath, Path)
    found: list[str] = []
    for line in reversed(attr.lines_collection[attr.filepath][: attr.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        found.insert(0, line.strip().removeprefix("#:").strip())
    return "\n".join(found)


def _about(node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute) -> str:
    match node:
        case ast.AnnAssign(
            annotation=ast.Subscript(
                value=ast.Name(id="Annotated"),
                slice=ast.Tuple(elts=[_, ast.Call(args=[ast.Constant(value=str(text)), *_])]),
            )
        ):
            match attr.annotation:
                case griffe.ExprSubscript(slice=griffe.ExprTuple(elements=[plain, *_])):
                    attr.annotation = plain
            return text
    return ""
