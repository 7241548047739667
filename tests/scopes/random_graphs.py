"""Random scope graphs and notifications, for tests that hold implementations to the model."""

from random import Random

from stentor.filters import Filter
from stentor.filters.expression import Arithmetic, Attribute, Constant
from stentor.model import Notification
from stentor.scopes import EdgeMapping, Interface, Kind, ScopeGraph, mapping_of
from stentor.scopes.policies import (
    Broadcast,
    ByPath,
    ByProducer,
    Chain,
    Nobody,
    OneOfN,
    Only,
    RequirePrivilege,
    TopK,
)

KINDS = ("a", "b", "c")


def random_graph(r: Random, *, mappings: bool = False) -> ScopeGraph:
    """Up to eight scopes and eight components, each in up to three scopes."""
    g = ScopeGraph(open_by_default=r.random() < 0.3, self_delivery=r.random() < 0.8)
    scopes = [f"s{i}" for i in range(r.randint(1, 8))]
    for scope in scopes:
        g.create_scope(scope, interface=_interface(r, 0.6), everyone=_interface(r, 0.15))
    components = [f"c{i}" for i in range(r.randint(1, 8))]
    for component in components:
        g.add_component(component, interface=_interface(r, 0.4))
    for i, child in enumerate([*scopes, *components]):
        # Scopes join later ones only, so that there are no cycles.
        above = scopes[i + 1 :] if child in scopes else scopes
        for parent in r.sample(above, min(len(above), r.randint(0, 3))):
            terms = {
                "selective": _interface(r, 0.15),
                "imposed": _interface(r, 0.15),
            }
            if mappings and r.random() < 0.25:
                terms["mapping"] = _mapping(r)
            g.join(child, parent, **terms)
    return g


def police(r: Random, g: ScopeGraph) -> None:
    """Policies that remember nothing, at some of the scopes; members have what these ask for."""
    for id, node in g.nodes.items():
        if not node.is_scope:
            g.set_attributes(id, {"privilege": r.randint(0, 3), "load": r.randint(0, 3)})
    ids = sorted(g.nodes)
    for id in [id for id in ids if g.nodes[id].is_scope]:
        for kind in (Kind.PUBLISHING, Kind.DELIVERY, Kind.INTERNAL):
            if r.random() < 0.25:
                policy = r.choice(
                    [
                        Broadcast(),
                        Nobody(),
                        Only(tuple(r.sample(ids, min(3, len(ids))))),
                        Chain(tuple(r.sample(ids, min(3, len(ids))))),
                        ByProducer(Filter("load > 0")),
                        RequirePrivilege(r.randint(1, 2)),
                        ByPath(r.choice(ids), r.random() < 0.5),
                        OneOfN("hash", "kind"),
                        TopK("load", r.randint(1, 2), r.random() < 0.5),
                    ]
                )
                g.set_policy(id, kind, policy)


def random_notification(r: Random) -> Notification:
    content = {"kind": r.choice(KINDS)}
    if r.random() < 0.8:
        content["x"] = r.randint(0, 9)
    return Notification(content)


def _interface(r: Random, given: float) -> Interface:
    def half() -> list[str] | bool | None:
        if r.random() >= given:
            return None
        if r.random() < 0.5:
            return True
        texts = [f"kind = '{kind}'" for kind in KINDS] + ["x > 4", "x < 7", "kind = 'a' and x > 2"]
        return r.sample(texts, r.randint(0, 3))

    return Interface.of(half(), half())


def _mapping(r: Random) -> EdgeMapping:
    def one() -> object:
        match r.randrange(4):
            case 0:
                return None
            case 1:
                return mapping_of({"x": Arithmetic("+", Attribute("x"), Constant(r.randint(1, 3)))})
            case 2:
                return mapping_of({"kind": r.choice(KINDS)})
            case _:
                return mapping_of(drop=["x"])

    return EdgeMapping(one(), one())
