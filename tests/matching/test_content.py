"""Content-based subscription as the literature states it, through the public interface."""

import pytest

from stentor import Filter, Notification
from stentor.matching import Index


@pytest.mark.spec("07/E-07", "R-01.42")
def test_telco_quotes_below_a_hundred() -> None:
    index = Index([("s", Filter("company = 'Telco' and price < 100"))])
    assert index.match(Notification({"company": "Telco", "price": 120})) == []
    assert index.match(Notification({"company": "Telco", "price": 90})) == ["s"]


@pytest.mark.spec("R-07.08", "R-02.11", "02/4.5")
def test_a_disjunction_is_one_subscription_for_delivery_and_removal() -> None:
    index = Index([("s", Filter("price > 10 or volume > 10 or company prefix 'T'"))])
    both = {"price": 20, "volume": 20, "company": "Telco"}
    assert index.match(both) == ["s"]
    rows, _ = index.match_batch([both, both])
    assert rows.tolist() == [0, 1]
    index.remove("s")
    assert index.match(both) == []


@pytest.mark.spec("07/T-07")
def test_relations_that_attribute_by_attribute_tests_miss() -> None:
    assert Filter("x between 3 and 10") == Filter("x >= 3 and x <= 10")
    assert not Filter("x != 3").overlaps(Filter("x = 3"))
    assert not Filter("s prefix 'a' and s suffix 'b'").overlaps(Filter("s = 'a'"))
    contradiction = Filter("x < 1 and x > 2")
    assert Filter("y = 1").covers(contradiction)
    assert not contradiction.overlaps(Filter("true"))
    assert Filter("x = 1").matches({"x": 1.0})
