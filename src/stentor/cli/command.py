"""Commands as functions: each parameter says beside its type how it is written on the command line.

    def publish(rate: Annotated[float | None, Option("--rate", metavar="N", min=0.001)] = None): ...

`command` makes one of click's commands of such a function. What click has to be told twice follows
from the type: a `bool` is a flag, a list is given several times, `X | None` may be left out, an
enumeration is a choice of its values. Groups load a command's module when that command is asked
for, so that publishing one event does not pay for everything else.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import click

_CONTEXT: Final[dict[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}
_TYPES: Final[Mapping[type, click.ParamType[Any]]] = {
    str: click.STRING,
    int: click.INT,
    float: click.FLOAT,
    Path: click.Path(path_type=Path),
}


#: Words that may stand in the place of a parameter, by what was given for the others.
Completion: TypeAlias = Callable[[dict[str, Any]], list[str]]


def _completer(words: Completion | None) -> Any:
    """What click asks when a shell wants to know how a word goes on."""
    if words is None:
        return None

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        return [word for word in words(context.params) if word.startswith(begun)]

    return complete


class _Whole(click.IntRange):
    """Click would say of a word that it is "not a valid integer range"."""

    name = "whole number"


class _Number(click.FloatRange):
    name = "number"


class Option:
    """How an option is written: its names, then what help says of it."""

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str | None = None,
        envvar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        show_default: bool = True,
        hidden: bool = False,
        complete: Completion | None = None,
    ) -> None:
        self.names = names
        self.bounds = (min, max)
        self.words: dict[str, Any] = {
            "help": help,
            "metavar": metavar or None,
            "envvar": envvar,
            "show_envvar": envvar is not None,
            "show_default": show_default,
            "hidden": hidden,
            "shell_complete": _completer(complete),
        }

    def parameter(self, of: inspect.Parameter, form: _Form) -> click.Parameter:
        names = [*self.names, of.name]
        if form.type is bool:
            # Without a word for the opposite, there is nothing to say of the default.
            shown = self.words["show_default"] and "/" in self.names[0]
            return click.Option(
                names, is_flag=True, default=of.default, **self.words | {"show_default": shown}
            )
        return click.Option(
            names,
            type=form.click_type(*self.bounds),
            multiple=form.several,
            **_default(of) | self.words,
        )


class Argument:
    """How an argument is written: its place is its name.

    One may be `omitted`, and this is its value then, even the first although others follow: it
    stands there if all the others do, or if `told_by` says so of what is in its place.
    """

    def __init__(
        self,
        *,
        help: str = "",
        metavar: str | None = None,
        show_default: bool = True,
        omitted: str | None = None,
        told_by: Callable[[str], bool] = lambda text: True,
        complete: Completion | None = None,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.show_default = show_default
        self.omitted = omitted
        self.told_by = told_by
        self.complete = complete

    def parameter(self, of: inspect.Parameter, form: _Form) -> click.Parameter:
        return _Argument(
            [of.name],
            type=form.click_type(),
            nargs=-1 if form.several else 1,
            metavar=self.metavar or of.name.upper(),
            about=self,
            shell_complete=_completer(self.complete),
            **_default(of),
        )


def _default(of: inspect.Parameter) -> dict[str, Any]:
    """What click is told of a parameter's default, or that it has to be given."""
    if of.default is of.empty:
        return {"required": True}
    default = of.default.value if isinstance(of.default, StrEnum) else of.default
    return {"required": False, "default": default}


class _Argument(click.Argument):
    """An argument that help has a line for, which click leaves out."""

    def __init__(self, *given: Any, about: Argument, **more: Any) -> None:
        super().__init__(*given, **more)
        self.about = about

    def has_default(self) -> None:
        """It comes after others, so it is simply left out."""
        if self.about.omitted is not None:
            self.required, self.default = False, self.about.omitted

    def get_help_record(self, context: click.Context) -> tuple[str, str]:
        notes = ""
        if self.required and self.about.omitted is None:
            notes = "  [required]"
        elif self.about.show_default and self.default is not None:
            notes = f"  [default: {self.default}]"
        return self.make_metavar(context), self.about.help + notes


@dataclass(frozen=True)
class _Form:
    """What a parameter's type says: of what type one value is, and whether there may be several."""

    type: Any
    several: bool

    @classmethod
    def of(cls, annotation: Any) -> _Form:
        if get_origin(annotation) in (Union, types.UnionType):
            (annotation,) = (each for each in get_args(annotation) if each is not type(None))
        if get_origin(annotation) is list:
            return cls(get_args(annotation)[0], several=True)
        return cls(annotation, several=False)

    def click_type(
        self, least: float | None = None, most: float | None = None
    ) -> click.ParamType[Any]:
        if issubclass(self.type, StrEnum):
            return click.Choice([each.value for each in self.type])
        if least is not None or most is not None:
            kind: Any = _Whole if self.type is int else _Number
            return kind(least, most)  # type: ignore[no-any-return]
        return _TYPES[self.type]

    def value(self, given: Any) -> Any:
        """What the function is given for what click has read."""
        if self.several:
            return list(given)
        if given is not None and issubclass(self.type, StrEnum):
            return self.type(given)
        return given


def command(function: Callable[..., Any], name: str | None = None) -> click.Command:
    """A command that calls the function.

    >>> def greet(name: Annotated[str, Argument()], to: Annotated[list[str], Option("--to")] = []):
    ...     print(name, to)
    >>> command(greet).main(["you", "--to", "a", "--to", "b"], standalone_mode=False)
    you ['a', 'b']
    """
    forms: dict[str, _Form] = {}
    parameters: list[click.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        assert get_origin(parameter.annotation) is Annotated, parameter
        kind, written = get_args(parameter.annotation)
        form = forms[parameter.name] = _Form.of(kind)
        made = written.parameter(parameter, form)
        if isinstance(made, _Argument) and any(isinstance(each, _Argument) for each in parameters):
            made.has_default()
        parameters.append(made)

    def call(**given: Any) -> Any:
        return function(**{each: forms[each].value(value) for each, value in given.items()})

    return _Command(
        (name or function.__name__).replace("_", "-"),
        callback=call,
        params=parameters,
        help=inspect.getdoc(function),
        context_settings=_CONTEXT,
    )


class _Command(click.Command):
    """Help names arguments before options, under headings of their own."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        match [each for each in self.params if isinstance(each, _Argument)]:
            case [first, *others] if first.about.omitted is not None:
                found, _, _ = self.make_parser(context).parse_args(list(args))
                given = found.get(first.name)
                whole = bool(others) and isinstance(found.get(others[-1].name), str)
                if not isinstance(given, str) or (
                    others and not whole and not first.about.told_by(given)
                ):
                    args = [first.about.omitted, *args]
        return super().parse_args(context, args)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        records = [
            each.get_help_record(context)
            for each in self.get_params(context)
            if isinstance(each, _Argument)
        ]
        if records:
            with formatter.section("Arguments"):
                formatter.write_dl(records)
        super().format_options(context, formatter)


class Group(click.Group):
    """Commands by name, each loaded from `module:function` when it is asked for."""

    def __init__(self, name: str, help: str, places: Mapping[str, str], **more: Any) -> None:
        super().__init__(name, help=help, no_args_is_help=True, context_settings=_CONTEXT, **more)
        self._places = places

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self._places)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self._places or name.startswith("-") or context.resilient_parsing:
            return super().resolve_command(context, args)
        from difflib import get_close_matches

        # Click looks among commands that are loaded, and none is.
        near = get_close_matches(name, self._places, 1)
        advice = f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(self._places)}."
        raise click.UsageError(f"No such command {name!r}. {advice}", context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self._places:
            return None
        module, _, place = self._places[name].partition(":")
        found = getattr(import_module(module), place)
        return found if isinstance(found, click.Command) else command(found, name)
