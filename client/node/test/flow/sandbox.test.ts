// SPDX-License-Identifier: Apache-2.0
// What the library promises of sandboxes, their jobs and their ports, against a real broker of its own.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { info } from "../../src/info.js";
import { run } from "../../src/jobs.js";
import { Sandbox } from "../../src/sandbox.js";
import { Proxy } from "./server.js";
import { skip, text, broker, client, sh, eventually, listed } from "./shared.js";

// ---- sandboxes

test("a sandbox keeps its files, is listed with its labels, pauses, resumes and is updated", { skip }, async () => {
  const sbx = await Sandbox.create({ client, name: "keeper", metadata: { task: "t1" }, ttl: 60 });
  await assert.rejects(Sandbox.create({ client, name: "keeper" }), errors.AlreadyExistsError);
  await sbx.run(sh("echo kept > note"), { check: true });
  assert.equal((await sbx.run(["cat", "note"])).stdout, "kept\n");
  const again = await Sandbox.connect("keeper", { client });
  assert.equal(again.id, sbx.id);
  const listed: string[] = [];
  for await (const found of Sandbox.list({ client, metadata: { task: "t1" } })) {
    listed.push(found.id);
  }
  assert.deepEqual(listed, [sbx.id]);
  assert.equal((await sbx.pause()).state, "paused");
  await assert.rejects(sbx.run(["true"]), errors.FailedPreconditionError);
  assert.equal((await sbx.resume()).state, "running");
  const updated = await sbx.update({ ttl: 600, metadata: { task: "", stage: "2" } });
  assert.deepEqual({ ...updated.metadata }, { stage: "2" });
  assert.ok(updated.expires.getTime() > Date.now() + 500_000);
  await sbx.delete();
});

test("forks begin with the files and go on apart", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  await sbx.run(sh("echo a > A"), { check: true });
  for (const [i, one] of (await sbx.fork({ count: 2, ttl: 60 })).entries()) {
    assert.equal((await one.run(sh(`cat A; echo ${i} > A; cat A`))).stdout, `a\n${i}\n`);
    await one.delete();
  }
  assert.equal((await sbx.run(["cat", "A"])).stdout, "a\n");
  await assert.rejects(sbx.fork({ snapshot: "none" }), errors.NotFoundError);
  await assert.rejects(sbx.fork({ count: 101 }), errors.InvalidArgumentError);
  await sbx.delete();
});

test("a simulated job says what it would do, and leaves nothing", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  await sbx.run(sh("echo a > A"), { check: true });
  const done = await sbx.run(sh("rm A; echo n > N; exit 3"), { simulate: true });
  assert.equal(done.exitCode, 3);
  assert.deepEqual(
    done.simulation?.changes.map((c) => [c.kind, c.path]),
    [
      ["removed", "/home/agent/A"],
      ["added", "/home/agent/N"],
    ],
  );
  assert.equal((await sbx.run(sh("ls"))).stdout, "A\n");
  const cell = await sbx.runCode("open('g', 'w').write('y')", { simulate: { "example.com:80": "hi" } });
  assert.deepEqual(
    cell.simulation?.changes.map((c) => c.path),
    ["/home/agent/g"],
  );
  const alone = await run(["touch", "x"], { client, simulate: true });
  assert.equal(alone.simulation?.executed, true);
  assert.equal((await run(["true"], { client })).simulation, undefined);
  await assert.rejects(sbx.run(["true"], { simulate: "yes" as unknown as boolean }), /simulate/);
  await sbx.delete();
});

test("a transaction brings all its changes, or none", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  await sbx.run(sh("echo a > A"), { check: true });
  const one = await sbx.transaction();
  const two = await sbx.transaction({ ttl: 60 });
  await one.sandbox.run(sh("echo b > A; echo n > N"), { check: true });
  await two.sandbox.run(sh("echo c > A"), { check: true });
  const changes = [];
  for await (const change of one.changes()) changes.push([change.kind, change.path]);
  assert.deepEqual(changes, [
    ["changed", "/home/agent/A"],
    ["added", "/home/agent/N"],
  ]);
  assert.equal((await sbx.run(sh("cat A; ls"))).stdout, "a\nA\n");
  assert.equal((await one.commit()).state, "committed");
  assert.equal((await sbx.run(sh("cat A N"))).stdout, "b\nn\n");
  await assert.rejects(two.commit(), errors.AbortedError);
  assert.deepEqual((await two.refresh()).conflicts, ["/home/agent/A"]);
  await two[Symbol.asyncDispose]();
  assert.equal(two.info.state, "discarded");
  await assert.rejects(one.discard(), errors.FailedPreconditionError);
  const done = await sbx.run(sh("rm N"), { transaction: "on-success" });
  assert.equal(done.transaction?.info.state, "committed");
  assert.deepEqual(done.transaction.changes.map((c) => [c.kind, c.path]), [["removed", "/home/agent/N"]]);
  const failed = await sbx.run(sh("rm A; exit 3"), { transaction: "on-success" });
  assert.equal(failed.transaction?.info.state, "discarded");
  const states = [];
  for await (const t of sbx.transactions()) states.push(t.state);
  assert.deepEqual(states, ["committed", "discarded", "committed", "discarded"]);
  await assert.rejects(sbx.run(sh("true"), { transaction: "maybe" as "ask" }), /transaction/);
  await sbx.delete();
});

test("what differs between states is listed and shown", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  await sbx.run(sh("echo a > A; echo gone > G"), { check: true });
  await sbx.snapshot({ name: "one" });
  await sbx.run(sh("echo b > A; rm G; ln -s A L; printf '\\000' > B"), { check: true });
  const changes = [];
  for await (const change of sbx.diff("one")) {
    changes.push([change.kind, change.path.replace("/home/agent/", ""), change.after?.type]);
  }
  assert.deepEqual(changes, [
    ["changed", "A", "file"],
    ["added", "B", "file"],
    ["removed", "G", undefined],
    ["added", "L", "link"],
  ]);
  const text = await sbx.patch("/home/agent/A", "one");
  assert.equal(text?.toString(), "--- a/home/agent/A\n+++ b/home/agent/A\n@@ -1,1 +1,1 @@\n-a\n+b\n");
  assert.equal(await sbx.patch("/home/agent/B", "one"), undefined);
  assert.equal((await sbx.getSnapshot("one")).name, "one");
  await assert.rejects(sbx.getSnapshot("two"), errors.NotFoundError);
  await assert.rejects(sbx.diff("two").next(), errors.NotFoundError);
  await sbx.delete();
});

test("files roll back to a snapshot", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  await sbx.run(sh("echo a > A"), { check: true });
  const before = await sbx.snapshot({ name: "before" });
  assert.deepEqual([before.name, before.current, before.sandboxId], ["before", true, sbx.id]);
  assert.ok(before.size > 0 && before.notIncluded.some((part) => part.includes("memory")));
  await assert.rejects(sbx.snapshot({ name: "before" }), errors.AlreadyExistsError);
  const job = await sbx.start(sh("echo b > A; sleep 60"));
  await assert.rejects(sbx.restore("before"), errors.FailedPreconditionError);
  await sbx.restore("before", { stop: true });
  assert.equal((await job.wait()).outcome, "cancelled");
  assert.equal((await sbx.run(["cat", "A"])).stdout, "a\n");
  await sbx.deleteSnapshot("before");
  await assert.rejects(sbx.restore("before"), errors.NotFoundError);
  for await (const left of sbx.snapshots()) {
    assert.fail(`${left.name} is left`);
  }
  await sbx.delete();
});

test("a background process takes stdin and signals, and is found again by another client", { skip }, async () => {
  const first = broker.client();
  const sbx = await Sandbox.create({ client: first });
  const script = 'trap "echo term; exit 7" TERM; while read -r x; do echo "got $x"; done; while :; do sleep 0.05; done';
  const job = await sbx.start(sh(script), { stdinOpen: true });
  await job.sendStdin("one\n");
  const seen: string[] = [];
  for await (const event of job) {
    seen.push(event.type === "gap" ? "gap" : event.text);
    break;
  }
  assert.deepEqual(seen, ["got one\n"]);
  await first.close();

  const second = broker.client();
  const found = await Sandbox.connect(sbx.id, { client: second });
  const listed = [];
  for await (const p of found.processes()) {
    listed.push(p);
  }
  assert.equal(listed[0]?.id, job.id);
  assert.equal(listed[0].result, undefined);
  const again = await found.attach(job.id);
  await again.sendStdin("two\n");
  await again.closeStdin();
  await assert.rejects(again.wait({ timeout: "100ms" }), errors.DeadlineExceededError);
  await again.signal("SIGTERM");
  const r = await again.wait();
  assert.equal(r.stdout, "got one\ngot two\nterm\n");
  assert.equal(r.exitCode, 7);
  const late = await found.attach(job.id, { offset: 8 });
  assert.equal((await late.wait()).stdout, "got two\nterm\n");
  await assert.rejects(again.sendStdin("x"), errors.FailedPreconditionError);
  await again.kill();
  await found.delete();
  await second.close();
});

test("output is read on without a hole when the connection is cut, again and again", { skip }, async () => {
  await using proxy = await Proxy.to(broker);
  await using own = new Client({ address: proxy.address });
  const sbx = await Sandbox.create({ client: own });
  let passed = 0;
  proxy.onReply = (chunk) => {
    passed += chunk.length;
    return passed > 150_000 && ((passed = 0), true);
  };
  const r = await sbx.run(["seq", "1", "100000"]);
  const wanted = `${Array.from({ length: 100_000 }, (_, i) => i + 1).join("\n")}\n`;
  assert.equal(r.outputMissing, 0, String(r));
  assert.ok(r.stdout === wanted);
  assert.ok(proxy.connections > 3, `${proxy.connections} connections`);
  proxy.onReply = () => false;
  await sbx.delete();
});

test("a start, a create and a run whose answers are lost are executed once", { skip }, async () => {
  await using proxy = await Proxy.to(broker);
  await using own = new Client({ address: proxy.address });
  // The first reply after the request is cut off.
  let armed = false;
  proxy.onReply = () => armed && ((armed = false), true);
  await info({ client: own });
  armed = true;
  const sbx = await Sandbox.create({ client: own, metadata: { once: "yes" } });
  const listed = [];
  for await (const found of Sandbox.list({ client: own, metadata: { once: "yes" } })) {
    listed.push(found.id);
  }
  assert.deepEqual(listed, [sbx.id]);
  armed = true;
  const r = await sbx.run(sh("echo ran >> count; cat count"));
  assert.equal(r.stdout, "ran\n");
  assert.equal((await sbx.run(["cat", "count"])).stdout, "ran\n");
  armed = true;
  await assert.rejects(run(["true"], { client: own }), errors.ConnectionLostError);
  await sbx.delete();
});

test("a terminal has its size, is resized, and ends at ^D", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  const job = await sbx.start(sh("stty size; read -r x; stty size; cat >/dev/null"), {
    terminal: { rows: 30, columns: 100 },
  });
  let out = "";
  let resized = false;
  for await (const event of job) {
    out += event.type === "gap" ? "" : text.decode(event.data);
    if (out.includes("30 100") && !resized) {
      resized = true;
      await job.resize(40, 120);
      await job.sendStdin("go\n");
    } else if (out.includes("40 120")) {
      await job.closeStdin();
    }
  }
  assert.equal((await job.wait()).exitCode, 0);
  const plain = await sbx.start(["sleep", "60"]);
  await assert.rejects(plain.resize(1, 1), errors.FailedPreconditionError);
  await plain[Symbol.asyncDispose]();
  await sbx.delete();
});

test("a job of a sandbox whose reading is given up is killed", { skip }, async () => {
  const sbx = await Sandbox.create({ client });
  const mine = new Error("mine");
  const given = sbx.run(sh("echo on; sleep 60 & sleep 60"), {
    onStdout: () => {
      throw mine;
    },
  });
  await assert.rejects(given, (e) => e === mine);
  await eventually(async () => (await sbx.refresh()).processes === 0);
  await sbx.delete();
});

test("wherever a connection breaks, nothing is executed twice", { skip }, async () => {
  for (let frame = 0; ; frame++) {
    await using proxy = await Proxy.to(broker);
    proxy.cutBefore = frame;
    const runs: string[] = [];
    proxy.onRequest = (chunk) => {
      runs.push(...(chunk.toString("latin1").match(/ProcessService\/Run/g) ?? []));
      return false;
    };
    await using own = new Client({ address: proxy.address });
    const label = { cut: String(frame) };
    const sbx = await Sandbox.create({ client: own, metadata: label });
    assert.equal((await sbx.run(sh("echo x >> count; echo y"))).stdout, "y\n");
    try {
      assert.equal((await run(["echo", "z"], { client: own })).stdout, "z\n");
    } catch (e) {
      assert.ok(e instanceof errors.ConnectionLostError, String(e));
    }
    assert.ok(runs.length <= 1);
    assert.deepEqual(await listed(label), [sbx.id]);
    const direct = await Sandbox.connect(sbx.id, { client });
    assert.equal((await direct.run(["cat", "count"])).stdout, "x\n");
    await sbx.delete();
    assert.deepEqual(await listed(label), []);
    if (!proxy.wasCut) {
      assert.ok(frame > 12, `${frame} frames`); // a call and an end each, the events of two jobs
      return;
    }
  }
});

test("the examples run to their end", { skip }, async () => {
  const execute = promisify(execFile);
  const env = { ...process.env, STOCKADE_ADDRESS: broker.address };
  const examples = fileURLToPath(new URL("../../../examples", import.meta.url));
  const loop = await execute(process.execPath, [join(examples, "agent_loop.mjs")], { env });
  assert.match(loop.stdout, /limit: wall_ms=2000[^]*mean of the first 100 primes: 241.33\ndone after 3 runs\n$/);
  const grades = await execute(process.execPath, [join(examples, "grade.mjs"), "16"], { env });
  for (const line of ["4 right", "2 wrong", "2 limit cpu_time_ms", "2 limit memory_bytes", "6 error"]) {
    assert.ok(grades.stdout.includes(`    ${line}\n`), `${line}: ${grades.stdout}`);
  }
});

test("the code of the README runs as it stands", { skip }, async () => {
  const root = fileURLToPath(new URL("../../..", import.meta.url));
  const readme = await readFile(join(root, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```js\n([^]*?)```/g)].map((found) => found[1] ?? "");
  assert.ok(blocks.length >= 5);
  const env = { ...process.env, STOCKADE_ADDRESS: broker.address };
  for (const [i, block] of blocks.entries()) {
    const file = join(root, `dist/readme-${i}.mjs`); // "stockade" is found there, and nothing is linted
    await writeFile(file, block);
    const { stderr } = await promisify(execFile)(process.execPath, ["--trace-warnings", file], { env });
    assert.equal(stderr, "");
  }
});

test("the chart of the example's analysis is saved", { skip }, async (t) => {
  const env = { ...process.env, STOCKADE_ADDRESS: broker.address };
  const example = fileURLToPath(new URL("../../../examples/pandas_chart.mjs", import.meta.url));
  const folder = await mkdtemp(join(tmpdir(), "stockade-chart-"));
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [example, join(folder, "chart.png")], { env });
    assert.match(stdout, /north[^]*saved/);
    const chart = await readFile(join(folder, "chart.png"));
    assert.equal(chart.subarray(1, 4).toString(), "PNG");
  } catch (e) {
    if ((e as { code?: unknown }).code !== 77) {
      throw e;
    }
    t.skip("pandas or matplotlib is not installed");
  } finally {
    await rm(folder, { recursive: true });
  }
});

// ---- ports

// Answers in capitals, and says "bye" when the other side says no more.
const SERVER = `
import socket, threading
s = socket.create_server(("127.0.0.1", 8000))
def serve(c):
    while (got := c.recv(65536)):
        c.sendall(got.upper())
    c.sendall(b"bye")
    c.close()
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`;

async function dial(port: number, say: string): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port });
  socket.end(say);
  const pieces: Uint8Array[] = [];
  for await (const piece of socket) {
    pieces.push(piece as Uint8Array);
  }
  return Buffer.concat(pieces).toString();
}

test("a port without a rule is refused with the rule named", { skip }, async () => {
  await using sbx = await Sandbox.create({ client });
  await assert.rejects(sbx.forward(8000), (e) => {
    assert.ok(e instanceof errors.PermissionDeniedError, String(e));
    assert.equal(e.reason, "PORT_NOT_ALLOWED");
    assert.match(`${e.message} ${e.subject ?? ""}`, /port 8000.*network\.inbound/);
    return true;
  });
});

test("a port of this machine leads into a sandbox, until it is closed", { skip }, async () => {
  await using sbx = await Sandbox.create({ client, network: { mode: "none", inbound: [8000, 8010] } });
  const server = await sbx.start(["python3", "-c", SERVER]);
  await server[Symbol.asyncIterator]().next();
  const told: errors.StockadeError[] = [];
  const onError = (e: errors.StockadeError): number => told.push(e);
  {
    await using silent = await sbx.forward(8010, { onError });
    assert.equal(await dial(silent.port, ""), "");
  }
  assert.ok(told.length === 1 && told[0] instanceof errors.FailedPreconditionError, String(told));
  const forward = await sbx.forward(8000, { onError });
  const many = "q".repeat(300_000);
  const got = await Promise.all([1, 2, 3].map(() => dial(forward.port, many)));
  assert.ok(got.every((one) => one === `${many.toUpperCase()}bye`), String(got.map((one) => one.length)));
  const open = connect({ host: "127.0.0.1", port: forward.port });
  open.write("x");
  const ended = new Promise((resolve) => open.on("close", resolve));
  await new Promise((resolve) => open.once("data", resolve));
  await sbx.update({ network: "none" });
  await ended;
  assert.ok(told[1] instanceof errors.PermissionDeniedError, "a policy that lacks the port cuts it, and that is told");
  await forward.close();
  await assert.rejects(dial(forward.port, ""), { code: "ECONNREFUSED" });
});
