// SPDX-License-Identifier: Apache-2.0
// What the library promises of runs and of the broker itself, against a real one with a socket, state and cgroup of
// its own.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { info, serving } from "../../src/info.js";
import { run, start } from "../../src/jobs.js";
import { Schema } from "../../src/reflection.js";
import { JobError } from "../../src/result.js";
import { Sandbox } from "../../src/sandbox.js";
import { events, record, usage } from "../../src/telemetry.js";
import { Broker, NO_BPF, Proxy } from "./server.js";
import { skip, MB, broker, client, sh, eventually, processes } from "./shared.js";

// ---- refusals

test("a limit above the template's maximum is refused and named, with both values", { skip }, async () => {
  await assert.rejects(run(["true"], { client, limits: { memory: "1T" } }), (e) => {
    assert.ok(e instanceof errors.InvalidArgumentError, String(e));
    assert.match(e.subject ?? "", /memory_bytes/);
    assert.match(e.message, /1T requested, at most /);
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
  await assert.rejects(run(["echo hi"], { client, check: true }), /one string per argument: \["echo", "hi"\]/);
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
  await using other = new Broker("", NO_BPF);
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
