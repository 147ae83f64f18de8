"""What is measured: each line of the result, the form that Fourfold takes, and the C forms that do
the same job. The best of the C forms is the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.loops import loops as known_loops

BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of one side. Two lines that need the same run share it."""

    side: str
    form: str
    rows: int
    batch: int = 0
    """Rows of a transaction; 0 lets the kernel group as it does."""
    callers: int = 0
    one_key: bool = False

    @property
    def label(self) -> str:
        size = f" x{self.callers}" if self.callers else f" of {self.batch}"
        return f"{self.side} {self.form}{size}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the result."""

    name: str
    workload: str
    title: str
    form: str
    rivals: tuple[str, ...]
    rows: int
    quick_rows: int
    target: float | None = None
    callers: int = 0
    batch: int = 0
    """Rows of a transaction in C; 0: as many as the kernel's groups had on average."""
    one_key: bool = False

    @property
    def bulk(self) -> bool:
        return not self.callers

    def subject(self, *, quick: bool) -> Run:
        batch = self.batch if self.bulk else 0
        rows = self.quick_rows if quick else self.rows
        return Run("fourfold", self.form, rows, batch, self.callers, self.one_key)

    def limits(self, *, quick: bool, group: int, carray: bool) -> list[Run]:
        """The C runs; `group` is the mean size of the kernel's groups in this line."""
        rows = self.quick_rows if quick else self.rows
        forms = [form for form in self.rivals if carray or form != "carray"]
        return [
            Run("C", form, rows, self.batch or max(1, group), one_key=self.one_key)
            for form in forms
        ]


def _requests(
    name: str,
    workload: str,
    form: str,
    callers: int,
    *,
    rows: int,
    target: float | None = None,
    batch: int = 0,
    rival: str = "requests",
) -> Line:
    kind = "thread" if form == "threads" else f"coroutine ({form.replace(' ', ', ')})"
    if callers == 1:
        title = f"One idle {kind}"
    else:
        title = f"Group commit, {callers} {kind.replace('coroutine', 'coroutines')}"
        title += "s" if form == "threads" else ""
    return Line(
        name=name,
        workload=workload,
        title=title,
        form=form,
        rivals=(rival,),
        rows=rows,
        quick_rows=max(1_000, rows // 5),
        target=target,
        callers=callers,
        batch=batch,
    )


def all_lines() -> list[Line]:
    loops = known_loops()
    lines = [
        Line(
            name="bulk-one-key",
            workload="A",
            title="Bulk insert, one key",
            form="insert_series",
            rivals=("carray", "values 128", "values 128 fail", "values 400", "loop"),
            rows=500_000,
            quick_rows=200_000,
            target=0.85,
            batch=BATCH,
            one_key=True,
        ),
        Line(
            name="bulk-mixed-keys",
            workload="B",
            title="Bulk insert, mixed keys",
            form="insert_many",
            rivals=("values 128 fail", "values 32 fail", "values 128", "values 400", "loop"),
            rows=300_000,
            quick_rows=100_000,
            target=0.75,
            batch=BATCH,
        ),
    ]
    lines += [_requests(f"group-64-{f}", "C", f, 64, rows=120_000, target=0.70) for f in loops]
    lines.append(_requests("group-64-threads", "D", "threads", 64, rows=60_000))
    lines += [
        _requests(f"idle-{form}", "E", form, 1, rows=8_000, target=0.60, batch=1)
        for form in ("threads", *loops)
    ]
    told = _requests("group-64-told", "F", f"{loops[0]} told", 64, rows=120_000, rival="claims")
    lines.append(told)
    lines += [
        _requests(f"group-{callers}-{form}", "F", form, callers, rows=rows)
        for callers, rows in ((16, 60_000), (256, 120_000))
        for form in (loops[0], "threads")
    ]
    return lines


WORKLOADS = {
    "A": "bulk insert, one key",
    "B": "bulk insert, mixed keys",
    "C": "group commit, 64 coroutines",
    "D": "group commit, 64 threads",
    "E": "one idle caller",
    "F": "for information: 16 and 256 callers, and callers that are told their position",
}
