"""Tells people what they asked to be told: python alerting_bot.py

Whoever wants to know of something publishes {"watch": FILTER, "who": NAME}; {"unwatch": NAME} ends
it. The bot watches everything for everybody with one inbox, and says whom each event concerns.
"""

import asyncio
import sys
from collections import defaultdict

import stentor
from stentor import SubId
from stentor.errors import StentorError


async def main(*brokers: str) -> None:
    watched: dict[str, list[SubId]] = defaultdict(list)
    async with (
        stentor.connect(*brokers, name="alerting-bot") as bus,
        bus.inbox("exists watch and exists who", "exists unwatch") as inbox,
    ):
        print("watching", flush=True)
        async for n in inbox:
            if "watch" in n:
                try:
                    watched[n["who"]].append(await inbox.subscribe(n["watch"]))
                    await bus.publish({"told": n["who"], "text": f"watching {n['watch']}"})
                except StentorError as error:
                    await bus.publish({"told": n["who"], "text": str(error)})
            elif "unwatch" in n:
                for subscription in watched.pop(n["unwatch"], ()):
                    await inbox.unsubscribe(subscription)
            else:
                for who, subscriptions in watched.items():
                    if any(each in n.subscriptions for each in subscriptions):
                        print(f"{who}: {dict(n)}", flush=True)
                        await bus.publish({"told": who, "text": str(dict(n))})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
