"""Events as objects: dataclasses, msgspec structs and pydantic models, nested and in lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest

from stentor.client.encoding import notification_of
from stentor.client.typed import Reader, class_filter, event_type_of, is_event_class
from stentor.errors import InvalidNotification
from stentor.filters import Filter
from stentor.model import Notification, decode, encode


class Unit(Enum):
    PIECE = "piece"


@dataclass
class Price:
    amount: float
    currency: str = "EUR"


@dataclass
class Line:
    sku: str
    quantity: int
    price: Price
    unit: Unit = Unit.PIECE
    tags: list[str] = field(default_factory=list)


@dataclass
class Order:
    id: int
    lines: list[Line]
    total: Price | None = None


class LineStruct(msgspec.Struct):
    sku: str
    quantity: int
    price: Price


class OrderStruct(msgspec.Struct, rename="camel"):
    order_id: int
    lines: list[LineStruct]
    total: Price | None = None


class RushOrder(OrderStruct):
    hours: int = 1


class LineModel(pydantic.BaseModel):
    sku: str
    quantity: int
    price: Price


class OrderModel(pydantic.BaseModel):
    id: int = pydantic.Field(alias="orderId")
    lines: list[LineModel]
    total: Price | None = None


@dataclass
class Parcel:
    order: OrderModel
    boxes: list[LineStruct]


PRICE = Price(9.5)
EVENTS = [
    Order(1, [Line("A-17", 12, PRICE, tags=["gift"]), Line("B-4", 1, PRICE)], Price(123.5)),
    Order(1, []),
    OrderStruct(1, [LineStruct("A-17", 12, PRICE)], Price(1.0)),
    RushOrder(1, [LineStruct("A-17", 12, PRICE)], hours=4),
    OrderModel(orderId=1, lines=[LineModel(sku="A-17", quantity=12, price=PRICE)]),
    Parcel(OrderModel(orderId=1, lines=[]), [LineStruct("A-17", 12, PRICE)]),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_there_and_back(event: Any) -> None:
    travelled = decode(encode(notification_of(event)))
    assert travelled.type == event_type_of(type(event))
    found = Reader(type(event))(travelled)
    assert found == event
    assert type(found) is type(event)


@pytest.mark.parametrize("event", [EVENTS[0], EVENTS[2], EVENTS[4]], ids=lambda e: type(e).__name__)
def test_filters_look_into_the_lists_of_objects(event: Any) -> None:
    notification = notification_of(event)
    wanted = "any line in lines: line.sku = 'A-17' and line.price.amount > 9"
    assert class_filter(type(event), wanted).matches(notification)
    assert not Filter("any line in lines: line.price.amount < 9").matches(notification)


def test_a_subclass_is_found_by_its_parent() -> None:
    assert event_type_of(RushOrder) == "OrderStruct.RushOrder"
    assert event_type_of(OrderModel) == "OrderModel"
    rush = notification_of(EVENTS[3])
    assert class_filter(OrderStruct).matches(rush)
    assert Reader(OrderStruct)(rush) == EVENTS[3]


def test_names_are_those_that_the_class_gives_its_fields() -> None:
    assert notification_of(EVENTS[2])["orderId"] == 1
    assert notification_of(EVENTS[4])["orderId"] == 1


def test_what_is_an_event_class() -> None:
    assert all(is_event_class(cls) for cls in (Order, OrderStruct, OrderModel))
    others = (dict, msgspec.Struct, pydantic.BaseModel, Order(1, []), Unit)
    assert not any(is_event_class(other) for other in others)


@pytest.mark.parametrize("cls", [Order, OrderStruct, OrderModel])
def test_what_does_not_fit_the_class_is_told(cls: type) -> None:
    other = Notification({"id": 1, "orderId": 1, "lines": [{"sku": 5}]}, type=cls.__name__)
    with pytest.raises(InvalidNotification, match=f"this is not a {cls.__name__}"):
        Reader(cls)(other)
