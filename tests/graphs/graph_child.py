"""A process that works on a graph until it is killed, and says what was acknowledged.

write PATH            envelopes from several threads, one line for each number
ingest PATH PACKAGES  take in the packages of a folder in order, one line for each
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from graph_nodes import APP, open_graphs

from support.crash import acknowledge, ready

THREADS = 3


def write(path):
    graphs = open_graphs(Path(path))
    types = {each.kind: each.id for each in graphs.list_types(APP)}
    ready()
    threads = [
        threading.Thread(target=work, args=(graphs, types, n), daemon=True) for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def work(graphs, types, thread):
    count = 0
    while True:
        count += 1
        common = {"app_id": APP, "owner_identity": thread}
        body = {"parent_id": {"$op": 0}, "value": f"{thread}-{count}"}
        ops = [
            {"op": "parent_create", "type_id": types["parent"], "payload": {}, **common},
            *[{"op": "attr_create", "type_id": types["attr"], "payload": body, **common}] * 3,
        ]
        done = graphs.apply({"trace_id": f"{thread}-{count}", "ops": ops})
        acknowledge(f"{done.global_seq} {thread}-{count}")


def ingest(path, folder):
    graphs = open_graphs(Path(path))
    (peer,) = graphs.list_peers()
    ready()
    for package in sorted(Path(folder).iterdir()):
        done = graphs.ingest_package(peer.id, package.read_bytes())
        assert not done.refused, done.refused
        acknowledge(package.stem)
    acknowledge("done")


if __name__ == "__main__":
    {"write": write, "ingest": ingest}[sys.argv[1]](*sys.argv[2:])
