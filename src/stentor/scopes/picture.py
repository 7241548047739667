"""A scope graph as a picture: SVG, superscopes above, with what is put on nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import escape

from stentor.errors import InvalidScopeGraph
from stentor.scopes.drawing import edge_words, node_words, rule_words
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.layout import layout
from stentor.scopes.nodes import Edge

#: More nodes make no picture that anybody can read.
MAX_NODES: Final = 500
_GLYPH: Final = 6.7
_LINE: Final = 15
_GAP: Final = 28.0
_BETWEEN: Final = 64
_MARGIN: Final = 24
_LONGEST: Final = 36

_STYLE: Final = """\
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2933; text-anchor: middle }
.name { font-weight: bold }
.term { fill: #9a3412; font-size: 11px; paint-order: stroke; stroke: #fff; stroke-width: 4px }
.scope { fill: #e0f2fe; stroke: #0369a1 }
.abstract { fill: #fff; stroke: #0369a1; stroke-dasharray: 5 4 }
.component { fill: #fff; stroke: #52606d }
path { fill: none; stroke: #52606d; stroke-width: 1.2 }
.mapped { stroke: #9a3412; stroke-width: 2 }
.carries-nothing { stroke-dasharray: 4 4 }
"""


def svg(graph: ScopeGraph) -> str:
    """The picture, as a text that browsers show.

    >>> g = ScopeGraph()
    >>> g.create_scope("market"); g.add_component("ticker"); g.join("ticker", "market")
    >>> svg(g).count("<rect")
    3
    """
    nodes = graph.nodes
    if len(nodes) > MAX_NODES:
        raise InvalidScopeGraph(
            f"a picture of {len(nodes):,} nodes cannot be read; at most {MAX_NODES} are drawn"
        )
    edges = {
        (id, edge.parent.id): edge
        for id, node in nodes.items()
        for edge in (*node.parents.values(), *node.groups.values())
    }
    words = {
        id: [id, *map(_short, (*node_words(node), *rule_words(graph, id)))]
        for id, node in nodes.items()
    }
    terms = _terms(edges)
    widths = {
        id: max(_GLYPH * 1.12 * max(map(len, lines)) + 20, 64.0) for id, lines in words.items()
    }
    for child, lines in terms.items():
        widths[child] = max([widths[child], *(_GLYPH * len(line) for line in lines)])
    found = layout(nodes, edges, widths, _GAP)
    tops: list[float] = []
    top = float(_MARGIN)
    for number, layer in enumerate(found.layers):
        tops.append(top)
        tallest = max((len(words[id]) for id in layer if id in words), default=1)
        below = found.layers[number + 1] if number + 1 < len(found.layers) else []
        said = max((len(terms[child]) for child in below if child in terms), default=0)
        top += tallest * _LINE + 14 + _BETWEEN + said * _LINE
    height, width = top - _BETWEEN + _MARGIN, found.width + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">',
        f"<title>scope graph</title><style>{_STYLE}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
    ]

    def bottom(id: str) -> float:
        return tops[found.layer[id]] + len(words[id]) * _LINE + 14

    labels: list[str] = []
    for (child, parent), edge in edges.items():
        points = [(found.x[child] + _MARGIN, tops[found.layer[child]])]
        points += [(found.x[b] + _MARGIN, tops[found.layer[b]]) for b in found.bends[child, parent]]
        points.append((found.x[parent] + _MARGIN, bottom(parent)))
        kind = "mapped" if edge.is_mapped else "" if edge.carries else "carries-nothing"
        parts.append(f'<path class="{kind}" d="{_curve(points)}"/>')
    for child, lines in terms.items():
        x, y = found.x[child] + _MARGIN, tops[found.layer[child]]
        for number, line in enumerate(reversed(lines)):
            labels.append(_text(x, y - 8 - number * (_LINE - 2), line, "term"))
    for id, node in nodes.items():
        x, y = found.x[id] + _MARGIN, tops[found.layer[id]]
        kind = "abstract" if node.abstract else "scope" if node.is_scope else "component"
        own = max(map(len, words[id])) * _GLYPH * 1.12 + 20
        box = max(own, 64.0)
        parts.append(
            f'<rect class="{kind}" x="{x - box / 2:.1f}" y="{y:.1f}" width="{box:.1f}" '
            f'height="{bottom(id) - y:.1f}" rx="{8 if node.is_scope else 2}"/>'
        )
        for number, line in enumerate(words[id]):
            parts.append(_text(x, y + 19 + number * _LINE, line, "name" if not number else ""))
    return "\n".join([*parts, *labels, "</svg>", ""])


def _terms(edges: Mapping[tuple[str, str], Edge]) -> dict[str, list[str]]:
    """What is put on the edges of each node; of several, with the scope it leads to."""
    found: dict[str, list[str]] = {}
    for (child, parent), edge in edges.items():
        words = edge_words(edge)
        if len(edge.child.parents) > 1:
            words = [f"{parent}: {each}" for each in words]
        if words:
            found.setdefault(child, []).extend(map(_short, words))
    return found


def _curve(points: list[tuple[float, float]]) -> str:
    """Smooth from the member up to its scope, through the bends."""
    x, y = points[0]
    path = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in points[1:]:
        half = (y + to_y) / 2
        path.append(f"C{x:.1f},{half:.1f} {to_x:.1f},{half:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
