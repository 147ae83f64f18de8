"""Make the golden stores of a release from its revision in git.

    python tests/golden/from_revision.py REVISION VERSION

The code and the script of that revision write `tests/golden/VERSION`, so a store is what users of
that version have. Afterwards the migrations of the revision are released: their checksums are added
to `released_migrations.json`, and a test holds later versions to them. Run it once per release.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from fourfold.kernel import Migration

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RELEASED = HERE / "released_migrations.json"
SIZE_MAX = 300_000
"""Bytes of the stores of one version."""


def checkout(revision: str, folder: Path) -> None:
    """Write the files of a revision into a folder."""
    command = ["git", "archive", revision, "src", "tests/golden"]
    packed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")


def checksums(source: Path) -> dict[str, str]:
    """Return the checksums of all migrations below a folder, by name; packages may be renamed."""
    found: dict[str, str] = {}
    for path in sorted(source.rglob("[0-9][0-9][0-9][0-9]_*.sql")):
        assert path.name not in found
        found[path.name] = Migration(1, path.stem, path.read_text(encoding="utf-8")).checksum
    return found


def make(revision: str, version: str) -> None:
    """Write the golden stores of a version, and record its migrations."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        checkout(revision, folder)
        golden = folder / "tests" / "golden"
        for earlier in golden.glob("*/expected.json"):
            shutil.rmtree(earlier.parent)
        environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
        script = golden / "make_golden.py"
        subprocess.run([sys.executable, script], cwd=folder, env=environment, check=True)
        (result,) = (path.parent for path in golden.glob("*/expected.json"))
        assert (result / "stores.tar.xz").stat().st_size <= SIZE_MAX
        (HERE / version).mkdir()
        for name in ("expected.json", "stores.tar.xz"):
            (HERE / version / name).write_bytes((result / name).read_bytes())
        released = json.loads(RELEASED.read_text(encoding="utf-8"))
        released[version] = checksums(folder / "src" / "fourfold")
        RELEASED.write_text(f"{json.dumps(released, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    make(*sys.argv[1:])
