"""A process that puts blobs until it is killed, and says of each when it is stored.

python blob_writer.py ROOT SEED
"""

from __future__ import annotations

import random
import sys

from fourfold.blobs import FolderBlobs
from fourfold.content import content_id


def blob(rng: random.Random) -> bytes:
    size = rng.choice([0, 1, 600, 5_000, 300_000, 6_000_000, 6_000_000])
    return rng.randbytes(1000) * (size // 1000) + rng.randbytes(size % 1000)


def main(root: str, seed: str) -> None:
    store = FolderBlobs(root)
    rng = random.Random(int(seed))
    old = b"again"
    while True:
        data = old if rng.random() < 0.1 else blob(rng)
        # The id goes out before the write, so that a torn file differs from one never tried.
        print("try", content_id(data), flush=True)
        if rng.random() < 0.5:
            done = store.put(data)
        else:
            done = store.put_stream(data[at : at + 50_000] for at in range(0, len(data), 50_000))
        print("done", done, flush=True)
        old = data


if __name__ == "__main__":
    main(*sys.argv[1:])
