"""The pipeline beside its limits: native Parquet for scans, a plain Python fold for states.

`python -m bench.pipeline` runs all parts, or some: `--only scan,materialize`. Results of a day are
put together in one file, bench/results/pipeline-<date>.json, and `--docs` writes the newest of them
into docs/performance.md.
"""

from __future__ import annotations
