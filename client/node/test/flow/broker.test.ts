// SPDX-License-Identifier: Apache-2.0
// Everything that the library promises, against a real broker with a socket, state and cgroup of its own.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { info, serving } from "../../src/info.js";
import { run, start } from "../../src/jobs.js";
import { Schema } from "../../src/reflection.js";
import { JobError } from "../../src/result.js";
import { Sandbox } from "../../src/sandbox.js";
import { events, record, usage } from "../../src/telemetry.js";
import { Broker, Proxy, missing } from "./server.js";

const skip = ["stockaded", "stockade-spawner", "stockade-guest"].reduce<string | false>(
  (found, name) => found || missing(`server/${name}`, true),
  false,
);
const MB = 1024 * 1024;
const text = new TextDecoder();

let broker: Broker;
let client: Client;

before(async () => {
  if (skip === false) {
    broker = new Broker();
    await broker.start();
    client = broker.client();
  }
});

after(async () => {
  if (skip === false) {
    await client.close();
    await broker[Symbol.asyncDispose]();
  }
});

function sh(script: string): string[] {
  return ["sh", "-c", script];
}

async function eventually(what: () => Promise<boolean>, ms = 60_000): Promise<void> {
  const end = performance.now() + ms;
  while (!(await what())) {
    assert.ok(performance.now() < end, `did not come true within ${ms} ms: ${what.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function processes(): Promise<number> {
  return (await info({ client })).processes;
}

async function listed(metadata: Record<string, string>): Promise<string[]> {
  const ids: string[] = [];
  for await (const box of Sandbox.list({ client, metadata })) {
    ids.push(box.id);
  }
  return ids;
}

// ---- refusals

test("a limit above the template's maximum is refused and named, with both values", { skip }, async () => {
  await assert.rejects(run(["true"], { client, limits: { memory: "1T" } }), (e) => {
    assert.ok(e instanceof errors.InvalidArgumentError, String(e));
    assert.match(e.subject ?? "", /memory_bytes/);
    assert.match(e.message, /1099511627776/);
    assert.notEqual(e.reason, "");
    return true;
  });
});

test("an unknown template, a bad name and a relative folder are refused with the field", { skip }, async () => {
  await assert.rejects(run(["true"], { client, template: "no-such-template" }), errors.StockadeError);
  await assert.rejects(Sandbox.create({ client, name: "no spaces" }), (e) => {
    assert.ok(e instanceof errors.InvalidArgumentError);
    assert.equal(e.fields[0]?.field, "name");
    return true;
  });
  await assert.rejects(run(["true"], { client, cwd: "tmp" }), errors.InvalidArgumentError);
});

test("sandboxes and processes that are not there are NOT_FOUND", { skip }, async () => {
  await assert.rejects(Sandbox.connect("0".repeat(32), { client }), errors.NotFoundError);
  const sbx = await Sandbox.create({ client });
  await assert.rejects(sbx.attach("0".repeat(32)), errors.NotFoundError);
  await sbx.delete();
  await sbx.delete();
  await assert.rejects(sbx.run(["true"]), errors.NotFoundError);
});

test("a program that is not there is a result with code 127, and an error with check", { skip }, async () => {
  const r = await run(["/no/such/program"], { client });
  assert.equal(r.outcome, "not_executed");
  assert.equal(r.exitCode, 127);
  assert.notEqual(r.reason, "");
  const failed = run(["false"], { client, check: true });
  await assert.rejects(failed, (e) => e instanceof JobError && e.result.exitCode === 1);
  const why = run(["sh", "-c", "echo why >&2; exit 3"], { client, check: true });
  await assert.rejects(why, { message: "sh -c 'echo why >&2; exit 3': exited with code 3\nwhy" });
});

// ---- runs

test("a run gives output, exit code and bill", { skip }, async () => {
  const lines: string[] = [];
  const r = await run(sh('echo "$GREETING"; pwd; cat; echo no >&2; exit 3'), {
    client,
    env: { GREETING: "hello" },
    cwd: "/tmp",
    stdin: "from stdin\n",
    limits: { memory: "128M", pids: 32 },
    onStdout: (line) => lines.push(line),
  });
  assert.equal(r.outcome, "exited");
  assert.equal(r.exitCode, 3);
  assert.equal(r.stdout, "hello\n/tmp\nfrom stdin\n");
  assert.equal(r.stderr, "no\n");
  assert.deepEqual(lines, ["hello", "/tmp", "from stdin"]);
  assert.ok((r.bill.wallTime ?? 0) > 0 && (r.bill.cpuTime ?? 0) > 0 && (r.bill.memoryPeak ?? 0) > 0);
  assert.equal(r.bill.output, Buffer.byteLength(r.stdout) + Buffer.byteLength(r.stderr));
});

test("a python job that is killed by its memory limit says so", { skip }, async () => {
  const r = await run(["python3", "-c", "x = bytearray(10**9)"], { client, limits: { memory: "64M" } });
  assert.ok(r.outcome === "limit" || r.exitCode === 1, String(r));
  assert.equal(r.limitHit?.name, "memory_bytes", String(r));
  assert.equal(r.limitHit.value, 64 * MB);
});

test("a timeout ends the job and keeps what it said; a deadline ends the call", { skip }, async () => {
  const r = await run(sh("echo started; sleep 60"), { client, timeout: "300ms" });
  assert.equal(r.timedOut, true, String(r));
  assert.equal(r.stdout, "started\n");
  await assert.rejects(run(["sleep", "60"], { client, deadline: "300ms" }), errors.DeadlineExceededError);
  await eventually(async () => (await processes()) === 0);
});

test("a cancelled run and a left process leave nothing behind", { skip }, async () => {
  const controller = new AbortController();
  const given = run(sh("echo on; sleep 60"), {
    client,
    signal: controller.signal,
    onStdout: () => {
      controller.abort();
    },
  });
  await assert.rejects(given, errors.CancelledError);
  const job = await start(sh("echo on; sleep 60"), { client });
  for await (const event of job) {
    assert.equal(event.type, "stdout");
    break;
  }
  await job[Symbol.asyncDispose]();
  await eventually(async () => (await processes()) === 0);
});

test("100 MB of output arrive whole, at the pace of the reader", { skip }, async () => {
  const size = 100 * MB;
  const job = await start(["head", "-c", `${size}`, "/dev/zero"], { client, keep: "1K" });
  let total = 0;
  let next = 0;
  for await (const event of job) {
    assert.equal(event.offset, next);
    next += event.type === "gap" ? event.length : event.data.length;
    total += event.type === "gap" ? 0 : event.data.length;
  }
  const r = await job.wait();
  assert.equal(r.exitCode, 0, String(r));
  assert.equal(total, size);
  assert.equal(r.outputMissing, size - 1024);
  assert.equal(r.outputCut, 0);
  assert.ok(r.ok);
});

test("output beyond its limit is cut, with a gap that says so", { skip }, async () => {
  const r = await run(sh("head -c 3000000 /dev/zero; echo end >&2"), { client, limits: { output: "1M" } });
  assert.equal(r.exitCode, 0, String(r));
  assert.equal(r.stdoutBytes.length + r.stderrBytes.length, MB);
  assert.equal(r.limitHit?.name, "output_bytes");
  assert.equal(r.outputMissing, 3_000_004 - MB);
  assert.equal(r.bill.outputCut, 3_000_004 - MB);
  assert.equal(r.outputCut, 3_000_004 - MB);
  assert.equal(r.ok, false);
  assert.throws(() => r.check(), /JobError|1951428 bytes of output were cut/);
});

test("what stays in a sandbox has no limit of time unless one was asked for", { skip }, async () => {
  const sbx = await Sandbox.create({ client, ttl: "5m" });
  assert.equal((await (await sbx.start(sh("ulimit -t"))).wait()).stdout, "unlimited\n");
  assert.equal((await sbx.run(sh("ulimit -t"))).stdout, "61\n");
  assert.ok((await sbx.run(sh("sleep 60"), { timeout: "300ms" })).timedOut);
  assert.ok((await (await sbx.start(sh("sleep 60"), { limits: { timeout: 0.3 } })).wait()).timedOut);
  await assert.rejects(Sandbox.create({ client, timeout: 5 } as never), /time to live of a sandbox is called ttl/);
  await sbx.delete();
});

test("output that nobody was given is cut, and with check that throws", { skip }, async () => {
  const args = ["head", "-c", "20000000", "/dev/zero"];
  let seen = 0;
  const onOutput = (piece: { data: Uint8Array }): void => {
    seen += piece.data.length;
  };
  await run(args, { client, keep: "1K", check: true, onOutput });
  assert.equal(seen, 20_000_000);
  await assert.rejects(run(args, { client, keep: "1K", check: true }), /19998976 bytes of output were cut/);
  assert.equal((await run(args, { client, keep: 0, check: true })).stdout, "");
});

test("5 MB of stdin pass, as bytes and in pieces", { skip }, async () => {
  const bytes = new Uint8Array(5 * MB).fill(97);
  const one = await run(["wc", "-c"], { client, stdin: bytes });
  assert.equal(one.stdout.trim(), String(5 * MB));
  async function* pieces(): AsyncGenerator<string> {
    for (let i = 0; i < 50; i++) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      yield `${i}\n`;
    }
  }
  const many = await run(["tail", "-n", "1"], { client, stdin: pieces() });
  assert.equal(many.stdout, "49\n");
  assert.equal((await run(["true"], { client, stdin: bytes })).exitCode, 0);
});

test("100 runs at once on one connection each get their own answer", { skip }, async () => {
  await using proxy = await Proxy.to(broker);
  await using own = new Client({ address: proxy.address });
  const results = await Promise.all(
    Array.from({ length: 100 }, (_, i) => run(["echo", `job ${i}`], { client: own, deadline: 120 })),
  );
  results.forEach((r, i) => {
    assert.equal(r.stdout, `job ${i}\n`, String(r));
  });
  assert.equal(proxy.connections, 1);
});

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

// ---- the broker

test("the broker tells about itself, and its schema calls what has no wrapper", { skip }, async () => {
  const about = await info({ client });
  assert.match(about.version, /^\d+\.\d+\.\d+/);
  assert.ok(about.templates.some((t) => t.name === "default" && (t.limits.memory ?? 0) > 0));
  assert.equal(await serving("", { client }), true);
  await assert.rejects(serving("no.such.Service", { client }), errors.NotFoundError);
  const schema = await Schema.of(client);
  const paths = schema.methods().map((m) => m.path);
  assert.ok(paths.includes("/stockade.v1.ProcessService/Run"));
  const answer = (await schema.call("/stockade.v1.SystemService/Info")) as { version: string };
  assert.equal(answer.version, about.version);
  for await (const health of schema.stream("/stockade.v1.HealthService/Watch")) {
    assert.deepEqual(health, { status: "SERVING_STATUS_SERVING" });
    break;
  }
});

test("what sandboxes use is iterated", { skip }, async () => {
  await using one = await Sandbox.create({ client });
  await using other = await Sandbox.create({ client });
  const all: string[] = [];
  for await (const { sandboxId } of usage({ client })) {
    all.push(sandboxId);
  }
  assert.ok(all.includes(one.id) && all.includes(other.id));
  for await (const use of usage({ client, sandbox: one.id })) {
    assert.equal(use.sandboxId, one.id);
    assert.ok(use.memoryLimitBytes > 0n);
  }
});

test("after a crash runs under way are lost, sandboxes gone, and the same client goes on", { skip }, async () => {
  await using other = new Broker();
  await other.start();
  await using own = other.client();
  const sbx = await Sandbox.create({ client: own });
  const job = await sbx.start(["sleep", "60"]);
  const lost = assert.rejects(run(["sleep", "60"], { client: own }), errors.ConnectionLostError);
  const ended = assert.rejects(job.wait(), errors.ConnectionLostError);
  await eventually(async () => (await info({ client: own })).processes === 2);
  await other.crash();
  await other.start();
  await lost;
  await ended;
  await assert.rejects(sbx.run(["true"]), errors.NotFoundError);
  assert.equal((await run(["echo", "again"], { client: own })).stdout, "again\n");
});

test("events are iterated, and a result has the record of its job", { skip }, async () => {
  const result = await run(["true"], { client });
  assert.ok(result.record?.completeness?.startTime !== undefined);
  const last = await record("", { client });
  assert.equal(last.process?.args[0], "true");
  assert.deepEqual(last.record?.completeness?.endTime, result.record.completeness.endTime);
  const id = last.process.id;
  let ended = 0n;
  for await (const event of events({ client, fromSequence: 1, keptOnly: true, kinds: ["job-ended"] })) {
    ended = event.processId === id ? event.sequence : ended;
  }
  assert.ok(ended > 0n);
  await assert.rejects(async () => {
    for await (const event of events({ client, kinds: ["denid"] })) {
      assert.fail(String(event.sequence));
    }
  }, errors.InvalidArgumentError);
});

test("a follower of events goes on when its connection breaks", { skip }, async () => {
  await using proxy = await Proxy.to(broker);
  const through = new Client({ address: proxy.address });
  const seen: bigint[] = [];
  const follower = events({ client: through, kinds: ["job-ended"], onGap: (gap) => assert.fail(gap.reason) });
  for (let round = 0; round < 3; round++) {
    const next = follower.next();
    await new Promise((resolve) => setTimeout(resolve, 200));
    await run(["true"], { client });
    const first = await next;
    proxy.cut();
    await run(["true"], { client });
    const second = await follower.next();
    assert.ok(first.done === false && second.done === false);
    seen.push(first.value.sequence, second.value.sequence);
  }
  await follower.return();
  await through.close();
  assert.deepEqual(seen, [...new Set(seen)].sort((a, b) => Number(a - b)));
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
