"""The published clients of the protocol, from PyPI and npm, against a real server.

They are installed into a separate folder, so these tests need a network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

PYPI = "durable-streams==0.1.0"
NPM = "@durable-streams/client@0.2.7"

IN_PYTHON = """
import asyncio, sys, threading
from durable_streams import AsyncDurableStream, DurableStream, astream, stream
from durable_streams import SeqConflictError, StreamExistsError, StreamNotFoundError

root = sys.argv[1]
made = DurableStream.create(f"{root}/items", content_type="application/json", ttl_seconds=3600)
for n in range(50):
    made.append({"n": n})
made.append({"n": 50}, seq="b")
try:
    made.append({"n": -1}, seq="a")
    raise SystemExit("a sequence went back")
except SeqConflictError:
    pass
try:
    DurableStream.create(f"{root}/items", content_type="text/plain")
    raise SystemExit("a stream was made twice")
except StreamExistsError:
    pass
try:
    DurableStream.connect(f"{root}/missing")
    raise SystemExit("a missing stream was found")
except StreamNotFoundError:
    pass
assert made.head().content_type == "application/json"
with stream(f"{root}/items", live=False) as found:
    assert found.read_json() == [{"n": n} for n in range(51)]
    end = found.offset
text = DurableStream.create(f"{root}/text", content_type="text/plain", body="hello ")
text.append("world")
with text.stream(live=False) as found:
    assert found.read_text() == "hello world"

for live in ("long-poll", "sse"):
    writer = threading.Timer(0.2, lambda: made.append({"live": live}))
    writer.start()
    with made.stream(offset=end, live=live) as found:
        for item in found.iter_json():
            assert item == {"live": live}, item
            break
    writer.join()
    end = made.head().offset

async def coroutines():
    made = await AsyncDurableStream.create(f"{root}/async", content_type="application/json")
    await asyncio.gather(*(made.append({"n": n}) for n in range(100)))
    async with await astream(f"{root}/async", live=False) as found:
        assert sorted(item["n"] for item in await found.read_json()) == list(range(100))
    await made.delete()
    await made.aclose()

asyncio.run(coroutines())
made.delete()
text.close()
made.close()
print("done")
"""

IN_NODE = """
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const root = process.argv[2]
const same = (found, wanted) => {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)]
  if (a !== b) throw new Error(`${a} is not ${b}`)
}
const refused = async (work) => {
  try { await work() } catch { return }
  throw new Error("it was allowed")
}

const made = await DurableStream.create({ url: `${root}/items`, contentType: "application/json" })
await made.append(JSON.stringify({ n: 0 }))
await refused(() => DurableStream.create({ url: `${root}/items`, contentType: "text/plain" }))
same((await DurableStream.head({ url: `${root}/missing` })).exists, false)

const options = { lingerMs: 2, maxInFlight: 5, autoClaim: true }
const producer = new IdempotentProducer(made, "till-1", options)
for (let n = 1; n <= 500; n++) producer.append(JSON.stringify({ n }))
await producer.flush()
// Another one of the same id begins the next epoch.
const second = new IdempotentProducer(made, "till-1", { epoch: 1, lingerMs: 2 })
second.append(JSON.stringify({ n: 501 }))
await second.flush()
const caught = await stream({ url: `${root}/items`, offset: "-1", live: false })
same((await caught.json()).map((item) => item.n), [...Array(502).keys()])

for (const live of ["long-poll", "sse"]) {
  const name = `${root}/live-${live}`
  const log = await DurableStream.create({ url: name, contentType: "application/json" })
  const writing = (async () => {
    for (let n = 0; n < 20; n++) await log.append(JSON.stringify(n))
    await log.close()
  })()
  const seen = []
  const following = await stream({ url: name, offset: "-1", live })
  for await (const item of following.jsonStream()) seen.push(item)
  await writing
  same(seen, [...Array(20).keys()])
}
const text = await DurableStream.create({ url: `${root}/text`, contentType: "text/plain" })
await text.append("hello ")
await text.close({ body: "world" })
same(await (await stream({ url: `${root}/text`, live: false })).text(), "hello world")
same((await text.head()).streamClosed, true)
await made.delete()
same((await made.head()).exists, false)
console.log("done")
"""


def install(command, cwd):
    """Install a package, or skip the test if that is not possible, usually without a network."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=250
    )
    if done.returncode:
        pytest.skip(f"{command[-1]} cannot be installed here: {done.stderr.strip()[-200:]}")


def run(command, cwd, **environ):
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


@pytest.mark.slow
def test_pypi_client_works_with_the_server(served, name, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    install([*pip, str(tmp_path / "packages"), PYPI], tmp_path)
    (tmp_path / "use.py").write_text(IN_PYTHON)
    url = f"http://127.0.0.1:{served.port}/v1/stream/{name}"
    run([sys.executable, "use.py", url], tmp_path, PYTHONPATH=str(tmp_path / "packages"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="the client comes from npm")
def test_npm_client_works_with_the_server(served, name, tmp_path):
    (tmp_path / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    (tmp_path / "use.js").write_text(IN_NODE)
    install(["npm", "install", "--no-audit", "--no-fund", NPM], tmp_path)
    url = f"http://127.0.0.1:{served.port}/v1/stream/{name}"
    run(["node", "use.js", url], tmp_path)
