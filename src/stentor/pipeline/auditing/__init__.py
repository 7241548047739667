"""The trace checker on Spark: which guarantee was broken, in runs of any size.

    audit(trace)                     the judgment; equal to that of `stentor.semantics.check`
    write_trace(trace, path)         a run as JSON lines or Parquet
    read_traces(spark, path)         many such runs as a trace table
    trace_frame(spark, trace)        a trace table from traces in memory

`table` says what a trace table holds, and `slices` how runs are cut so that the local checker can
judge each slice by itself.
"""

from stentor.pipeline.auditing.audits import Audit, AuditReport, Fault, audit
from stentor.pipeline.auditing.files import read_traces, write_trace
from stentor.pipeline.auditing.table import trace_frame
from stentor.semantics.orders import ORDERS

__all__ = [
    "ORDERS",
    "Audit",
    "AuditReport",
    "Fault",
    "audit",
    "read_traces",
    "trace_frame",
    "write_trace",
]
