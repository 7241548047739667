"""Measures the data pipeline: Spark itself, and what Stentor adds to it, in one run."""
