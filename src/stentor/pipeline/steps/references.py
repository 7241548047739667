"""Functions that are given by name, as a TOML file must."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from stentor.errors import PipelineDefinitionError


def find_function(name: str) -> Callable[..., Any]:
    """The function that "module:name" names, or `PipelineDefinitionError`.

    >>> find_function("math:sqrt")(4)
    2.0
    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise PipelineDefinitionError(f'{name!r} names no function; write "module:function"')
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise PipelineDefinitionError(f"{name!r} cannot be found: {error}") from error
    if not callable(found):
        raise PipelineDefinitionError(f"{name!r} is a {type(found).__name__}, not a function")
    return cast("Callable[..., Any]", found)
