"""A web application with live updates: uvicorn web_app:app

    curl -N "localhost:8000/events?filter=total>100"
    curl -X POST localhost:8000/orders --json '{"customer": "C-4", "total": 120}'

Every browser has a subscription of its own, with the filter that it asks for. One that reads too
slowly loses the oldest events, and holds up nobody.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import stentor
from stentor.errors import StentorError


class Order(BaseModel):
    customer: str
    total: float


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with stentor.connect(os.environ.get("BROKER", "127.0.0.1:7411")) as app.state.bus:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    return {"id": str(await app.state.bus.publish(order, ack=True))}


@app.get("/events")
async def events(filter: str = "") -> StreamingResponse:
    try:
        subscription = app.state.bus.subscribe(
            filter, strict=True, overflow="drop_oldest", limit=1_000
        )
    except StentorError as error:
        raise HTTPException(400, str(error)) from None

    async def lines() -> AsyncIterator[str]:
        async with subscription:
            yield ": subscribed\n\n"
            async for n in subscription:
                yield f"id: {n.id}\ndata: {json.dumps(dict(n), default=str)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")
