"""A process that writes sessions until it is killed, and says what was acknowledged.

write ROOT SEED     append, publish and intern at random from several threads, one line for each
hold ROOT           open the sessions for writing, append one event, and wait to be killed
try ROOT            try to open the sessions for writing, and say what became of it
purge ROOT          collect what was deleted, a few events in each transaction
import ROOT PATH    import a bundle, a few events in each transaction
follow ROOT COUNT   open for reading, and follow the session "s" until so many events came
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

import fourfold
from fourfold.errors import FourfoldError
from fourfold.models.sessions import Payload, bundle, payloads
from support.crash import acknowledge, ready

THREADS = 3


def write(root, seed):
    store = fourfold.open(root)
    ready()
    threads = [
        threading.Thread(target=work, args=(store.sessions, f"{seed}-{number}"), daemon=True)
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def work(sessions, name):
    """Each thread has a session of its own, and all append to one that they share."""
    rng = random.Random(name)
    for sid in (name, "shared"):
        sessions.create_session({"id": sid})
    basis = None
    count = 0
    while True:
        count += 1
        size = rng.choice([10, 700, 700, 70_000])
        content = Payload(f"{name} {count} " + "x" * size)
        event = {"type": "message/appended", "message": {"content": content, "n": count}}
        batch = [event, *({"type": "turn/started", "turn": {"n": count}} for _ in range(2))]
        # Only this thread writes its session, so it always knows the last event.
        last = sessions.peek_next_id(name) - 1
        done = sessions.append_events(name, batch, expected_last_id=last)
        acknowledge(json.dumps(["append", name, [each.id for each in done], count]))
        [shared] = sessions.append_events("shared", [event], key=f"{name}-{count}")
        acknowledge(json.dumps(["append", "shared", [shared.id], count]))
        if rng.random() < 0.3:
            head = sessions.publish_head(name, {"note": count}, expected_basis=basis)
            basis = head.id
            acknowledge(json.dumps(["head", name, head.id, list(head.event_range)]))


def hold(root):
    with fourfold.open(root) as store:
        store.sessions.create_session({"id": "s", "model": "m"})
        acknowledge("held")
        ready()
        time.sleep(600)


def try_to_write(root):
    try:
        with fourfold.open(root) as store:
            made = store.sessions.append_event("s", {"type": "turn/started", "turn": {}})
            acknowledge(json.dumps(["appended", made.id]))
    except FourfoldError as error:
        acknowledge(json.dumps(["refused", error.kind, error.message]))


def purge(root):
    payloads.SESSION_PURGE_EVENTS = 10
    with fourfold.open(root) as store:
        acknowledge(str(store.sessions.gc(0).events))


def import_bundle(root, path):
    bundle.IMPORT_PAGE_EVENTS = 10
    with fourfold.open(root) as store:
        acknowledge(str(store.sessions.import_bundle(path).events))


def follow(root, count):
    with fourfold.open(root, mode="r") as store:
        feed = store.sessions.follow("s", after=0, timeout=60.0)
        ready()
        for item in feed:
            view = store.sessions.current_view("s")
            assert view.counters.event >= item.id
            assert store.sessions.read_state("s").counters.event >= item.id
            acknowledge(str(item.id))
            if item.id == int(count):
                return


if __name__ == "__main__":
    calls = {
        "write": write,
        "hold": hold,
        "try": try_to_write,
        "follow": follow,
        "purge": purge,
        "import": import_bundle,
    }
    calls[sys.argv[1]](*sys.argv[2:])
