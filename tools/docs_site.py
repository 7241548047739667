"""Builds the documentation as a site: `./dev docs site` writes it to build/site.

The pages under docs/ are written for a repository, where links go from file to file. They are
copied to build/pages as they are, and beside them pages that are made here: the README as the
front page, every command with its help, and the public names with their docstrings, which
mkdocstrings reads. What is wrong with a link, or with a name, is an error.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import click

import stentor
from stentor.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"

#: The packages whose public names are described, and what they are for.
REFERENCE = {
    "stentor": "The client library, filters and notifications.",
    "stentor.broker": "A broker inside a program.",
    "stentor.matching": "Which of very many filters match.",
    "stentor.simulation": "Whole networks in one process.",
    "stentor.semantics": "The formal model, as an oracle.",
    "stentor.testing": "Brokers for tests.",
    "stentor.composite": "Composite events: patterns, detectors and their policies.",
    "stentor.scopes": "Scope graphs, asked without a network.",
    "stentor.pipeline": "Events, filters and archives on Spark.",
    "stentor.errors": "Every error.",
}
HOW_TO = [
    {"Use the client library": "client.md"},
    {"Write filters": "language.md"},
    {"Bring channels, subjects and types": "addressing.md"},
    {"Register types and operators": "extending.md"},
    {"Draw scopes": "scopes.md"},
    {"Detect composite events": "composite.md"},
    {"Test services": "testing.md"},
    {"Rely on durability": "durability.md"},
    {"Operate brokers": "operation.md"},
    {"Deploy brokers": "deploy.md"},
    {"Use the data pipeline": "pipeline.md"},
    {"Run it on clusters": "clusters.md"},
    {"Choose a routing strategy": "routing.md"},
]
NAVIGATION = [
    {"Home": "index.md"},
    {"Tutorial": "tutorial.md"},
    {"How to": HOW_TO},
    {
        "Reference": [
            {"Commands": "reference/commands.md"},
            *({name: f"reference/{name}.md"} for name in REFERENCE),
            {"Errors": "errors.md"},
            {"Protocol": "protocol.md"},
        ]
    },
    {
        "Background": [
            {"Architecture": "architecture.md"},
            {"Benchmarks": "benchmarks.md"},
            {"Conformance": "conformance.md"},
            {"Changes": "changelog.md"},
            {"Contributing": "contributing.md"},
        ]
    },
]
#: Files outside of docs/ that are pages, and what they are called there.
OTHERS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "deploy/README.md": "deploy.md",
}


def stage() -> None:
    """Put all pages where the site is made of."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    shutil.copyfile(ROOT / "LICENSE", PAGES / "LICENSE")
    for source, name in OTHERS.items():
        text = (ROOT / source).read_text("utf-8")
        for other, target in OTHERS.items():
            text = text.replace(f"]({other})", f"]({target})")
        (PAGES / name).write_text(re.sub(r"\]\(docs/", "](", text), "utf-8")
    guides = {"tutorial.md", *(name for page in HOW_TO for name in page.values())}
    for page in PAGES.glob("*.md"):
        text = page.read_text("utf-8")
        for other, target in OTHERS.items():
            text = text.replace(f"](../{other}", f"]({target}")
        text = plain_fences(text)
        if page.name == "conformance.md":  # a table of thousands of rows, which nobody searches
            text = f"---\nsearch:\n  exclude: true\n---\n{text}"
        elif page.name in guides:  # whoever searches wants to do something, most of all
            text = f"---\nsearch:\n  boost: 4\n---\n{text}"
        page.write_text(text, "utf-8")
    (PAGES / "wide.css").write_text(".md-grid { max-width: 72rem; }\n", "utf-8")
    reference = PAGES / "reference"
    reference.mkdir()
    (reference / "commands.md").write_text("\n".join(commands()), "utf-8")
    for module, about in REFERENCE.items():
        (reference / f"{module}.md").write_text("\n".join(described(module, about)), "utf-8")


def plain_fences(text: str) -> str:
    """The page without what its code blocks say to our tests, such as `no-run` after the language.

    Python-Markdown takes a line with more than one word for no beginning of a block, and its end
    for one.
    """
    return re.sub(r"^(```\w+) .*$", r"\1", text, flags=re.MULTILINE)


def described(module: str, about: str) -> Iterator[str]:
    """A page of the public names of a module."""
    found = import_module(module)
    yield f"# {module}\n\n{about}\n"
    public = sorted(getattr(found, "__all__", ()))
    if not public:
        yield f"::: {module}\n    options:\n      show_root_heading: false\n"
    for name in public:
        # Names are loaded when they are asked for, which nobody sees who only reads the source.
        value = getattr(found, name)
        if isinstance(value, type | FunctionType):
            place = f"{value.__module__}.{value.__qualname__}"
            yield f"::: {place}\n    options:\n      heading: {name}\n      toc_label: {name}"
            yield f"      members: {json.dumps(offered)}\n" if (offered := _offered(value)) else ""


def _offered(value: Any) -> list[str]:
    """What objects of a class list for completion; the rest is for other parts of Stentor."""
    return dir(object.__new__(value)) if "__dir__" in vars(value) else []


def commands() -> Iterator[str]:
    """A page of all commands, as their help shows them."""
    yield "# Commands\n\nWhat `stentor COMMAND --help` shows.\n"
    yield from _commands(app, ("stentor",))


def _commands(group: click.Group, path: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(group, info_name=" ".join(path))
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
            continue
        own = click.Context(command, info_name=" ".join((*path, name)), max_content_width=100)
        yield f"## {' '.join((*path, name))}\n\n```text\n{command.get_help(own)}\n```\n"


def configuration() -> dict[str, object]:
    """What mkdocs is told."""
    python = {
        "paths": [str(ROOT / "src")],
        "options": {
            "show_root_heading": True,
            "show_source": False,
            "heading_level": 2,
            "members_order": "source",
            "docstring_style": None,
            "inherited_members": True,
            "separate_signature": True,
            "show_signature_annotations": True,
            "extensions": [str(ROOT / "tools" / "docstrings.py")],
        },
    }
    return {
        "site_name": "Stentor",
        "site_description": "Every event reaches exactly the subscribers whose filters it matches.",
        "docs_dir": str(PAGES),
        "site_dir": str(SITE),
        "use_directory_urls": False,  # so that it can be read from a disk
        "theme": {
            "name": "material",
            "font": False,  # nothing is loaded from elsewhere
            "features": [
                "navigation.tabs",
                "navigation.top",
                "content.code.copy",
                "search.suggest",
            ],
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "primary": "indigo",
                    "toggle": {"icon": "material/weather-night", "name": "Dark"},
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "primary": "indigo",
                    "toggle": {"icon": "material/weather-sunny", "name": "Light"},
                },
            ],
        },
        "extra_css": ["wide.css"],
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": python}}}],
        "markdown_extensions": [
            "tables",
            "admonition",
            "pymdownx.highlight",
            "pymdownx.superfences",
            {"toc": {"permalink": True}},
        ],
        "nav": NAVIGATION,
        "not_in_nav": "/spec/\n/examples/\n",
        "validation": {"links": {"anchors": "warn", "not_found": "warn"}},
        "extra": {"version": stentor.__version__, "generator": False},
    }


def main() -> int:
    stage()
    written = PAGES.parent / "mkdocs.yml"
    written.write_text(json.dumps(configuration(), indent=2), "utf-8")  # JSON is YAML, too
    line = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(written)]
    done = subprocess.run(line, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    if done.returncode:
        return done.returncode
    pages = sum(1 for _ in SITE.rglob("*.html"))
    print(f"{pages} pages; to read them, with search: python3 -m http.server -d {SITE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
