"""A service that answers requests, and a client that asks: python price_service.py [SYMBOL]

Without a symbol it serves; several of them share the requests. With one it asks.
"""

import argparse

import stentor
from stentor.errors import NobodyProvides, ProviderFailed

PRICES = {"IBM": 120.5, "SAP": 98.0}


def serve(bus: stentor.SyncBus) -> None:
    @bus.reply("service = 'price'", group="prices")
    def price(request: stentor.Notification) -> dict[str, object]:
        return {"symbol": request["symbol"], "price": PRICES[request["symbol"]]}

    print("serving prices", flush=True)
    input()  # until Return


def ask(bus: stentor.SyncBus, symbol: str) -> str:
    try:
        return f"{bus.request({'service': 'price', 'symbol': symbol})['price']}"
    except NobodyProvides:
        return "nobody serves prices; start this program without a symbol first"
    except ProviderFailed as error:
        return f"the service failed: {error.kind}: {error.reason}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("symbol", nargs="?")
    parser.add_argument("--broker", default="127.0.0.1:7411")
    given = parser.parse_args()
    with stentor.connect_sync(given.broker) as bus:
        if given.symbol is None:
            serve(bus)
        else:
            print(ask(bus, given.symbol))
