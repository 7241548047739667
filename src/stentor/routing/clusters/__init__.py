"""Clusters: a tree of cells, each of which is several brokers that stand in for each other."""

from stentor.routing.clusters.cells import CellId, Cells
from stentor.routing.clusters.router import CellRouter

__all__ = ["CellId", "CellRouter", "Cells"]
