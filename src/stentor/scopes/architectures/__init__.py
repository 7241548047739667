"""Ways to build scopes from simpler things, each held to the model by generated graphs.

Brokers carry the graph with them and decide at the entry and at the border; this package has the
other architectures of sheet 05, as small as they can be to run: to compare them, to choose one for
a system of one's own, and because each shows what the model leaves open.

| File | The architecture |
|---|---|
| `rooted` | annotate with visibility roots, over any simple service (04/A3) |
| `mapping_components` | a pair of components on every edge between scopes (04/A6) |
| `media` | an administrator for each scope, over a medium of its own; several in one graph |
| `integrated` | routing tables for each broker and scope, and where scopes are crossed (05/§4.10) |
| `advisor` | which of them suits, by the ratings of the literature |

Collapsed filters are in `stentor.scopes.collapsed`, which the data pipeline uses as well.
"""

from stentor.scopes.architectures.advisor import RATINGS, advise
from stentor.scopes.architectures.integrated import IntegratedRouting
from stentor.scopes.architectures.mapping_components import MappingComponents
from stentor.scopes.architectures.media import ScopeMedia
from stentor.scopes.architectures.rooted import RootedScopes

__all__ = [
    "RATINGS",
    "IntegratedRouting",
    "MappingComponents",
    "RootedScopes",
    "ScopeMedia",
    "advise",
]
