"""Run an archive job in small steps until it is done or killed.

`archive_job_child.py JOB ROOT OPTIONS`, where the options are JSON.
"""

from __future__ import annotations

import json
import sys

from fourfold.models.streams.archive import bootstrapper
from fourfold.pipeline import jobs, session
from fourfold.pipeline.jobs import seal


def main(job, root, options):
    # Many transactions, so that a kill is likely between two of them.
    seal.SEAL_WAVE_STREAMS = 30
    seal.SEAL_COMMIT_SEGMENTS = 7
    bootstrapper.BOOTSTRAP_STREAMS = 5
    print("started", flush=True)
    jobs.run(job, root, json.loads(options), spark=session("local[2]"), progress=report)
    print("done", flush=True)


def report(what, done, of):
    print(what, done, of, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
