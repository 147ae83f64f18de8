"""Make the golden stores of this version: `python tests/golden/make_golden.py`.

Run it once for each release, commit the new folder, and never change it again. It writes
`<version>/stores.tar.xz` (a store for each model and history, a store with everything, published
into its own `objects/`, and a backup of that) and `<version>/expected.json` (what was read).
"""

from __future__ import annotations

import io
import json
import lzma
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import golden_store

import fourfold

HERE = Path(__file__).parent


def make(folder: Path) -> dict[str, Any]:
    """Write every store below `folder`; returns what each of them reads."""
    expected: dict[str, Any] = {}
    for name, (write, read) in golden_store.STORES.items():
        with fourfold.open(folder / name) as store:
            write(store)
        with fourfold.open(folder / name) as store:
            expected[name] = read(store)
    with fourfold.open(folder / "everything") as store:
        golden_store.write_everything(store)
        report = store.publish()
        assert not report.failures
        store.backup(folder / "backup")
    with fourfold.open(folder / "everything") as store:
        expected["everything"] = golden_store.read_everything(store)
    return json.loads(json.dumps(expected))


def pack(folder: Path) -> bytes:
    """Pack all files, without locks and shared memory, with fixed owners and times."""
    packed = io.BytesIO()
    with (
        lzma.open(packed, "wb", preset=9 | lzma.PRESET_EXTREME) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith((".lock", "-shm")):
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size = path.stat().st_size
                tar.addfile(entry, io.BytesIO(path.read_bytes()))
    return packed.getvalue()


def main() -> None:
    target = HERE / fourfold.__version__
    target.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        expected = make(Path(scratch))
        (target / "stores.tar.xz").write_bytes(pack(Path(scratch)))
    text = json.dumps(expected, sort_keys=True, ensure_ascii=False)
    (target / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
