"""A job without Spark that counts the lines of files, for tests of the job interface.

As a program it kills itself at the given point: `counting_job.py ROOT INPUT OUTPUT POINT`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from fourfold.pipeline import jobs
from fourfold.pipeline.jobs import Job, Option, Plan, Range, Report

POINTS = ("plan", "run", "step", "staged", "commit", "committed")


class Counting(Job):
    name = "count-lines"
    summary = "Add up the numbers in the lines of files."
    options = (
        Option("input", "A folder of files.", kind="path", required=True),
        Option("into", "The file to write.", kind="path", required=True),
        Option("speed", "Nothing.", choices=("slow", "fast"), default="fast"),
        Option("fail", "Fail with this.", default=None),
    )

    def __init__(self, reach=lambda point: None):
        self.reach = reach
        self.computed = []

    def target(self, context):
        return str(context.options["into"])

    def plan(self, context):
        self.reach("plan")
        ranges = []
        for file in sorted(Path(context.options["input"]).iterdir()):
            lines = len(file.read_text().splitlines())
            if context.skip_bad and file.suffix == ".bad":
                context.skip(file.name, "it is bad")
            if lines > context.after(file.name):
                ranges.append(Range(file.name, context.after(file.name), lines))
        return Plan(output=self.target(context), ranges=tuple(ranges), empty=not ranges)

    def run(self, context, plan):
        self.reach("run")
        if context.options["fail"]:
            raise ValueError(context.options["fail"])
        for each in plan.ranges:
            if each.source not in context.finished:
                lines = (Path(context.options["input"]) / each.source).read_text().splitlines()
                self.computed.append(each.source)
                context.finish(each.source, sum(map(int, lines[each.after : each.upto])))
                self.reach("step")
        staged = context.staging / "sum"
        staged.write_text(str(sum(context.finished[each.source] for each in plan.ranges)))
        self.reach("staged")
        return staged

    def commit(self, context, plan, result):
        self.reach("commit")
        output = Path(context.options["into"])
        state = json.loads(output.read_text()) if output.exists() else {"sum": 0, "done": []}
        if plan.key not in state["done"]:
            state["sum"] += int(result.read_text())
            state["done"].append(plan.key)
            partial = output.with_suffix(".partial")
            partial.write_text(json.dumps(state))
            partial.replace(output)
        self.reach("committed")
        rows = sum(each.upto - each.after for each in plan.ranges)
        return Report(rows_in=rows, rows_out=1, facts={"sum": state["sum"]})


def main(root, source, into, point):
    def reach(reached):
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    done = jobs.run(Counting(reach), root, {"input": source, "into": into})
    print(json.dumps([done.outcome, done.resumed]))


if __name__ == "__main__":
    main(*sys.argv[1:])
