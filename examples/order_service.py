"""Bills each order exactly once, whichever process or broker dies: python order_service.py

What cannot be billed is tried three times and then set aside as a dead letter, which
`stentor subscribe "type = 'DeadLetter'"` shows.
"""

import sys

import stentor
from stentor import Retry

PRICES = {"A-17": 12.5, "B-4": 99.0}

bus = stentor.connect_sync(*sys.argv[1:], name="billing-service")


@bus.on(
    "type = 'Order' and any line in lines: line.quantity > 0",
    durable="billing",
    retry=Retry(attempts=3, backoff="100ms..10s"),
    dead_letter=True,
)
def bill(order: stentor.Notification) -> None:
    total = sum(PRICES[line["sku"]] * line["quantity"] for line in order["lines"])
    with bus.transaction() as t:  # the bill is published and the order done, or neither
        t.ack(order)
        t.publish({"type": "Bill", "order": order["order"], "total": total})
    print(f"order {order['order']}: {total}", flush=True)


if __name__ == "__main__":
    with bus:
        print("billing orders", flush=True)
        sys.stdin.read()  # until Ctrl-D
