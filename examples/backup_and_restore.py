"""Back up a store in use, lose the store, and bring it back.

Run it: `python examples/backup_and_restore.py`. It works in a temporary folder.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import fourfold
from fourfold.kernel import Migration, Sequence, Transaction

ORDER = Sequence.named("orders")
SCHEMA = Migration(
    1, "orders", "CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL)"
)


def place(customer: str) -> Callable[[Transaction], int]:
    def work(txn: Transaction) -> int:
        number = txn.claim(ORDER)
        txn.execute("INSERT INTO orders VALUES (?, ?)", (number, customer))
        return number

    return work


def main(folder: Path) -> None:
    root, copy = folder / "shop", folder / "shop-backup"
    with fourfold.open(root) as store:
        shop = store.database("shop", migrations=[SCHEMA], sequences=[ORDER])
        for customer in ("ada", "grace", "barbara"):
            shop.transact(place(customer))
        report = store.backup(copy)
        print(f"backed up {report.databases} database, {report.bytes} bytes")

    shutil.rmtree(root)
    fourfold.restore(copy, root)

    with fourfold.open(root) as store:
        shop = store.database("shop", migrations=[SCHEMA], sequences=[ORDER])
        with shop.read() as snapshot:
            names = [name for (name,) in snapshot.rows("SELECT customer FROM orders")]
        print("restored:", ", ".join(names), "and the next number is", shop.transact(place("alan")))


with tempfile.TemporaryDirectory() as scratch:
    main(Path(scratch))
