"""`stentor explain`: what an error or a setting means."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from stentor.cli import completing
from stentor.cli.command import Argument
from stentor.cli.json_forms import print_json
from stentor.cli.options import JsonOption


def explain(
    what: Annotated[
        str | None,
        Argument(
            metavar="[CODE|KEY|errors|settings]",
            help="An error such as STN-606, or a setting such as limits.queue. Without it, "
            "all codes are listed.",
            show_default=False,
            complete=completing.codes,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Explain an error and what to do, or a setting.

    `errors` and `settings` print all of them, in Markdown.

    \b
    Examples:
      stentor explain STN-606
      stentor explain limits.queue
      stentor explain settings
    """
    if json:
        print_json(_data(what))
    else:
        sys.stdout.write(_answer(what) + "\n")


def _data(what: str | None) -> Any:
    """The same as plain data."""
    from dataclasses import asdict

    from stentor.broker.config_keys import broker_keys, value_form
    from stentor.cli.explanations import explanations

    errors = {code: asdict(each) for code, each in explanations().items()}
    settings = {
        key.dotted: {
            "key": key.dotted,
            "option": key.flag,
            "variable": key.variable,
            "value": value_form(key),
            "default": key.shown_default,
            "meaning": key.about.text,
        }
        for key in broker_keys()
    }
    if what in (None, "errors"):
        return list(errors.values())
    if what == "settings":
        return list(settings.values())
    _answer(what)  # raises if there is nothing of that name
    code = what.upper() if what.upper().startswith("STN-") else f"STN-{what}"
    named = (each for each in settings.values() if what in each.values())
    return errors.get(code) or next(named, None) or settings[what.replace("-", ".", 1)]


def _answer(what: str | None) -> str:
    from stentor.broker.config_keys import broker_keys, reference
    from stentor.cli.explanations import explanations, page

    if what is None:
        known = explanations().values()
        return "\n".join(f"{each.code}  {each.name}" for each in known)
    if what == "errors":
        return page().rstrip("\n")
    if what == "settings":
        return reference().rstrip("\n")
    code = what.upper()
    found = explanations().get(code if code.startswith("STN-") else f"STN-{code}")
    if found is not None:
        return _error_text(found)
    for key in broker_keys():
        if what in (key.dotted, key.flag.removeprefix("--"), key.variable):
            return _setting_text(key)
    return _unknown(what)


def _error_text(explanation: object) -> str:
    import textwrap

    from stentor.cli.explanations import Explanation

    assert isinstance(explanation, Explanation)
    lines = [f"{explanation.code} {explanation.name}", ""]
    lines += [_plain(textwrap.fill(explanation.meaning, 88)), "", "What to do:"]
    for step in explanation.steps:
        lines.append(
            _plain(
                textwrap.fill(
                    step,
                    88,
                    initial_indent="  - ",
                    subsequent_indent="    ",
                    break_on_hyphens=False,
                )
            )
        )
    return "\n".join(lines)


def _plain(text: str) -> str:
    return text.replace("`", "")


def _setting_text(key: object) -> str:
    from stentor.broker.config_keys import Key, value_form

    assert isinstance(key, Key)
    rows = [
        ("key", key.dotted),
        ("option", key.flag),
        ("variable", key.variable),
        ("value", value_form(key)),
        ("default", key.shown_default or "none"),
    ]
    lines = [key.about.text, "", *(f"  {name:<9} {value}" for name, value in rows)]
    return "\n".join(lines)


def _unknown(what: str) -> str:
    from stentor.broker.config_keys import broker_keys
    from stentor.cli.explanations import explanations
    from stentor.errors import InvalidConfiguration
    from stentor.notation.document import near

    known = [*explanations(), *(key.dotted for key in broker_keys())]
    raise InvalidConfiguration(
        f"there is no error and no setting {what!r}{near(what, known)} "
        "`stentor explain` lists the errors, `stentor explain settings` the settings"
    )
