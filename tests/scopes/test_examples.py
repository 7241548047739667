"""The examples that are shipped: what they promise, and that they are well written."""

from pathlib import Path

import pytest

from stentor.model import Notification
from stentor.scopes import ScopeGraph
from stentor.scopes.language import Deployment, format_script, load, parse
from stentor.scopes.language.checks import findings

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def receivers(g, publisher, n):
    return sorted(d.consumer for d in g.deliveries(n, publisher) if d.consumer != publisher)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.scopes")), ids=lambda file: file.name)
def test_an_example_is_formatted_and_can_be_deployed(file):
    text = file.read_text()
    assert format_script(parse(text)) == text
    load(file)
    load(file, deployment=Deployment(assume=False))


@pytest.mark.spec("04/E10", "R-04.38", "R-04.28", "R-04.63")
def test_the_stock_market():
    g = ScopeGraph.load(EXAMPLES / "delayed.scopes")
    sap = {"type": "Quote", "share": "SAP", "price": 9.5}
    assert receivers(g, "ME1", sap) == ["DB1", "PC3"]  # at once: professionals
    assert receivers(g, "ME1", sap | {"share": "IBM"}) == ["DB1", "PC2"]
    assert [d.consumer for d in g.advance(899)] == []
    assert [d.consumer for d in g.advance(900)] == ["PC1"]  # a quarter of an hour later
    assert receivers(g, "ME1", {"type": "OrderBook"}) == []
    g.add_component("maker")
    g.join("maker", "TF1")
    assert receivers(g, "ME1", {"type": "OrderBook"}) == ["maker"]
    g.remove_component("maker")
    assert receivers(g, "PC1", {"type": "Order", "share": "IBM"}) == ["DB1", "ME1"]
    assert receivers(g, "PC4", {"type": "Order", "share": "SAP"}) == ["DB2", "ME2"]
    assert receivers(g, "ME1", {"type": "Accept", "customer": "C1"}) == ["PC1"]
    assert receivers(g, "ME1", {"type": "Accept", "customer": "C2"}) == ["PC2"]
    # A customer of two markets hears both, and orders in one.
    assert receivers(g, "ME2", sap) == ["DB2"]
    assert {d.consumer for d in g.advance(10_000)} == {"PC3", "PC4"}
    assert receivers(g, "PC3", {"type": "Order", "market": "M1"}) == ["DB1", "ME1"]
    assert receivers(g, "PC3", {"type": "Order", "market": "M2"}) == ["DB2", "ME2"]


@pytest.mark.spec("04/E10", "R-04.38")
def test_only_completed_trades_leave_a_market():
    g = ScopeGraph.load(EXAMPLES / "market.scopes")
    quote = {"type": "Quote", "share": "SAP", "price": 9.5, "executed": True}
    found = g.deliveries(quote, "ME1")
    (trade,) = [d.notification for d in found if d.consumer == "newspaper"]
    assert dict(trade) == {"type": "Trade", "share": "SAP", "price": 9.5}
    # An agent beside the customer's own computer, without changing anything else.
    g.add_component("watcher")
    g.join("watcher", "C3")
    assert "watcher" in receivers(g, "ME1", quote)
    g.remove_component("PC3")
    assert g.members("C3") == ("watcher",)


@pytest.mark.spec("R-04.13", "R-04.65")
def test_tenants_see_their_own():
    g = ScopeGraph.load(EXAMPLES / "tenants.scopes")
    for tenant in ("acme", "globex"):
        g.add_component(f"{tenant}-app", attributes={"tenant": tenant})
    jobs = [receivers(g, "acme-app", {"type": "Job", "n": n}) for n in range(4)]
    assert jobs == [["acme-1"], ["acme-2"], ["acme-1"], ["acme-2"]]
    assert receivers(g, "acme-1", {"type": "Done"}) == ["acme-2", "acme-app"]
    found = g.deliveries({"type": "Usage", "bytes": 5}, "globex-1")
    billed = [dict(d.notification) for d in found if d.consumer == "billing"]
    assert billed == [{"type": "Usage", "bytes": 5, "tenant": "globex"}]
    assert receivers(g, "billing", {"type": "Announcement", "text": "hello"}) == [
        "acme-app",
        "globex-app",
        "status-page",
    ]
    g.set_attributes("globex-app", {"tenant": "acme"})
    assert receivers(g, "acme-1", {"type": "Done"}) == ["acme-2", "acme-app", "globex-app"]


@pytest.mark.spec("04/E12", "R-04.40", "R-04.45", "04/T9")
def test_units_are_translated_at_the_border():
    g = ScopeGraph.load(EXAMPLES / "building.scopes")
    g.add_component("s1", attributes={"sensor": True})
    found = g.deliveries({"fahrenheit": 71}, "gauge")
    versions = {(d.consumer, *dict(d.notification).items()) for d in found}
    assert ("boiler", ("fahrenheit", 71)) in versions
    assert ("dashboard", ("celsius", 22)) in versions
    assert not any(("fahrenheit", 72) in each for each in versions)  # no echo
    found = g.deliveries({"type": "SetPoint", "celsius": 22}, "caretaker")
    got = {d.consumer: dict(d.notification) for d in found}
    assert got["boiler"] == {"type": "SetPoint", "fahrenheit": 72}
    assert got["s1"] == {"type": "SetPoint", "celsius": 22}
    found = g.deliveries(Notification({"room": "office", "celsius": 30}), "s1")
    got = {d.consumer: dict(d.notification) for d in found}
    assert got["dashboard"] == {"room": "office", "celsius": 30, "storey": 1}
    assert "dashboard" not in receivers(g, "s1", {"room": "office", "celsius": 20})


def test_nothing_unexpected_is_found_in_the_examples():
    names = ("market", "delayed", "tenants", "building")
    found = {name: list(findings(load(EXAMPLES / f"{name}.scopes"))) for name in names}
    assert found["market"] == []
    assert all("which nothing defines" in each for each in found["tenants"] + found["building"])
