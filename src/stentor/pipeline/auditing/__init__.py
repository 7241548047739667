"""The trace checker as Spark jobs: which guarantee was broken, in runs of any size.

    audit(trace)                     the judgment; equal to that of `stentor.semantics.check`
    write_trace(trace, path)         a run as JSON lines or Parquet
    read_traces(spark, path)         many such runs as a trace table
    trace_frame(spark, trace)        a trace table from traces in memory
    collect_trace(frame, run)        one run of a trace table as a trace in memory

`table` says what a trace table holds, `words` what a violation is. The conditions are in `safety`,
`liveness`, `fifo`, `causality` and `totals`; `acts`, `intervals`, `relevance` and `history` make
the tables that they read.
"""

from stentor.pipeline.auditing.audits import ORDERS, Audit, audit
from stentor.pipeline.auditing.files import read_traces, write_trace
from stentor.pipeline.auditing.report import AuditReport, Fault
from stentor.pipeline.auditing.table import collect_trace, trace_frame

__all__ = [
    "ORDERS",
    "Audit",
    "AuditReport",
    "Fault",
    "audit",
    "collect_trace",
    "read_traces",
    "trace_frame",
    "write_trace",
]
