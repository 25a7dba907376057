"""Topics as Spark tables: sources, sink and scans on Spark's Python Data Source API, without a jar of ours.

Spark imports the top-level `pyspark_rocketmq*` modules to learn the formats, on the driver and often, and one that
fails takes all formats away with it. So this package imports nothing by itself: not pyarrow, not numpy, no client.
"""

from __future__ import annotations

__all__: list[str] = []
