"""The options of the source and the sink: what is wrong with them is said, and what to do."""

from __future__ import annotations

import pickle

import pytest

from stentor.errors import (
    FilterSyntaxError,
    InvalidAddress,
    InvalidConfiguration,
    StentorError,
    Unreachable,
)
from stentor.pipeline.source import journals
from stentor.pipeline.source.options import connecting, reading

BROKERS = {"brokers": "127.0.0.1:7411"}


def test_names_are_read_without_regard_to_case() -> None:
    found = reading(
        {
            "BROKERS": " 127.0.0.1:7411 ,b2:7412,",
            "Filter": "price > 100 and symbol = 'IBM'",
            "startingoffsets": "EARLIEST",
            "maxRowsPerBatch": "1000",
            "MAXROWSPERPARTITION": "10",
            "failOnDataLoss": "False",
            "mode": "failfast",
            "token": "secret",
            "tlsCa": "ca.pem",
            "patience": "1.5",
            "checkpointLocation": "somewhere",
        },
        streaming=True,
    )
    assert found.connecting.brokers == ("127.0.0.1:7411", "b2:7412")
    assert (found.connecting.token, found.connecting.tls) == ("secret", {"ca": "ca.pem"})
    assert found.connecting.patience == 1.5
    assert (found.rows_per_batch, found.rows_per_partition) == (1000, 10)
    assert (found.fail_on_data_loss, found.mode, found.starting) == (False, "FAILFAST", "earliest")
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_path_may_be_the_brokers() -> None:
    assert connecting({"path": "b1:1,b2:2"}).brokers == ("b1:1", "b2:2")


def test_an_event_type_is_part_of_the_filter() -> None:
    found = reading(BROKERS | {"eventType": "quote", "filter": "price > 1"}, streaming=False)
    assert found.filter == "_types has 'quote' and price > 1"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, InvalidConfiguration, 'option\\("brokers"'),
        ({"brokers": " , "}, InvalidConfiguration, "which brokers"),
        ({"brokers": "no address"}, InvalidAddress, "no address"),
        ({"broker": "b:1"}, InvalidConfiguration, "'broker'; did you mean brokers"),
        (
            {"maxRows": "1"},
            InvalidConfiguration,
            "There are brokers, endingOffsets",
        ),
        ({"maxRowsPerBatch": "0"}, InvalidConfiguration, "maxRowsPerBatch=0: give .* at least 1"),
        ({"sample": "many"}, InvalidConfiguration, "sample=many"),
        ({"patience": "nan"}, InvalidConfiguration, "patience=nan"),
        ({"failOnDataLoss": "maybe"}, InvalidConfiguration, "true or false"),
        ({"mode": "LAX"}, InvalidConfiguration, "PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"filter": "price >"}, FilterSyntaxError, "price >"),
        ({"eventType": "a..b"}, FilterSyntaxError, "empty segment"),
        ({"startingOffsets": "newest"}, InvalidConfiguration, "earliest or latest, or JSON"),
        ({"startingOffsets": '{"b1": 0}'}, InvalidConfiguration, "from 1 on"),
        ({"startingOffsets": '{"b1": true}'}, InvalidConfiguration, "from 1 on"),
        ({"startingOffsets": "[1]"}, InvalidConfiguration, "or JSON"),
        ({"startingTimestamp": "yesterday"}, InvalidConfiguration, "startingTimestamp='yesterday'"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, InvalidConfiguration, "no time zone"),
        (
            {"startingTimestamp": "2026-01-01T00:00:00Z", "startingOffsets": "earliest"},
            InvalidConfiguration,
            "not both",
        ),
        ({"endingOffsets": "latest"}, InvalidConfiguration, "a stream has no end"),
    ],
)
def test_what_is_wrong_is_said(
    options: dict[str, str], error: type[StentorError], said: str
) -> None:
    given = options if {"broker", "brokers"} & options.keys() or not options else BROKERS | options
    with pytest.raises(error, match=said):
        reading(given, streaming=True)


def test_a_batch_begins_early_and_ends_late() -> None:
    with pytest.raises(InvalidConfiguration, match="write earliest, or JSON"):
        reading(BROKERS | {"startingOffsets": "latest"}, streaming=False)
    with pytest.raises(InvalidConfiguration, match="write latest, or JSON"):
        reading(BROKERS | {"endingOffsets": "earliest"}, streaming=False)
    found = reading(
        BROKERS | {"startingOffsets": '{"b1": 5}', "endingTimestamp": "1970-01-01T00:01:00Z"},
        streaming=False,
    )
    assert (found.starting, found.ending) == ({"b1": 5}, 60.0)


def test_a_writer_has_no_options_of_a_reader() -> None:
    with pytest.raises(InvalidConfiguration, match="no option 'filter'"):
        connecting(BROKERS | {"filter": "x = 1"})


def test_who_waits_for_a_broker_says_how_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journals, "TIMEOUT", 0.1)
    options = connecting({"brokers": "127.0.0.1:1", "patience": "0.3"})
    with journals.Journals(options) as found, pytest.raises(Unreachable, match=r"Waited 0\.3 sec"):
        found.all_seen()
    told = [record.message for record in caplog.records]
    assert told.count("waiting for it up to 0.3 seconds (option patience)") == 1
    assert "127.0.0.1:1 cannot be reached" in told[0]
