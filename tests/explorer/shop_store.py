"""A store with something on every page, and a store whose names and values attack the pages."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sync_store import fill_sync

import fourfold
from fourfold import Final, Producer, Runtime
from fourfold.models.sessions.runtime import Question
from fourfold.models.streams.archive import sealer
from fourfold.models.streams.subscriptions import Subscribe
from fourfold.pipeline import jobs
from fourfold.pipeline.jobs import Job, Option, Plan, Range, Report
from fourfold.pipeline.jobs.table_folder import TableFolder
from fourfold.store.table_manifest import FolderManifest, MaterializedFile

DID = "did:web:shop.example"
ORDER = "order:1042"
AGENT = "agent/refund-of-a-large-order"
ASKER = "agent/asks"
PROBE = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"
"""Text that does harm if a page inserts it without escaping."""


def fill_shop(root):
    """Write orders with a history, three branches with a conflict, and two streams."""
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.set(
            ORDER,
            {
                "customer": {"name": "Ada Lovelace", "city": "London"},
                "items": [{"sku": "tea-100", "qty": 4, "price": 4.5}],
                "status": "draft",
                "total": 18.0,
                "notes": "Ring twice.",
            },
        )
        space.set("sku:tea-100", {"name": "Green tea", "price": 4.5})
        space.set("sku:cup-7", {"name": "Cup", "price": 12.0})
        for quantity in range(5, 15):
            patches = [
                {"op": "replace", "path": "/items/0/qty", "value": quantity},
                {"op": "replace", "path": "/total", "value": 4.5 * quantity},
            ]
            space.patch(ORDER, patches)
        space.branches.create("import-fix")
        space.patch("sku:cup-7", [_replace("/name", "Tall cup")], branch="import-fix")
        space.branches.merge("import-fix")
        space.branches.delete("import-fix")
        space.branches.create("discount")
        space.patch(ORDER, [_replace("/total", 67.5), _add("/coupon", "TEA10")], branch="discount")
        space.patch("sku:tea-100", [_replace("/price", 4.05)], branch="discount")
        space.patch(ORDER, [_replace("/total", 70.0), _replace("/status", "paid")])
        space.set("order:1041", {"status": "cancelled"})
        space.delete("order:1041")
        space.indexes.create("words", ["/notes", "/name"], kind="text")
        space.indexes.create("by_status", "/status")
        fill_blobs(space)
        store.space("did:web:notes.example").set("note:1", {"text": "No index."})
        fill_memory(store, "assistant", "leek soup")
        orders = store.streams.create("orders", content_type="application/json")
        for number in range(120):
            orders.append({"id": number, "total": number * 1.5, "status": STATES[number % 3]})
        logs = store.streams.create("logs/till-1", content_type="text/plain")
        logs.append(b"till opened")
        fill_graph(store)
        fill_session(store)
        run_agent(store)
        for number in range(60):
            store.streams.create(f"sensors/{number:03}", content_type="application/json")
    run_pipeline(root)


def fill_payments(root):
    """Write a stream with producers, subscriptions, a schema, and segments in both places."""
    with fourfold.open(root, settings={"archive.seal_rows": 10}) as store:
        streams = store.streams
        streams.create("wakes", content_type="application/json")
        payments = streams.create("payments", content_type="application/json")
        payments.set_schema({"type": "object", "required": ["id"]})
        for number in range(125):
            producer = Producer(f"till-{number % 12:02}", 1, number // 12)
            payments.append({"id": number}, producer=producer)
        store.archive.publish_all()
        for number in range(125, 150):
            payments.append({"id": number})
        folder = store.archive.folder / "local"
        options = {"policy": store.archive.policy, "folder": folder, "now_ms": 1}
        sealer.seal(streams.database, "payments", **options)
        for id_, pattern, names in (("ledger", None, ["payments"]), ("audit", "pay*", [])):
            wanted = Subscribe(id_, "pull-wake", pattern, names, wake_stream="wakes")
            streams.subscriptions.create(wanted)
        payments.append({"id": 150})


PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)


def fill_blobs(space, text="brewing"):
    """Store a picture, a page that would run, a text, and bytes."""
    blobs = space.blobs
    blobs.put(PICTURE, "image/png", metadata={"name": f"{text}.png"})
    blobs.put(f"<script>alert(1)</script>{text}".encode(), "text/html")
    blobs.put(f'{{"for": "{len(text)}"}}'.encode(), "application/json")
    blobs.put(bytes(range(200)), "application/octet-stream")


def fill_memory(store, name, text):
    """Write a memory with an item that changed, one that expires, and one that is forgotten."""
    memory = store.memory(name)
    memory.put(("users", "ada"), "food", {"likes": text})
    memory.put(("users", "ada"), "food", {"likes": f"more {text}", "since": 2026})
    memory.put(("users", text), "city", {"name": text}, ttl_s=90_000)
    memory.put(("policy",), "refund", {"text": "Up to 70.00."})
    memory.forget(("policy",), "refund")


def fill_graph(store, name="crm", text="Ada"):
    """Write a customer with an attribute, two orders, and a ticket about the customer."""
    graph = store.graphs.create(name, text)
    customer, order, ticket = (
        graph.register_type("parent", kind) for kind in ("customer", "order", f"ticket {text}")
    )
    title = graph.register_type("attr", f"name {text}")
    placed, about = (graph.register_type("edge", kind) for kind in ("placed", f"about {text}"))
    [ada] = graph.insert("parent", [{"type_id": customer, "owner_identity": 1}])
    value = {"type_id": title, "owner_identity": 1, "parent_id": ada, "value_text": text}
    graph.insert("attr", [value])
    for _ in range(2):
        [bought] = graph.insert("parent", [{"type_id": order, "owner_identity": 1}])
        edge = {"type_id": placed, "owner_identity": 1, "src_parent_id": ada}
        graph.insert("edge", [{**edge, "dst_parent_id": bought}])
    [question] = graph.insert("parent", [{"type_id": ticket, "owner_identity": 2}])
    edge = {"type_id": about, "owner_identity": 2, "src_parent_id": question}
    graph.insert("edge", [{**edge, "dst_parent_id": ada}])


def fill_session(store, sid="support/1042", text="Where is order 1042?"):
    """Write a session with a finished turn, a failed call, a head and a fork."""
    session = store.sessions.create({"id": sid, "model": text})
    user = {"role": "user", "content": text, "turn_id": 1}
    call = {"name": text, "status": "error", "error": text, "turn_id": 1, "step_id": 1}
    session.append({"type": "message/appended", "message": user})
    session.append({"type": "turn/started", "turn": {"status": "running"}})
    session.append({"type": "step/started", "step": {"status": "running", "turn_id": 1}})
    session.append({"type": "eval/added", "eval": call})
    said = {"role": "assistant", "content": {"answer": text}, "turn_id": 1}
    session.append({"type": "message/appended", "message": said})
    session.append({"type": "step/put", "step": {"id": 1, "status": "done", "turn_id": 1}})
    session.append({"type": "turn/put", "turn": {"id": 1, "status": "final", "final_ref": text}})
    store.sessions.publish_head(sid, {"kind": "turn-final", "turn_id": 1})


def run_agent(store):
    """Run two turns of an agent with a large result, a child and a failed call, and fork it."""
    agent = Runtime(store.sessions, _step)
    agent.start({"id": AGENT, "model": "small"})
    agent.run_turn(AGENT, "Refund it.")
    head = store.sessions.current_view(AGENT).current_head
    agent.run_turn(AGENT, "Refund it, too.")
    store.sessions.fork(AGENT, {"id": "agent/fork"}, at=head)
    ask_person(store, ASKER, "Refund 120.00?\nIt is above my limit.")


def ask_person(store, sid, question):
    """Run a turn that ends with a question."""
    agent = Runtime(store.sessions, lambda _turn: Question(question))
    agent.start({"id": sid, "model": "small"})
    agent.run_turn(sid, "Refund it.")


def _step(turn):
    number = turn.number
    turn.use(input_tokens=100 * number, output_tokens=10 * number, cost=0.001 * number)
    if number == 1:
        turn.call("search", lambda: "Goods that arrive broken are refunded. " * 20)
        return None
    if number == 2:
        turn.run_child("Is it plausible?", step=lambda child: Final(True))
        return None
    try:
        turn.call("refund", _refuse)
    except fourfold.errors.CallFailed:
        turn.vars["refunds"] = turn.vars.get("refunds", 0) + 1
    turn.say("assistant", f"I may not, {turn.id}.")
    return Final(f"I may not, {turn.id}.")


def _refuse():
    raise ValueError("above the limit")


class WriteTables(Job):
    """A job of the pipeline that writes the ids of a space as a table, without Spark."""

    name = "write-tables"
    options = (Option("into", "The folder.", kind="path", required=True), Option("model", ""))
    did = DID

    def target(self, context):
        return str(context.options["into"])

    def plan(self, context):
        return Plan(output=self.target(context), ranges=(Range(self.did, 0, 21),))

    def run(self, context, plan):
        folder = TableFolder(Path(plan.output))
        staging = folder.staging(context.work)
        path = staging / "ids" / "0.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"id": ["order:1041", "order:1042"]}), path)
        files = (MaterializedFile("ids/0.parquet", 2, path.stat().st_size),)
        origin, spaces = {"root": str(context.root)}, {self.did: 21}
        manifest = FolderManifest(1, context.work, origin, spaces, files, tables=("ids",))
        folder.replace(staging, manifest)
        return manifest

    def commit(self, context, plan, result):
        return Report(rows_in=21, rows_out=result.rows)


class Fail(WriteTables):
    """A job of the pipeline that fails with a path in its message."""

    name = "fail"

    def run(self, context, plan):
        raise fourfold.errors.CorruptData(f"{plan.output}: a page is damaged")


def run_pipeline(root, did=DID):
    """Run two jobs of the pipeline, of which one fails."""
    job = WriteTables()
    job.did = did
    jobs.run(job, root, {"into": root.with_name(f"{root.name}-ids"), "model": "documents"})
    with contextlib.suppress(fourfold.errors.CorruptData):
        jobs.run(Fail(), root, {"into": root.with_name("none")})


def run_job(server, kind, **options):
    """Start a job of a server, and return it when it has ended."""
    body = json.dumps({"kind": kind, **options})
    answer = server.ask("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
    assert answer.status == 202, answer.text
    path = answer.headers["location"]
    # Events are sent until the job has ended.
    server.ask("GET", f"{path}/events")
    return json.loads(server.ask("GET", path).text)


STATES = ("placed", "paid", "shipped")


def fill_probes(root):
    """Write a probe into every name and value that may hold one."""
    with fourfold.open(root) as store:
        space = store.space("did:web:probe.example")
        space.set(PROBE, {PROBE: PROBE, "list": [PROBE, {"<b>": None}]})
        space.patch(PROBE, [{"op": "add", "path": "/more", "value": f"</script>{PROBE}"}])
        space.branches.create("other")
        space.patch(PROBE, [_replace("/more", "other")], branch="other")
        space.patch(PROBE, [_replace("/more", PROBE)])
        fill_blobs(space, PROBE)
        name = PROBE.replace("/", "|")
        stream = store.streams.create(name, content_type="application/json")
        stream.append({PROBE: PROBE})
        text = store.streams.create("text<script>alert(4)<|script>", content_type="text/html")
        text.append(PROBE.encode())
        fill_memory(store, "probe", PROBE)
        fill_graph(store, "probe", PROBE)
        fill_sync(store.graphs, PROBE, domain=PROBE)
        fill_session(store, "probe", PROBE)
        ask_person(store, "asks", PROBE)
    run_pipeline(root, PROBE)
    return name


def _replace(path, value):
    return {"op": "replace", "path": path, "value": value}


def _add(path, value):
    return {"op": "add", "path": path, "value": value}
