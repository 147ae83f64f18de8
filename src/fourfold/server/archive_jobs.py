"""Jobs that maintain what a store has published: compact, index, companions.

They run in this process, which has the databases open for writing; files are built in a child
process, as those of the background are. A cancelled job keeps what it has done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fourfold.archive.child_process import ChildStopped
from fourfold.errors import FourfoldError
from fourfold.store import Store

if TYPE_CHECKING:
    from fourfold.models.streams.archive.maintenance import MaintenanceResult, MaintenanceTurn

Advance = Callable[[str, int, int], None]
"""Called with what is being worked on, the steps done and all steps."""
COMPACT_FILES: Final = 2
"""A table with this many new files is compacted."""


class ArchiveJob:
    """One job over the archive of a store.

    Args:
        store: The store.
        check: Raises if the job was cancelled.
        is_cancelled: Returns True if it was.
        advance: Records progress.
    """

    def __init__(
        self,
        store: Store,
        check: Callable[[], None],
        is_cancelled: Callable[[], bool],
        advance: Advance,
    ) -> None:
        self._store = store
        self._check = check
        self._is_cancelled = is_cancelled
        self._advance = advance
        self.failures: dict[str, FourfoldError] = {}
        """Errors of streams, by name; the others are done."""

    def compact(self) -> dict[str, Any]:
        """Compact the archive tables, then the segments of streams."""
        from fourfold.store import table_maintenance  # noqa: PLC0415 - few stores publish

        tables = removed = added = 0
        names = [table.name for table in self._store.archive_tables()]
        for done, name in enumerate(names):
            self._check()
            self._advance(name, done, len(names))
            result = table_maintenance.compact_one(
                self._store, self._check, files_max=COMPACT_FILES, tables=[name]
            )
            if result is not None:
                tables += 1
                removed += result.removed_files
                added += result.added_files
        segments = self._run(lambda archive, turn: archive.upkeep.compact(turn))
        return {
            "tables": tables,
            "files": removed,
            "compacted_files": added,
            "segments": segments.segments,
            "compacted_segments": segments.compacted,
        }

    def index(self) -> dict[str, Any]:
        """Index the published segments of streams."""
        result = self._run(lambda archive, turn: archive.upkeep.index(turn=turn))
        return {
            "streams": len(result.streams),
            "segments": result.segments,
            "runs": result.runs,
        }

    def build_companions(self) -> dict[str, Any]:
        """Build the search companions of published segments."""
        result = self._run(lambda archive, turn: archive.upkeep.build_companions(turn))
        return {"streams": len(result.streams), "companions": result.companions}

    def _run(self, work: Callable[[Any, MaintenanceTurn], MaintenanceResult]) -> MaintenanceResult:
        # Few stores publish.
        from fourfold.models.streams.archive.maintenance import MaintenanceResult  # noqa: PLC0415
        from fourfold.store.publish import has_streams  # noqa: PLC0415

        if not has_streams(self._store):
            return MaintenanceResult()
        archive = self._store.archive
        with self._turn() as turn:
            result = work(archive, turn)
        self._check()
        self.failures |= result.failures
        return result

    @contextmanager
    def _turn(self) -> Iterator[MaintenanceTurn]:
        try:
            with self._store.archive.turn(self._is_cancelled, self._advance) as turn:
                yield turn
        except ChildStopped:
            self._check()
            raise
