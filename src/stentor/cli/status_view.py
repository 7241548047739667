"""The status of a broker as tables.

Names and filters come from whoever is connected, so they are shown as plain text: no markup, and no
control characters that could play tricks with the terminal.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stentor.errors import StentorError
from stentor.notation.counts import counted
from stentor.notation.units import format_duration, short_size

_GOOD: Final = "green"
_BAD: Final = "bold red"


def print_tables(*tables: RenderableType | None) -> None:
    """On stdout, as wide as the terminal, or as wide as it takes."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(160, console.width), soft_wrap=True)
    for table in tables:
        if table is not None:
            console.print(table)


def plain(value: Any) -> str:
    """The value as text that cannot do anything but be read."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else f"\\x{ord(ch):02x}" for ch in text)


def _table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    limit: int | None = None,
    empty: str = "none",
    tally: bool = True,
) -> Group:
    """A title, with the number of rows if that says something, and a table.

    Columns whose name begins with > are numbers, and go to the right.
    """
    found = list(rows)
    if not found:
        return Group(Text(title, style="bold"), Text(empty, style="dim"))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            overflow="ellipsis" if column != "filter" else "fold",
            no_wrap=right,
        )
    for row in found[:limit]:
        table.add_row(*(each if isinstance(each, Text) else Text(plain(each)) for each in row))
    heading = f"{title} ({len(found):,})" if tally else title
    parts: list[RenderableType] = [Text(heading, style="bold"), table]
    if limit is not None and len(found) > limit:
        parts.append(Text(f"{len(found) - limit:,} more; --all shows them", style="dim"))
    return Group(*parts)


# -- the tables


def links_table(links: Sequence[dict[str, Any]], limit: int | None = None) -> Group:
    return _table(
        "Links",
        ["neighbor", "address", "state", ">queue", ">dropped", ">sent", ">received", ">out", ">in"],
        (
            (
                link.get("broker"),
                link.get("address") or link.get("peer"),
                _state(link),
                link.get("queue"),
                link.get("dropped"),
                link.get("sent"),
                link.get("received"),
                _bytes(link.get("bytes_out")),
                _bytes(link.get("bytes_in")),
            )
            for link in links
        ),
        limit=limit,
    )


def _state(link: dict[str, Any]) -> Text:
    if link.get("state") == "up":
        return Text("up", style=_GOOD)
    reason = link.get("reason")
    if link.get("state") == "reserve":
        return Text(plain(f"in reserve: {reason}" if reason else "in reserve"))
    return Text(plain(f"down: {reason}" if reason else "down"), style=_BAD)


def _bytes(size: Any) -> str:
    return "" if size is None else short_size(size)


def brokers_table(brokers: Sequence[dict[str, Any]], limit: int | None) -> Group | None:
    if not brokers:
        return None
    rows = ((b["broker"], ", ".join(b["addresses"]), b["via"], b["stream"]) for b in brokers)
    columns = ["broker", "address", "through", "stream"]
    return _table("Brokers that can be reached", columns, rows, limit=limit)


def clients_table(clients: Sequence[dict[str, Any]], limit: int | None) -> Group:
    busiest = sorted(clients, key=lambda c: (-c["published"], -c["subscriptions"], c["name"]))
    return _table(
        "Clients",
        [
            "name",
            "grant",
            "from",
            ">subs.",
            ">offers",
            ">published",
            ">refused",
            ">unanswered",
            ">unsent",
        ],
        (
            (
                c["name"],
                c["grant"],
                c["peer"],
                c["subscriptions"],
                c["advertisements"],
                c["published"],
                c["refused"],
                c["unanswered"],
                _bytes(c["unsent_bytes"]),
            )
            for c in busiest
        ),
        limit=limit,
    )


def subscriptions_table(subscriptions: Sequence[dict[str, Any]], limit: int | None) -> Group:
    longest = sorted(subscriptions, key=lambda s: (-s["queue"], -s["delivered"]))
    return _table(
        "Subscriptions",
        ["filter", "durable", "group", ">consumers", ">queue", ">credit", ">delivered", ">dropped"],
        (
            (
                s["filter"] or "(everything)",
                s["durable"],
                s["group"],
                s["consumers"],
                Text(f"{s['queue']:,}, catching up") if s["catching_up"] else s["queue"],
                s["credit"],
                s["delivered"],
                s["dropped"],
            )
            for s in longest
        ),
        limit=limit,
    )


def durables_table(durables: Sequence[dict[str, Any]], limit: int | None) -> Group | None:
    if not durables:
        return None
    rows = (
        (d["name"], d["filter"] or "(everything)", d["attached"], len(d["positions"]))
        for d in durables
    )
    columns = ["name", "filter", "attached", ">streams"]
    return _table("Durable subscriptions", columns, rows, limit=limit)


def detectors_table(detectors: Sequence[dict[str, Any]], limit: int | None) -> Group | None:
    """What is detected here; those that could not begin say why."""
    if not detectors:
        return None
    rows = (
        (
            d.get("pattern", ""),
            d["durable"] or "",
            d.get("policy", ""),
            d.get("fed", ""),
            d.get("found", ""),
            d.get("runs", ""),
            _bytes(d.get("memory")),
            d.get("waiting", ""),
            d.get("late", ""),
            d.get("dropped", ""),
            d.get("idle")
            or (f"waits for {d['waits_for']}" if d["waits_for"] else "")
            or ("for " + ", ".join(d["tenants"]) if d.get("tenants") else ""),
        )
        for d in detectors
    )
    columns = [
        *("pattern", "durable", "policy", ">fed", ">found", ">runs", ">memory", ">waiting"),
        *(">late", ">dropped", ""),
    ]
    return _table("Detectors", columns, rows, limit=limit)


def placements_table(placements: Sequence[dict[str, Any]], limit: int | None) -> Group | None:
    """What subscribers of this broker have had placed, and which broker detects which part."""
    rows = (
        (
            p["pattern"],
            p["placement"],
            part["pattern"],
            part["broker"],
            "" if part["in_force"] else "not in force",
        )
        for p in placements
        for part in p["parts"] or [{"pattern": "", "broker": "", "in_force": False}]
    )
    columns = ["pattern", "placement", "part", "broker", ""]
    return _table("Placed patterns", columns, rows, limit=limit) if placements else None


def homes_table(homes: Sequence[dict[str, Any]]) -> Group | None:
    """Where durable subscriptions live; of those elsewhere it is not known how far they are."""
    rows = (
        (
            h["name"],
            h["home"] if h["reachable"] else f"{h['home']} (out of reach)",
            h.get("filter") or ("(everything)" if "filter" in h else ""),
            h.get("attached", ""),
            h.get("lag", ""),
            _age(h.get("oldest")),
            h.get("refused", ""),
            h["owner"] or "",
        )
        for h in sorted(homes, key=lambda h: h["name"])
    )
    columns = [
        *("name", "home", "filter", "attached", ">behind", ">oldest", ">refused", "owner"),
    ]
    return _table("Durable subscriptions", columns, rows)


def _age(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.0f} s"


def numbers_table(status: dict[str, Any], before: dict[str, Any] | None = None) -> Table:
    """Routing table, queues, drops and journal: one line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    table, queues, dropped = status["table"], status["queues"], status["dropped"]
    journal = status["journal"]
    lost = sum(dropped.values())
    grid.add_row(
        "routing table",
        f"{counted(table['local'], 'entry', 'entries')} of clients, {table['remote']:,} of "
        f"neighbors, {counted(table['offers'], 'offer')}; {plain(status['routing'])}",
    )
    grid.add_row(
        "queues",
        f"{queues['subscriptions']:,} for subscriptions, {queues['links']:,} for links, "
        f"{queues['journal']:,} for the disk",
    )
    grid.add_row(
        "dropped",
        Text(
            f"{dropped['subscriptions']:,} by subscriptions, {dropped['links']:,} by links",
            style=_BAD if lost else "",
        ),
    )
    kept = journal["head"] - journal["low"] + 1
    where = plain(journal["path"]) if journal["path"] else "in memory"
    grid.add_row(
        "journal",
        f"{counted(kept, 'notification')}, "
        f"offsets {journal['low']:,} to {journal['head']:,}, "
        f"{short_size(journal['bytes'])}; {where}",
    )
    failed = journal["failed_commits"]
    grid.add_row(
        "commits",
        Text(
            f"{journal['commits']:,}, {failed:,} failed{_commit_time(status, before)}",
            style=_BAD if failed else "",
        ),
    )
    return grid


def _commit_time(status: dict[str, Any], before: dict[str, Any] | None) -> str:
    """How long commits have taken since the last look."""
    if before is None:
        return ""
    commits = status["journal"]["commits"] - before["journal"]["commits"]
    seconds = status["journal"]["commit_seconds"] - before["journal"]["commit_seconds"]
    return f"; {1000 * seconds / commits:.1f} ms each now" if commits > 0 else ""


def rates_table(
    status: dict[str, Any], before: dict[str, Any] | None, seconds: float | None
) -> Group:
    """What has been counted, and how fast it grows: since `before`, or since the start."""
    counters = status["counters"]
    earlier = before["counters"] if before is not None else {}
    span = seconds if before is not None else status["uptime"]
    rows = (
        (name.replace("_", " "), count, _rate(count - earlier.get(name, 0), span))
        for name, count in counters.items()
        if count
    )
    per = "now" if before is not None else "on average"
    columns = ["", ">total", f">per second, {per}"]
    return _table("Notifications", columns, rows, tally=False)


def _rate(count: float, seconds: float | None) -> str:
    if not seconds or seconds <= 0:
        return ""
    rate = count / seconds
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.1f}"


def heading(status: dict[str, Any]) -> Text:
    started = datetime.fromtimestamp(status["started"], UTC)
    text = Text(plain(status["name"]), style="bold")
    text.append(f"  {', '.join(map(plain, status['addresses']))}", style="not bold")
    told = status["advertised"]
    if set(told) != set(status["addresses"]):
        text.append(f", told to others: {', '.join(map(plain, told))}", style="not bold")
    if status.get("draining"):
        text.append("  draining", style=_BAD)
    uptime = format_duration(float(int(status["uptime"])))
    text.append(
        f"\nup for {uptime}, since {started:%Y-%m-%d %H:%M:%S} UTC; "
        f"stream {plain(status['stream'])}",
        style="not bold dim",
    )
    return text


def status_view(
    status: dict[str, Any],
    before: dict[str, Any] | None = None,
    seconds: float | None = None,
    limit: int | None = None,
) -> Group:
    """Everything, from the most to the least asked for."""
    parts: list[RenderableType | None] = [
        heading(status),
        links_table(status["links"], limit),
        brokers_table(status["brokers"], limit),
        clients_table(status["clients"], limit),
        subscriptions_table(status["subscriptions"], limit),
        durables_table(status["durables"], limit),
        detectors_table(status.get("detectors", ()), limit),
        placements_table(status.get("placements", ()), limit),
        rates_table(status, before, seconds),
        numbers_table(status, before),
    ]
    spaced: list[RenderableType] = []
    for part in parts:
        if part is not None:
            spaced += [part, Text("")]
    return Group(*spaced[:-1])


async def draw(samples: AsyncGenerator[dict[str, Any] | StentorError], limit: int | None) -> None:
    """Each sample in the place of the one before it."""
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        last: dict[str, Any] | None = None
        at = 0.0
        async for sample in samples:
            if isinstance(sample, StentorError):
                if last is None:
                    raise sample
                gone = Text(
                    f"{time.strftime('%H:%M:%S')}  {sample.code}: {sample}", style="bold red"
                )
                live.update(_with_note(gone, last, console, limit), refresh=True)
                at = 0.0
                continue
            now = time.monotonic()
            # Counters begin anew with the broker, and then there is nothing to compare with.
            again = last is not None and at and last["started"] == sample["started"]
            before, seconds = (last, now - at) if again else (None, None)
            live.update(status_view(sample, before, seconds, _rows(console, limit)), refresh=True)
            last, at = sample, now


def _with_note(
    note: Text, status: dict[str, Any], console: Console, limit: int | None
) -> RenderableType:
    return Group(note, Text(""), status_view(status, limit=_rows(console, limit)))


def _rows(console: Console, limit: int | None) -> int | None:
    """So many that the tables fit on the screen, more or less."""
    return None if limit is None else max(3, min(limit, console.height // 6))
