"""Clusters: a tree of cells, each of which is several brokers that stand in for each other."""

from stentor.research.clusters.cells import CellId, Cells
from stentor.research.clusters.router import CellRouter

__all__ = ["CellId", "CellRouter", "Cells"]
