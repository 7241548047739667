"""What is under deploy/ fits the brokers there are: metrics, settings, paths, commands."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from pathlib import Path

import yaml

import stentor
from stentor.broker.config_keys import broker_keys
from stentor.broker.host import Broker
from stentor.broker.monitoring import render_metrics
from stentor.broker.settings import Settings

DEPLOY = Path(__file__).parent.parent / "deploy"
#: Only a broker with TLS has it.
_TLS_ONLY = {"stentor_certificate_expires_seconds"}


def real_metrics() -> tuple[set[str], set[str]]:
    """Names and labels in what a broker tells while it is used."""

    async def main() -> str:
        async with (
            Broker(Settings(listen=("127.0.0.1:0",), monitor="127.0.0.1:0")) as broker,
            Broker(Settings(listen=("127.0.0.1:0",), neighbors=(broker.address,))),
            stentor.connect(broker) as bus,
            bus.subscribe("x > 0", durable="desk") as received,
        ):
            await bus.publish({"x": 1}, ack=True)
            await received.get()
            while not (broker.links and broker.core.latencies.delivering.count):
                await bus.publish({"x": 1}, ack=True)
                await received.get()
                await asyncio.sleep(0.02)
            for _ in broker.lags.look(broker.core):
                pass
            return render_metrics(broker.metrics())

    text = asyncio.run(main())
    names = set(re.findall(r"^(stentor_\w+)", text, re.MULTILINE))
    for kind in ("acknowledging", "delivering", "matching"):
        assert re.search(rf"stentor_{kind}_seconds_count{{.*}} [1-9]", text), kind
    return names | _TLS_ONLY, set(re.findall(r'(\w+)="', text))


def test_dashboard_and_alerts_use_metrics_that_are_there() -> None:
    names, labels = real_metrics()
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = [target["legendFormat"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    asked += [rule["expr"] for rule in alerts]
    found = {name for text in asked for name in re.findall(r"stentor_\w+", text)}
    assert len(found) > 20
    assert found <= names
    for text in shown:
        assert set(re.findall(r"{{(\w+)}}", text)) <= labels
    for rule in alerts:
        wanted = set(re.findall(r"labels\.(\w+)", json.dumps(rule["annotations"])))
        assert wanted <= labels | {"instance"}, rule["alert"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_variables_and_options_are_settings() -> None:
    variables = {key.variable for key in broker_keys()}
    options = {key.flag for key in broker_keys()} | {"--config"}
    for path in DEPLOY.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_text()
        assert set(re.findall(r"\bSTENTOR_\w+", text)) <= variables, path
        for line in re.findall(r"stentor broker (.*)", text):
            assert set(re.findall(r"--[a-z-]+", line)) <= options, path


def test_containers_have_compiled_code_that_their_user_may_use() -> None:
    image = (DEPLOY / "Containerfile").read_text()
    (kernels,) = re.findall(r"STENTOR_KERNELS=(\S+)", image)
    (user,) = re.findall(r"^USER (\w+)$", image, re.MULTILINE)
    assert f"prepare(Path('{kernels}')" in image
    assert f"chown -R {user}:{user} {kernels}\n" in image
    chart = (DEPLOY / "helm" / "stentor" / "templates" / "statefulset.yaml").read_text()
    assert "readOnlyRootFilesystem: true" in chart
    (copy,) = re.findall(r'cp -r "\$STENTOR_KERNELS" (\S+)', chart)
    assert f"export STENTOR_KERNELS={copy}\n" in chart
    assert f"mountPath: {copy.rpartition('/')[0]}}}" in chart  # where it may write


def test_files_of_yaml_can_be_read_and_name_each_other() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(compose["services"]) == {"b1", "b2", "prometheus", "grafana"}
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).is_file(), source
            else:
                assert source in compose["volumes"]
    targets = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    (job,) = targets["scrape_configs"]
    assert {each.split(":")[0] for each in job["static_configs"][0]["targets"]} == {"b1", "b2"}
    chart = yaml.safe_load((DEPLOY / "helm" / "stentor" / "Chart.yaml").read_text())
    assert chart["appVersion"] == stentor.__version__
    values = yaml.safe_load((DEPLOY / "helm" / "stentor" / "values.yaml").read_text())
    tomllib.loads(values["config"])
    used = {
        name
        for path in (DEPLOY / "helm" / "stentor" / "templates").iterdir()
        for name in re.findall(r"\.Values\.(\w+)", path.read_text())
    }
    assert used == set(values)
