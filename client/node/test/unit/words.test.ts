// SPDX-License-Identifier: Apache-2.0
// What is said: results and failed jobs in short, options that are none, what a broker's restart leaves open.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { create } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { batch } from "../../src/batch.js";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { Collector } from "../../src/events.js";
import { Outcome, ResultSchema } from "../../src/gen/stockade/v1/limits_pb.js";
import {
  SandboxService,
  SandboxServiceCreateResponseSchema,
  SandboxState,
} from "../../src/gen/stockade/v1/sandbox_service_pb.js";
import { InfoResponseSchema, SystemService } from "../../src/gen/stockade/v1/system_service_pb.js";
import { FrameKind, RetryInfoSchema } from "../../src/gen/stockade/v1/wire_pb.js";
import { info } from "../../src/info.js";
import { run, start } from "../../src/jobs.js";
import { JobError, RunResult } from "../../src/result.js";
import { Sandbox } from "../../src/sandbox.js";
import { events, usage } from "../../src/telemetry.js";
import type { Dial } from "../../src/transport.js";
import { Volume } from "../../src/volumes.js";
import { Peer, metadata } from "../peer.js";

const ID = "ab".repeat(16);
const text = new TextEncoder();

function resultOf(exitCode: number, stdout: string, stderr: string, args: readonly string[] = []): RunResult {
  const kept = { stdout: text.encode(stdout), stderr: text.encode(stderr), missing: 0, cut: 0 };
  const message = create(ResultSchema, { outcome: Outcome.EXITED, exitCode });
  return new RunResult(message, kept, { args, processId: ID, sandboxId: "cd".repeat(16) });
}

test("a result is shown in short, with its output and its id", () => {
  assert.equal(inspect(resultOf(0, "42\n", "")), `<RunResult exited with code 0, stdout='42\\n', id=${ID}>`);
  const long = inspect(resultOf(0, "x".repeat(100_000), `${"y".repeat(9999)}end`));
  assert.ok(long.length < 400);
  assert.match(long, /xxx'\.\.\., stderr=\.\.\.'y+end', id=/);
});

test("a JobError has the command and the end of stderr", () => {
  const noise = Array.from({ length: 1000 }, (_, i) => `line ${i}\n`).join("");
  const error = new JobError(resultOf(1, "", `${noise}ValueError: no\n`, ["python3", "-c", "raise 1 2"]));
  assert.ok(error.message.startsWith("python3 -c 'raise 1 2': exited with code 1\nline 981\n"));
  assert.ok(error.message.endsWith("\nValueError: no"));
  assert.deepEqual(error.command, ["python3", "-c", "raise 1 2"]);
  assert.ok(new JobError(resultOf(1, "", "z".repeat(1_000_000))).stderr.length <= 2000);
  assert.equal(new JobError(resultOf(1, "", "")).message, "exited with code 1");
  assert.ok(new JobError(resultOf(1, "", "", ["x".repeat(100_000)])).message.length < 300);
});

test("a result knows its command and its ids", () => {
  const collector = new Collector(100, ["true"]);
  const began = { processId: ID, sandboxId: "cd".repeat(16), pid: 7 };
  collector.feed({ event: { case: "started", value: began } } as never);
  collector.feed({ event: { case: "exited", value: { result: create(ResultSchema, {}) } } } as never);
  const { args, processId, sandboxId } = collector.result as RunResult;
  assert.deepEqual([args, processId, sandboxId], [["true"], ID, "cd".repeat(16)]);
});

function named(field: string): (e: unknown) => boolean {
  return (e) => e instanceof errors.InvalidArgumentError && e.fields[0]?.field === field;
}

test("an option that is none is refused by its name, before anything is sent", async () => {
  const peer = new Peer((r, c) => {
    c.end(r.id, SandboxServiceCreateResponseSchema, { sandbox: { id: ID, name: "web", state: SandboxState.RUNNING } });
  });
  const client = new Client({ address: "tcp://127.0.0.1:1", dial: peer.dial });
  assert.throws(() => new Client({ addr: "unix:/x" } as never), named("addr"));
  assert.throws(() => new Client(null as never), named("options"));
  const sbx = await Sandbox.create({ client });
  assert.match(inspect(sbx), new RegExp(`^<Sandbox ${ID} 'web' [a-z]+>$`));
  const sent = peer.calls().length;
  const wrong = { client, memory: "1G" } as never;
  const own = { time: 1 } as never;
  await assert.rejects(run(["x"], wrong), named("memory"));
  await assert.rejects(run(["x"], { client, stdinOpen: true } as never), named("stdinOpen"));
  await assert.rejects(start(["x"], wrong), named("memory"));
  await assert.rejects(start(["x"], { client, check: true } as never), named("check"));
  await assert.rejects(Sandbox.create(wrong), named("memory"));
  await assert.rejects(Sandbox.connect("x", wrong), named("memory"));
  await assert.rejects(Sandbox.list(wrong).next(), named("memory"));
  await assert.rejects(info(wrong), named("memory"));
  await assert.rejects(usage(wrong).next(), named("memory"));
  await assert.rejects(events(wrong).next(), named("memory"));
  await assert.rejects(sbx.run(["x"], own), named("time"));
  await assert.rejects(sbx.start(["x"], own), named("time"));
  await assert.rejects(sbx.attach(ID, own), named("time"));
  await assert.rejects(sbx.forward(80, own), named("time"));
  await assert.rejects(sbx.update(own), named("changes.time"));
  await assert.rejects(sbx.update({}, own), named("time"));
  await assert.rejects(sbx.pause(own), named("time"));
  await assert.rejects(sbx.resume(own), named("time"));
  await assert.rejects(sbx.refresh(own), named("time"));
  await assert.rejects(sbx.delete(own), named("time"));
  await assert.rejects(sbx.processes(own).next(), named("time"));
  await assert.rejects(client.unary(SystemService.method.info, {}, own), named("time"));
  await assert.rejects(run(["x"], { client, terminal: { rows: 1, cols: 2 } as never }), named("terminal.cols"));
  await assert.rejects(run(["x", 1 as never], { client }), named("args[1]"));
  assert.equal(peer.calls().length, sent);
});

test("an argument of another type is refused by its name: nothing is replaced, dropped or sent", async () => {
  const peer = new Peer((r, c) => {
    c.end(r.id, SandboxServiceCreateResponseSchema, { sandbox: { id: ID, state: SandboxState.RUNNING } });
  });
  const client = new Client({ address: "tcp://127.0.0.1:1", dial: peer.dial });
  const sbx = await Sandbox.create({ client });
  const { files } = sbx;
  const sent = peer.calls().length;
  const lone = "\ud800";
  const refused: [string, () => Promise<unknown>][] = [
    ["code", () => sbx.runCode(5 as never)],
    ["code", () => sbx.runCode(undefined as never)],
    ["code", () => sbx.runCode(`x = "${lone}"`)],
    ["context", () => sbx.runCode("1", { context: "" })],
    ["context", () => sbx.runCode("1", { context: Promise.resolve() as never })],
    ["language", () => sbx.runCode("1", { context: ID, language: "bash" })],
    ["timeout", () => sbx.runCode("1", { timeout: -1 })],
    ["onResult", () => sbx.runCode("1", { onResult: 5 as never })],
    ["cwd", () => sbx.createContext({ cwd: 5 as never })],
    ["path", () => files.write(lone, "a")],
    ["contents", () => files.write("a", `a${lone}`)],
    ["contents", () => files.write("a", 5 as never)],
    ["parents", () => files.write("a", "a", { parents: "no" as never })],
    ["ifVersion", () => files.write("a", "a", { ifVersion: 5 as never })],
    ["follow", () => files.stat("a", { follow: 1 as never })],
    ["length", () => files.read("a", { length: 0 })],
    ["archive", () => files.uploadArchive("a", "/a.tar")],
    ["folder", () => files.uploadFolder(undefined as never, "a")],
    ["name", () => sbx.snapshot({ name: "" })],
    ["name", () => sbx.restore(undefined as never)],
    ["stop", () => sbx.snapshot({ stop: "no" as never })],
    ["to", async () => sbx.diff("a", { to: "" }).next()],
    ["snapshot", () => sbx.fork({ snapshot: "" })],
    ["template", () => Sandbox.create({ client, template: "" })],
    ["client", () => Sandbox.create({ client: "ipc:///x" as never })],
    ["metadata.a", () => Sandbox.create({ client, metadata: { a: lone } })],
    ["command.args[1]", () => sbx.run(["echo", lone])],
    ["command.env[0].value", () => sbx.run(["echo"], { env: { A: lone } })],
    ["stdin", () => sbx.run(["cat"], { stdin: lone })],
    ["onStdout", () => sbx.run(["echo"], { onStdout: 5 as never })],
    ["idempotencyKey", () => sbx.run(["echo"], { idempotencyKey: 5 as never })],
    ["signal", () => sbx.run(["echo"], { signal: 5 as never })],
    ["size", () => Volume.create("v", { client, size: 0 })],
    ["inodes", () => Volume.create("v", { client, inodes: "5" as never })],
    ["deadline", () => batch([["x"]], { client, deadline: 0 }).next()],
  ];
  for (const [field, call] of refused) {
    await assert.rejects(call, named(field), field);
  }
  assert.throws(() => new Client({ token: "a\nb" }), named("token"));
  assert.throws(() => new Client({ address: "" }), named("address"));
  await assert.rejects(sbx.runCode("1", { context: Promise.resolve() as never }), /an await is missing/);
  assert.equal(peer.calls().length, sent);
});

test("a change that was sent to a broker that stays away may have been executed, and says so", async () => {
  for (const reconnectTimeout of [0, "100ms"]) {
    const peer = new Peer((_, c) => {
      c.drop();
    });
    let dials = 0;
    const dial: Dial = (address, given, signal) =>
      dials++ === 0
        ? peer.dial(address, given, signal)
        : Promise.reject(new errors.BrokerUnreachableError("nobody listens there"));
    const client = new Client({ address: "tcp://127.0.0.1:1", dial, reconnectTimeout });
    const made = client.unary(SandboxService.method.create, {});
    await assert.rejects(made, (e) => e instanceof errors.ConnectionLostError && e.message.includes("may have been"));
    await assert.rejects(made, { reason: "CONNECTION_LOST", hint: "see what it did before you call it again" });
    await assert.rejects(client.unary(SystemService.method.info, {}), errors.BrokerUnreachableError);
  }
});

test("a broker that drains is asked again, with another key: nothing was executed", async () => {
  const keys = new Set<string | undefined>();
  const peer = new Peer((r, c) => {
    keys.add(metadata(r, "idempotency-key"));
    if (keys.size > 1) {
      c.end(r.id, SandboxServiceCreateResponseSchema, { sandbox: { id: ID } });
      return;
    }
    const details = [anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelayMs: 30 }))];
    c.frame(r.id, { kind: FrameKind.END, status: { code: 14, message: "draining", details } });
  });
  const client = new Client({ address: "tcp://127.0.0.1:1", dial: peer.dial });
  assert.equal((await Sandbox.create({ client })).id, ID);
  assert.equal(peer.calls().length, 2);
});

test("a broker that was there is waited for by every call", async () => {
  let away = true;
  const peer = new Peer((r, c) => {
    c.end(r.id, InfoResponseSchema, { version: "1.2.3" });
  });
  let dials = 0;
  const dial: Dial = (address, given, signal) =>
    dials++ > 0 && away
      ? Promise.reject(new errors.BrokerUnreachableError("nobody listens there"))
      : peer.dial(address, given, signal);
  const client = new Client({ address: "tcp://127.0.0.1:1", dial });
  await client.unary(SystemService.method.info, {});
  peer.last().drop();
  const calls = Array.from({ length: 8 }, () => info({ client }));
  setTimeout(() => (away = false), 100);
  assert.deepEqual(
    (await Promise.all(calls)).map((m) => m.version),
    Array.from({ length: 8 }, () => "1.2.3"),
  );
});
