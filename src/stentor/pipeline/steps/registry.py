"""Steps by name: what `[[step]]` in a pipeline can do, and with which options.

A step is a function from an event table to an event table, and a declaration of its options. The
runner knows steps from here alone, so a new one needs nothing but a call of `register_step`: from
this package, from a part of Stentor that is loaded later, or from a Python file that a pipeline
names.

    register_step("sample", "market.steps:sample",
                  {"share": Option("text", "how many, as 1/n", required=True)},
                  main="share", about="Keep some of the events.")

In the file, `sample = "1/10"` then stands for `sample = {share = "1/10"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, cast

from stentor.errors import PipelineDefinitionError
from stentor.pipeline.steps.options import KINDS, Option

#: Keys of `[[step]]` that are no steps.
RESERVED_KEYS: Final = ("name", "from")


def _nothing(options: Mapping[str, Any]) -> None:
    """The check of a step whose options are independent of each other."""


def _appends(options: Mapping[str, Any]) -> bool:
    return False


@dataclass(frozen=True)
class StepKind:
    """What a step is."""

    name: str
    #: Called with a DataFrame and the options; with a mapping of DataFrames if `many`.
    function: Callable[..., Any] | str
    options: Mapping[str, Option] = field(default_factory=dict)
    #: The option that is meant if the step is given just a value.
    main: str | None = None
    about: str = ""
    #: Whether it takes several tables: `from` is then a list.
    many: bool = False
    #: Raises `PipelineDefinitionError` if the options do not go together.
    check: Callable[[Mapping[str, Any]], None] = _nothing
    #: Whether, on a stream, rows replace earlier ones, so that the query's mode must be `update`.
    updates: Callable[[Mapping[str, Any]], bool] = _appends

    def call(self) -> Callable[..., Any]:
        """The function itself. Only now is its module loaded, and with it Spark."""
        return find_function(self.function) if isinstance(self.function, str) else self.function


_kinds: Final[dict[str, StepKind]] = {}


def register_step(
    name: str,
    function: Callable[..., Any] | str,
    options: Mapping[str, Option] | None = None,
    *,
    main: str | None = None,
    about: str = "",
    many: bool = False,
    check: Callable[[Mapping[str, Any]], None] = _nothing,
    updates: Callable[[Mapping[str, Any]], bool] = _appends,
) -> StepKind:
    """Make a step known under a name. To do the same again does no harm."""
    kind = StepKind(name, function, dict(options or {}), main, about, many, check, updates)
    if name in RESERVED_KEYS or not name.isidentifier():
        raise PipelineDefinitionError(f"a step cannot be named {name!r}")
    for key, option in kind.options.items():
        if option.kind not in KINDS:
            raise PipelineDefinitionError(
                f"option {key!r} of step {name!r}: there is no kind {option.kind!r}; "
                f"there are {', '.join(KINDS)}"
            )
    if main is not None and main not in kind.options:
        raise PipelineDefinitionError(f"step {name!r} has no option {main!r} to be its main one")
    known = _kinds.get(name)
    if known is not None and (known.function, known.options) != (kind.function, kind.options):
        raise PipelineDefinitionError(f"there is another step {name!r} already")
    _kinds[name] = kind
    return kind


def steps() -> dict[str, StepKind]:
    """All steps that are known, by name."""
    import_module("stentor.pipeline.steps.catalog")
    return dict(sorted(_kinds.items()))


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
