"""`stentor scopes`: scope graphs in files, checked, drawn and formatted without a broker.

What has to do with brokers that run is in `stentor.cli.scopes_live`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from click.exceptions import BadParameter, Exit

from stentor.cli.command import Argument, Group, Option
from stentor.cli.exits import FAILURE, fail, warn
from stentor.cli.options import JsonOption
from stentor.notation.counts import counted

if TYPE_CHECKING:
    from stentor.scopes.language import Deployment

scopes = Group(
    "scopes",
    "Check, draw, format, deploy and change scope graphs.",
    {
        "check": "stentor.cli.scopes:check",
        "deploy": "stentor.cli.scopes_live:deploy",
        "show": "stentor.cli.scopes_live:show",
        "join": "stentor.cli.scopes_live:join",
        "leave": "stentor.cli.scopes_live:leave",
        "alter": "stentor.cli.scopes_live:alter",
        "format": "stentor.cli.scopes:format",
    },
)

_Files: TypeAlias = Annotated[
    list[Path],
    Argument(metavar="FILE...", help="Scope graphs; - is standard input.", show_default=False),
]


def check(
    files: _Files,
    svg: Annotated[
        Path | None,
        Option("--svg", metavar="FILE", help="Write a picture of the graph.", show_default=False),
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Check, and draw nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Check scope graphs without a network, and draw them.

    Mistakes are reported with their place, and nothing is drawn. What may be meant differently is a
    warning. Several files make one graph, in the order given.

    \b
    Examples:
      stentor scopes check market.scopes
      stentor scopes check --svg market.svg market.scopes
    """
    from stentor.scopes.drawing import draw
    from stentor.scopes.language import Deployment, compose
    from stentor.scopes.language.checks import findings, warnings

    deployment = Deployment(assume=True)
    notes: list[tuple[str, str]] = []
    for file in files:
        found = compose(str(file), text_of(str(file)), text_of)
        found.deploy(deployment)
        notes += [*found.notes, *warnings(found)]
    notes += [("", words) for words in findings(deployment)]
    if json:
        from stentor.cli.json_forms import print_json

        print_json(_described(deployment) | {"warnings": [_warning(*each) for each in notes]})
    elif not quiet:
        drawn = draw(deployment.graph)
        sys.stdout.write((drawn + "\n\n" if drawn else "") + _summary(deployment))
    for place, words in notes:
        warn(words, place=place)
    if svg is not None:
        from stentor.scopes.picture import svg as picture

        try:
            svg.write_text(picture(deployment.graph), "utf-8")
        except OSError as error:
            raise BadParameter(f"--svg {svg}: {error}") from None


def format(
    files: _Files,
    write: Annotated[bool, Option("--write", "-w", help="Change the files.")] = False,
    unchanged: Annotated[
        bool, Option("--check", help="Fail if a file is not formatted, and change nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print scope graphs in their canonical form, comments kept.

    Each comment stays with its clause.

    \b
    Examples:
      stentor scopes format market.scopes
      stentor scopes format --write *.scopes
    """
    from stentor.scopes.language import format_script, parse

    stale = []
    found = []
    for file in files:
        text = text_of(str(file))
        formatted = format_script(parse(text, file=str(file)))
        if formatted != text:
            stale.append(str(file))
        found.append({"file": file, "formatted": formatted == text, "text": formatted})
        if write and str(file) != "-":
            if formatted != text:
                file.write_text(formatted, "utf-8")
        elif not unchanged and not json:
            sys.stdout.write(formatted)
    if json:
        from stentor.cli.json_forms import print_json

        print_json(found)
    if unchanged and stale:
        for name in stale:
            fail(f"{name} is not formatted; run stentor scopes format --write {name}")
        raise Exit(FAILURE)


def text_of(name: str) -> str:
    """What a file says; - is standard input."""
    if name == "-":
        return sys.stdin.read()
    from stentor.scopes.language.composition import read_text

    return read_text(name)


def _described(deployment: Deployment) -> dict[str, Any]:
    """The graph that files make, as `stentor scopes show --json` has that of brokers."""
    nodes = sorted(deployment.graph.nodes.items())
    return {
        "scopes": [{"scope": id, "in": sorted(n.parents)} for id, n in nodes if n.is_scope],
        "components": [
            {"component": id, "in": sorted(n.parents)} for id, n in nodes if not n.is_scope
        ],
        "definitions": sorted(deployment.definitions),
    }


def _warning(place: str, words: str) -> dict[str, str | None]:
    return {"place": place or None, "message": words}


def _summary(deployment: Deployment) -> str:
    nodes = deployment.graph.nodes.values()
    scopes = sum(node.is_scope for node in nodes)
    words = [
        counted(scopes, "scope"),
        counted(len(nodes) - scopes, "component"),
        counted(len(deployment.definitions), "definition"),
    ]
    return ", ".join(words) + "\n"
