"""What one more subscription costs, in messages between brokers, however many there are."""

import pytest

from stentor.simulation import Client, Network

TREES = {n: [(max(1, i // 2), i) for i in range(2, n + 1)] for n in (15, 63)}


def cost(net: Network, client: Client, filter: str) -> tuple[int, int]:
    """Updates of filters, and everything else, until it is in force."""
    before = net.counters.copy()
    client.subscribe(filter)
    net.settle()
    spent = net.counters - before
    return spent.subscriptions, spent.control


@pytest.mark.spec("R-03.19", "R-08.52", "R-07.60")
@pytest.mark.parametrize("brokers", TREES)
def test_a_covered_subscription_costs_nothing_where_it_changes_nothing(brokers: int) -> None:
    net = Network.tree(TREES[brokers], "covering")
    here = net.client(at=brokers, journaled=True)
    # Anybody may publish what it asks for: everybody has to hear of it, and to say so.
    assert cost(net, here, "price > 100") == (brokers - 1, 2 * (brokers - 1))
    assert cost(net, here, "price > 200") == (0, 0)
    assert cost(net, net.client(at=brokers, journaled=True), "price > 300") == (0, 0)
    # One neighbor is told; behind it, or on its other side, something asks for more already.
    assert cost(net, net.client(at=brokers // 2, journaled=True), "price > 400") == (1, 2)
    assert cost(net, net.client(at=brokers - 1, journaled=True), "price > 500") == (1, 2)


@pytest.mark.spec("R-07.60")
def test_after_an_interruption_everything_is_asked_again() -> None:
    """What a broker behind the lost link has heard is not known, whatever was known before."""
    net = Network.tree([(1, 2), (2, 3), (3, 4)], "covering")
    reader, writer = net.client(at=1, journaled=True), net.client(at=4, journaled=True)
    reader.subscribe("x > 0")
    net.settle()
    net.disconnect(3, 4)
    net.settle()
    net.connect(3, 4)
    reader.subscribe("x > 1")
    writer.publish({"x": 2})
    net.settle()
    assert [n["x"] for n in reader.received] == [2]
    assert net.check(order=("fifo",)).ok
