"""Scopes: modules of event-based components, that administrators control and components never see.

A scope bundles components. What crosses its boundary is decided by interfaces, translated by
mappings and governed by policies. This package is the model itself, without a network; it decides
and does nothing else. The page for users is docs/scopes.md.

    g.create_scope, join, leave, destroy_scope, add_component, remove_component, set_…
    g.add_rule(MembershipRule(scope, where))   membership by what components say of themselves
    g.set_attributes(component, …)             … which is followed again when that changes
    g.visible(x, y), g.roots(x)                who could see whom
    g.deliveries(n, publisher)                 who gets what; policies go on to their next state
    g.outcome(n, publisher, explain=True)      the same without a trace, with every refusal;
    g.commit(outcome)                          … what policies have decided there takes effect
    g.advance(now)                             what a policy has delayed and is due

Names of nodes are ids: of a client, its name. `interests=` says who subscribes to what, if that is
known better than by the declared interfaces (`Interests`: two methods); the cost of a publication
is then that of the scopes that it reaches and of those who want it, not of all members.
`outcome.reached` has the scopes in which each version is visible. `g.epoch` rises with every
change; `g.watchers` hear of each edge that comes or goes. `ScopeGraph(default_scope=…)` makes
everybody who is in no scope a member of one.

| File | The one idea |
|---|---|
| `graph` | structure, and every change to it |
| `nodes`, `interfaces`, `mappings`, `expressions`, `policies` | what it is made of |
| `membership` | membership by rule |
| `crossing` | how one edge is crossed: the effective interface |
| `dissemination` | where a notification goes: the reference router |
| `language` | the scope graph language: `ScopeGraph.load` |
| `drawing`, `layout`, `picture` | a graph for people: as text, as SVG |
| `collapsed` | the same as one filter for each pair, where there are only interfaces |
| `architectures/` | other ways to build the same from simpler things, and an advisor |
"""

from stentor.scopes.crossing import Interests
from stentor.scopes.dissemination import Delivery, Outcome, Postponed, Reached, Refusal
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import CLOSED, OMITTED, OPEN, Interface
from stentor.scopes.mappings import (
    ContentMapping,
    EdgeMapping,
    FunctionMapping,
    mapping_of,
    register_mapping,
)
from stentor.scopes.membership import MembershipRule
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.policies import Answer, Kind, Question, policy_of, register_policy

__all__ = [
    "CLOSED",
    "OMITTED",
    "OPEN",
    "Answer",
    "ContentMapping",
    "Delivery",
    "Edge",
    "EdgeMapping",
    "FunctionMapping",
    "Interests",
    "Interface",
    "Kind",
    "MembershipRule",
    "Node",
    "Outcome",
    "Postponed",
    "Question",
    "Reached",
    "Refusal",
    "ScopeGraph",
    "mapping_of",
    "policy_of",
    "register_mapping",
    "register_policy",
]
