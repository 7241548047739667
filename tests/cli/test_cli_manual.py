"""What the operator's manual shows is true."""

import asyncio
import re
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

from stentor.broker.config import load
from stentor.broker.host import Broker
from stentor.broker.overlay import read_overlay
from stentor.broker.settings import Settings
from stentor.cli.app import app
from stentor.cli.explanations import explanations
from stentor.transport.tls import client_context, server_context

MANUAL = (Path(__file__).resolve().parents[2] / "docs" / "operation.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", MANUAL, re.DOTALL | re.MULTILINE)


def test_configurations_are_accepted(tmp_path: Path) -> None:
    for name in ("feed.token", "operator.token", "viewers.token"):
        (tmp_path / name).write_text("hush\n")
    seen = set()
    for number, text in enumerate(blocks("toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text.replace("@operator.token", "other-token"))
        if "overlay" in tomllib.loads(text):
            assert len(read_overlay(file, environment={}).links) == 4
            seen.add("overlay")
        elif "grants" in tomllib.loads(text):
            seen |= {grant.name for grant in load(file, environment={}).settings.grants}
        else:
            assert load(file, environment={}).settings.name == "frankfurt"
            seen.add("broker")
    grants = {"market feed", "desks", "neighbors", "operators", "partner", "viewers"}
    assert seen == {"overlay", "broker"} | grants


def test_commands_exist() -> None:
    mentioned = set(re.findall(r"(?:^    |`)stentor ([a-z]+)(?: ([a-z]+))?", MANUAL, re.MULTILINE))
    context = click.Context(app)
    known = app.list_commands(context)
    found = {name: app.get_command(context, name) for name in known}
    groups = {
        name: group.list_commands(context)
        for name, group in found.items()
        if isinstance(group, click.Group)
    }
    assert {"broker", "up", "status", "links"} <= {command for command, _ in mentioned}
    for command, sub in mentioned:
        assert command in known, command
        if command in groups:
            assert sub in groups[command], f"{command} {sub}"


def test_codes_exist() -> None:
    codes = set(re.findall(r"STN-\d+", MANUAL))
    assert codes
    assert codes <= set(explanations())


def test_metrics_exist() -> None:
    async def names() -> set[str]:
        async with Broker(Settings(listen=("127.0.0.1:0",))) as broker:
            return {name for name, *_ in broker.metrics()}

    mentioned = set(re.findall(r"`(stentor_\w+)`", MANUAL))
    assert len(mentioned) > 10
    # Without TLS there is no certificate that could expire.
    assert mentioned - {"stentor_certificate_expires_seconds"} <= asyncio.run(names())


@pytest.mark.slow
def test_the_commands_for_tls_make_certificates_that_work(tmp_path: Path) -> None:
    (script,) = blocks("sh")
    subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    for name in ("frankfurt", "london", "desk"):
        files = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        server_context(*files, tmp_path / "ca.pem")
        client_context(tmp_path / "ca.pem", *files)
        check = ["openssl", "verify", "-CAfile", str(tmp_path / "ca.pem"), str(files[0])]
        assert subprocess.run(check, capture_output=True).returncode == 0
