"""What a person sees of it: a picture that is redrawn in a terminal, or lines of text elsewhere.

The picture is drawn by a thread, because drawing takes longer than a delivery does, and the event
loop of the clients is what times deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from time import perf_counter as clock
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from market.account import Consumer, Delivery, Latencies
from market.brokers import LINKS, NAMES, Look
from market.story import Listener, Scene, Teller
from stentor.broker.overlay import OverlayLink

#: Wider pictures are not easier to read.
_WIDEST: Final = 110
#: Lines of the picture without the empty ones and the latest deliveries, and the empty ones.
_LINES: Final = 21
_EMPTY: Final = 5
_MOST_RECENT: Final = 6
#: Seconds between lines about how things are, where there is no picture.
_LINE_EVERY: Final = 3.0
#: More is late, and not only on its way.
_BEHIND: Final = 20

_COLORS: Final = {"up": "green", "down": "bold red"}
_UNSETTLED: Final = "yellow"


@contextmanager
def teller(console: Console) -> Iterator[Teller]:
    """Who tells the story: a picture if there is a terminal."""
    if console.is_terminal and not console.is_dumb_terminal:
        with Picture(console) as picture:
            yield picture
    else:
        yield Lines(console)


def _line(seconds: float, text: str) -> Text:
    return Text.assemble((f"{seconds:6.1f} s  ", "dim"), text)


class Lines:
    """One line for each thing that happens, and now and then one about how things are."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._last = clock()
        self._shown = 0, 0

    def tell(self, text: str) -> None:
        self._console.print(_line(clock() - self._began, text), soft_wrap=True)

    def show(self, scene: Scene) -> None:
        account = scene.account
        counts = len(account), account.got
        if clock() - self._last < _LINE_EVERY or not len(account) or counts == self._shown:
            return
        self._last, self._shown = clock(), counts
        down = [name for name, look in scene.brokers.looks.items() if look.state != "up"]
        self.tell(
            f"   {len(account):,} published, {account.got:,} delivered, "
            f"{account.behind:,} to come{'; down: ' if down else ''}{', '.join(down)}"
        )


class Picture:
    """The same lines, and below them a picture of how things are, which goes away at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = clock()
        self._picture: RenderableType = ""
        self._live = Live(
            console=console,
            refresh_per_second=4,
            transient=True,
            vertical_overflow="crop",
            get_renderable=lambda: self._picture,
        )

    def __enter__(self) -> Picture:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, text: str) -> None:
        self._console.print(_line(clock() - self._began, text))

    def show(self, scene: Scene) -> None:
        self._picture = draw(scene, self._console)


# -- the picture


def draw(scene: Scene, console: Console) -> RenderableType:
    """How things are. With little height, there are fewer of the latest and no empty lines."""
    width = min(console.width, _WIDEST) - 2
    free = console.height - 1 - _LINES
    airy = free >= _EMPTY + 3
    recent = max(0, min(_MOST_RECENT, free - _EMPTY if airy else free))
    title = f" market data through five brokers, {scene.elapsed:.0f} s "
    now = Text(scene.now, style="bold").wrap(console, width)[:2]
    gap = [""] if airy else []
    parts: list[RenderableType] = [
        Text(title.center(width, "─"), style="dim"),
        *now,
        *[""] * (2 - len(now)),
        *gap,
        *_map(scene),
        *gap,
        _brokers(scene.brokers.looks.values(), width),
        *gap,
        _consumers(scene.listeners, width),
        *gap,
        _recent(islice(reversed(scene.account.recent), recent), width),
    ]
    return Padding(Group(*gap, *parts), (0, 1))


def _map(scene: Scene) -> list[Text]:
    """The tree of brokers, with what its links carry and who publishes where."""
    brokers = scene.brokers
    to_newyork, to_zurich, to_lisbon, to_madrid = LINKS

    def name(broker: str) -> tuple[str, str]:
        return broker, _COLORS.get(brokers.looks[broker].state, _UNSETTLED)

    def carries(link: OverlayLink) -> str:
        return f" {brokers.looks[link.dialer].link_rate(link.other):,.0f}/s "

    def across(link: OverlayLink) -> tuple[str, str]:
        if brokers.is_linked(link):
            return f" {carries(link):─^13} ", "green"
        return f" {' × ':╌^13} ", "red"

    def down(link: OverlayLink) -> tuple[str, str]:
        text, color = (f"│{carries(link)}", "green") if brokers.is_linked(link) else ("×", "red")
        return text.ljust(len("london") - 2 + len(across(link)[0])), color

    def exchange(broker: str) -> tuple[str, str]:
        publisher = scene.publisher_at(broker)
        words = publisher.exchange.name
        if publisher.is_waiting:
            words += f" holds {publisher.unacknowledged:,}"
        width = len(broker) + len(across(to_newyork)[0])
        return words.ljust(width), "yellow" if publisher.is_waiting else "dim"

    first = [name("newyork"), across(to_newyork), name("london"), across(to_zurich), name("zurich")]
    under_london = " " * (len("newyork") + len(first[1][0]))
    return [
        Text.assemble("  ", *first),
        Text.assemble("  ", exchange("newyork"), "  ", down(to_lisbon), exchange("zurich")),
        Text.assemble("  ", under_london, name("lisbon"), across(to_madrid), name("madrid")),
        Text.assemble("  ", under_london, exchange("lisbon"), exchange("madrid")),
    ]


def _table(width: int, *columns: str) -> Table:
    """Columns that begin with < are aligned to the left."""
    space = 2 if width > 90 else 1
    table = Table(box=None, padding=(0, space, 0, 0), pad_edge=False, header_style="dim")
    for heading in columns:
        left = heading.startswith("<")
        table.add_column(
            heading.removeprefix("<"),
            justify="left" if left else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _brokers(looks: Iterable[Look], width: int) -> Table:
    table = _table(
        width,
        "<broker",
        "<state",
        "published/s",
        "forwarded/s",
        "delivered/s",
        "table",
        "queued",
        "journal",
    )
    for look in looks:
        state = Text(look.state.ljust(8), style=_COLORS.get(look.state, _UNSETTLED))
        status = look.status
        if status is None:
            table.add_row(look.child.name, state, *["–"] * 6)
            continue
        table.add_row(
            look.child.name,
            state,
            *(f"{look.rate(name):,.0f}" for name in ("published", "forwarded", "delivered")),
            f"{status['table']['local']}+{status['table']['remote']}",
            f"{sum(status['queues'].values()):,}",
            f"{status['journal']['head']:,}",
        )
    return table


def _consumers(listeners: Sequence[Listener], width: int) -> Table:
    table = _table(width, "<consumer", "<at", "<wants", "owed", "got", "behind", "latency")
    table.columns[1].width = max(map(len, NAMES))
    table.columns[2].width = max(len(listener.desk.filter) for listener in listeners)
    for column in table.columns[3:]:
        column.min_width = 6
    for listener in listeners:
        record = listener.record
        if not listener.has_come:
            table.add_row(listener.desk.name, "not yet", listener.desk.filter, style="dim")
            continue
        late = "bold red" if listener.bus is not None else _UNSETTLED
        table.add_row(
            listener.desk.name,
            Text(listener.place, style="" if listener.place in NAMES else _UNSETTLED),
            Text(listener.desk.filter, style="cyan"),
            f"{record.owed:,}",
            f"{record.got:,}",
            Text(f"{record.behind:,}", style=late if record.behind > _BEHIND else "dim"),
            _median(record),
        )
    return table


def _median(record: Consumer) -> str:
    if not record.present or not record.latencies:
        return "–"
    return duration(Latencies.of(record.latencies).percentile(0.5))


def _recent(deliveries: Iterable[Delivery], width: int) -> Table:
    table = _table(width, "<latest", "price", "change", "volume", "<from", "<to", "after")
    for delivery in deliveries:
        trade = delivery.notification
        table.add_row(
            str(trade["symbol"]).ljust(6),
            f"{trade['price']:,.2f}",
            f"{trade['change']:+z.1f} %",
            f"{trade['volume']:,}",
            str(trade["exchange"]),
            delivery.consumer.ljust(8),
            duration(delivery.latency),
            style="dim",
        )
    return table


def duration(seconds: float) -> str:
    """In the unit that suits it.

    >>> duration(0.00123), duration(0.0561), duration(12.3)
    ('1.2 ms', '56 ms', '12.3 s')
    """
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds < 0.01 else f"{1e3 * seconds:.0f} ms"
