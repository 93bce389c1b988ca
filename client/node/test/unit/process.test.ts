// SPDX-License-Identifier: Apache-2.0
// Jobs and sandboxes against a peer that plays a broker: events, output, stdin, attaching again, the schema.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, anyPack } from "@bufbuild/protobuf/wkt";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { Collector, Lines, Output } from "../../src/events.js";
import { FigureScope, FigureSource, Outcome } from "../../src/gen/stockade/v1/limits_pb.js";
import {
  AttachRequestSchema,
  InputRequestSchema,
  InputResponseSchema,
  ProcessEventSchema,
  RunRequestSchema,
  RunResponseSchema,
  SignalRequestSchema,
  StartRequestSchema,
  Stream,
} from "../../src/gen/stockade/v1/process_service_pb.js";
import { SandboxServiceCreateResponseSchema, SandboxState } from "../../src/gen/stockade/v1/sandbox_service_pb.js";
import {
  GetFileDescriptorSetResponseSchema,
  InfoResponseSchema,
  file_stockade_v1_system_service,
} from "../../src/gen/stockade/v1/system_service_pb.js";
import { ErrorInfoSchema, FrameKind } from "../../src/gen/stockade/v1/wire_pb.js";
import { defaultClient, run, start } from "../../src/jobs.js";
import { Schema } from "../../src/reflection.js";
import { JobError } from "../../src/result.js";
import { Sandbox } from "../../src/sandbox.js";
import { Peer, metadata, read, until } from "../peer.js";
import type { PeerConnection, Received } from "../peer.js";

type Event = MessageInitShape<typeof ProcessEventSchema>;

const PID = "0123456789abcdef0123456789abcdef";
const SID = "f".repeat(32);
const text = new TextEncoder();

const started: Event = { event: { case: "started", value: { processId: PID, sandboxId: SID, pid: 2 } } };

function output(data: string, offset: number, stream = Stream.STDOUT): Event {
  return { event: { case: "output", value: { stream, data: text.encode(data), offset: BigInt(offset) } } };
}

function exited(exitCode = 0): Event {
  return { event: { case: "exited", value: { result: { outcome: Outcome.EXITED, exitCode } } } };
}

function tell(c: PeerConnection, id: number, ...events: Event[]): void {
  for (const event of events) {
    c.data(id, RunResponseSchema, { event });
  }
}

function clientOf(peer: Peer): Client {
  return new Client({ address: "tcp://127.0.0.1:1", dial: peer.dial, reconnectTimeout: 1 });
}

// A broker that answers Create and hands every other call on, by the method's name.
function broker(methods: Record<string, (r: Received, c: PeerConnection) => void>): { peer: Peer; client: Client } {
  const peer = new Peer((r, c) => {
    if (r.frame.kind !== FrameKind.CALL) {
      return;
    }
    const name = r.frame.method.replace(/.*\//, "");
    if (name === "Create") {
      c.end(r.id, SandboxServiceCreateResponseSchema, { sandbox: { id: SID, state: SandboxState.RUNNING } });
    } else {
      methods[name]?.(r, c);
    }
  });
  return { peer, client: clientOf(peer) };
}

function named(peer: Peer, name: string): Received[] {
  return peer.calls().filter((r) => r.frame.method.endsWith(`/${name}`));
}

test("events in an order that makes no sense are refused", () => {
  const feed = (...events: Event[]): void => {
    const collector = new Collector(100);
    for (const event of events) {
      collector.feed(create(ProcessEventSchema, event));
    }
  };
  const refused = (events: Event[], why: RegExp): void => {
    assert.throws(() => {
      feed(...events);
    }, (e) => e instanceof errors.ProtocolError && why.test(e.message));
  };
  refused([output("x", 0)], /before it started/);
  refused([started, exited(), output("x", 0)], /has ended/);
  refused([started, { event: { case: "exited", value: {} } }], /without its result/);
  refused([{ event: { case: "started", value: { processId: "../../etc" } } }], /as the id/);
  const other: Event = { event: { case: "started", value: { processId: "0".repeat(32) } } };
  refused([started, other], /as the id/);
  const far: Event = { event: { case: "output", value: { offset: 2n ** 60n, data: Uint8Array.of(1) } } };
  refused([started, far], /impossible/);
});

test("output that was seen before is cut away, gaps and what is not kept are counted", () => {
  const collector = new Collector(4);
  const feed = (event: Event): unknown => collector.feed(create(ProcessEventSchema, event));
  feed(started);
  feed(output("abc", 0));
  const rest = feed(output("bcde", 1));
  assert.ok(rest instanceof Output);
  assert.deepEqual([rest.type, rest.text, rest.offset], ["stdout", "de", 3]);
  assert.equal(feed(output("abc", 0)), undefined);
  const gap = { event: { case: "gap", value: { offset: 5n, bytes: 10n, limit: true } } } as const;
  assert.deepEqual(feed(gap), { type: "gap", offset: 5, length: 10, limit: true });
  feed(exited(3));
  assert.equal(collector.result?.stdout, "abcd");
  assert.equal(collector.result.outputMissing, 11);
  assert.equal(collector.result.exitCode, 3);
});

test("lines are whole, also where bytes of a character come apart", async () => {
  const got: string[] = [];
  const lines = new Lines((line) => got.push(line));
  const bytes = text.encode("eins\r\nzwölf\n\nrest");
  for (const byte of bytes) {
    await lines.feed(Uint8Array.of(byte), false);
  }
  await lines.feed(new Uint8Array(0), true);
  assert.deepEqual(got, ["eins", "zwölf", "", "rest"]);
  got.length = 0;
  await lines.feed(text.encode("x".repeat(70_000)), false);
  assert.deepEqual(got.map((l) => l.length), [70_000]);
});

test("a command that is no list of strings, and options without sense, are refused unsent", async () => {
  const { peer, client } = broker({});
  for (const bad of ["ls", [], [1], undefined]) {
    await assert.rejects(run(bad as never, { client }), errors.InvalidArgumentError);
  }
  await assert.rejects(run(["x"], { client, keep: "lots" }), errors.InvalidArgumentError);
  await assert.rejects(run(["x"], { client, network: "all" as never }), errors.InvalidArgumentError);
  await assert.rejects(run(["x"], { client, deadline: "soon" }), errors.InvalidArgumentError);
  await assert.rejects(run(["x"], { client, env: { A: 5 as never } }), errors.InvalidArgumentError);
  assert.equal(peer.calls().length, 0);
});

test("a run hands over its lines, its result and its bill", async () => {
  const { peer, client } = broker({
    Run: (r, c) => {
      tell(c, r.id, started, output("1\n2", 0), output("oops\n", 3, Stream.STDERR));
      const bill = {
        cpuUserNs: { value: 1_500_000_000n, source: FigureSource.CGROUP, scope: FigureScope.JOB },
        cpuSystemNs: { value: 500_000_000n, source: FigureSource.RUSAGE, scope: FigureScope.JOB },
        memoryPeakBytes: { value: 4096n, source: FigureSource.CGROUP, scope: FigureScope.SANDBOX },
        ioReadBytes: { value: 7n, source: FigureSource.UNSPECIFIED },
        unknown: ["io_read_bytes: no io controller"],
      };
      tell(c, r.id, { event: { case: "exited", value: { result: { outcome: Outcome.EXITED, exitCode: 4, bill } } } });
      c.frame(r.id, { kind: FrameKind.END });
    },
  });
  const lines: string[] = [];
  const r = await run(["sh", "-c", "x"], {
    client,
    timeout: 5,
    limits: { memory: "64M" },
    env: { A: "1" },
    cwd: "/tmp",
    stdin: "in",
    onStdout: (line) => lines.push(`out ${line}`),
    onStderr: (line) => lines.push(`err ${line}`),
  });
  assert.deepEqual(lines, ["out 1", "err oops", "out 2"]);
  assert.equal(r.stdout, "1\n2");
  assert.equal(r.stderr, "oops\n");
  assert.equal(r.exitCode, 4);
  assert.equal(r.ok, false);
  assert.equal(r.bill.cpuTime, 2);
  assert.equal(r.bill.memoryPeak, 4096);
  assert.equal(r.bill.ioRead, undefined);
  assert.deepEqual(r.bill.figures["memory_peak_bytes"], { value: 4096, source: "cgroup", scope: "sandbox" });
  assert.throws(() => r.check(), JobError);
  const request = read(RunRequestSchema, named(peer, "Run")[0] as Received);
  assert.equal(request.limits?.wallMs, 5000n);
  assert.equal(request.limits.memoryBytes, 67_108_864n);
  assert.equal(request.command?.workdir, "/tmp");
  assert.equal(Buffer.from(request.command.stdin).toString(), "in");
  assert.equal(request.command.stdinOpen, false);
});

test("a job that a limit ended says which, in its result and as a sentence", async () => {
  const { client } = broker({
    Run: (r, c) => {
      const limitHit = { name: "wall_ms", value: 1000n, over: 3n };
      const result = { outcome: Outcome.LIMIT, signal: 9, reason: "the time was over", limitHit };
      tell(c, r.id, started, { event: { case: "exited", value: { result } } });
      c.frame(r.id, { kind: FrameKind.END });
    },
  });
  const r = await run(["sleep", "9"], { client });
  assert.equal(r.timedOut, true);
  assert.equal(r.exitCode, undefined);
  assert.equal(String(r), "limit by SIGKILL, limit wall_ms=1000: the time was over");
  await assert.rejects(run(["x"], { client, check: true }), (e) => e instanceof JobError && e.result.timedOut);
});

test("a stream that ends without a result is a ProtocolError, not an empty result", async () => {
  const { client } = broker({
    Run: (r, c) => {
      tell(c, r.id, started);
      c.frame(r.id, { kind: FrameKind.END });
    },
  });
  await assert.rejects(run(["x"], { client }), /without its result/);
  const early = broker({
    Run: (r, c) => {
      c.frame(r.id, { kind: FrameKind.END });
    },
  });
  await assert.rejects(run(["x"], { client: early.client }), /before it began/);
});

test("a process in a sandbox is read on from the last byte after its connection was lost", async () => {
  const offsets: bigint[] = [];
  const { peer, client } = broker({
    Start: (r, c) => {
      tell(c, r.id, started, output("one ", 0));
      setTimeout(() => {
        c.drop();
      }, 5);
    },
    Attach: (r, c) => {
      offsets.push(read(AttachRequestSchema, r).offset);
      if (offsets.length === 1) {
        tell(c, r.id, started, output("two ", 4));
        setTimeout(() => {
          c.drop();
        }, 5);
      } else {
        tell(c, r.id, started, output("two three", 4), exited());
        c.frame(r.id, { kind: FrameKind.END });
      }
    },
  });
  const sbx = await Sandbox.create({ client });
  const r = await sbx.run(["job"]);
  assert.equal(r.stdout, "one two three");
  assert.deepEqual(offsets, [4n, 8n]);
  assert.equal(named(peer, "Start").length, 1);
});

test("attaching again is given up when nothing new comes, and at once when another broker answers", async () => {
  const endless = broker({
    Start: (r, c) => {
      tell(c, r.id, started);
      setTimeout(() => {
        c.drop();
      }, 5);
    },
    Attach: (_, c) => {
      c.drop();
    },
  });
  const sbx = await Sandbox.create({ client: endless.client });
  await assert.rejects((await sbx.start(["job"])).wait(), errors.ConnectionLostError);
  const gone = broker({
    Start: (r, c) => {
      tell(c, r.id, started);
      setTimeout(() => {
        c.drop();
      }, 5);
    },
    Attach: (r, c) => {
      c.frame(r.id, { kind: FrameKind.END, status: { code: 5, message: "no such process" } });
    },
  });
  const other = await Sandbox.create({ client: gone.client });
  await assert.rejects((await other.start(["job"])).wait(), errors.ConnectionLostError);
  assert.equal(named(gone.peer, "Attach").length, 1);
});

test("a start that was lost before it was answered is found again by its key, not started twice", async () => {
  let starts = 0;
  const { peer, client } = broker({
    Info: (r, c) => {
      c.end(r.id, InfoResponseSchema, { uptimeMs: 3_600_000n });
    },
    Start: (r, c) => {
      if (++starts === 1) {
        c.drop();
        return;
      }
      const info = create(ErrorInfoSchema, { reason: "ALREADY_STARTED", metadata: { process_id: PID } });
      const status = { code: 6, message: "it was started", details: [anyPack(ErrorInfoSchema, info)] };
      c.frame(r.id, { kind: FrameKind.END, status });
    },
    Attach: (r, c) => {
      assert.equal(read(AttachRequestSchema, r).processId, PID);
      tell(c, r.id, started, output("hello", 0), exited());
      c.frame(r.id, { kind: FrameKind.END });
    },
  });
  const sbx = await Sandbox.create({ client });
  assert.equal((await sbx.run(["job"])).stdout, "hello");
  const keys = named(peer, "Start").map((r) => metadata(r, "idempotency-key"));
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
  assert.equal(read(StartRequestSchema, named(peer, "Start")[0] as Received).sandboxId, SID);
});

test("a start that was lost is not sent again to a broker that was started anew", async () => {
  const { peer, client } = broker({
    Info: (r, c) => {
      c.end(r.id, InfoResponseSchema, { uptimeMs: 0n });
    },
    Start: (_, c) => {
      c.drop();
    },
  });
  const sbx = await Sandbox.create({ client });
  await assert.rejects(sbx.run(["job"]), errors.ConnectionLostError);
  assert.equal(named(peer, "Start").length, 1);
});

test("stdin in pieces is written in order, waits while the queue is full, and is closed after it", async () => {
  let full = 2;
  const got: Uint8Array[] = [];
  let runId = 0;
  const { peer, client } = broker({
    Run: (r, c) => {
      runId = r.id;
      tell(c, r.id, started);
    },
    Input: (r, c) => {
      if (full-- > 0) {
        c.frame(r.id, { kind: FrameKind.END, status: { code: 8, message: "queue full" } });
        return;
      }
      got.push(read(InputRequestSchema, r).data);
      c.end(r.id, InputResponseSchema, {});
    },
    CloseInput: (r, c) => {
      c.frame(r.id, { kind: FrameKind.END });
      tell(c, runId, exited());
      c.frame(runId, { kind: FrameKind.END });
    },
  });
  async function* pieces(): AsyncGenerator<string | Uint8Array> {
    yield "a".repeat(100_000);
    await Promise.resolve();
    yield text.encode("end");
  }
  const r = await run(["cat"], { client, stdin: pieces() });
  assert.equal(r.ok, true);
  assert.deepEqual(got.map((g) => g.length), [65_536, 34_464, 3]);
  assert.equal(read(RunRequestSchema, named(peer, "Run")[0] as Received).command?.stdinOpen, true);
});

test("a job that ends before it has read its stdin is no error", async () => {
  const { client } = broker({
    Run: (r, c) => {
      tell(c, r.id, started);
      setTimeout(() => {
        tell(c, r.id, exited());
        c.frame(r.id, { kind: FrameKind.END });
      }, 20);
    },
    Input: (r, c) => {
      c.frame(r.id, { kind: FrameKind.END, status: { code: 9, message: "stdin is closed" } });
    },
  });
  assert.equal((await run(["true"], { client, stdin: [text.encode("x")] })).ok, true);
});

test("a run in a sandbox that is given up is killed with its group, and its error is the caller's", async () => {
  const { peer, client } = broker({
    Start: (r, c) => {
      tell(c, r.id, started, output("line\n", 0));
    },
    Signal: (r, c) => {
      c.frame(r.id, { kind: FrameKind.END });
    },
  });
  const sbx = await Sandbox.create({ client });
  const mine = new Error("my own");
  const thrown = sbx.run(["job"], {
    onStdout: () => {
      throw mine;
    },
  });
  await assert.rejects(thrown, (e) => e === mine);
  await until(() => named(peer, "Signal").length === 1);
  const request = read(SignalRequestSchema, named(peer, "Signal")[0] as Received);
  assert.deepEqual([request.processId, request.signal, request.group], [PID, 9, true]);
  const controller = new AbortController();
  const given = sbx.run(["job"], { signal: controller.signal, onStdout: () => { controller.abort(); } });
  await assert.rejects(given, errors.CancelledError);
  await until(() => named(peer, "Signal").length === 2);
});

test("await using cancels a one-shot process and deletes a sandbox", async () => {
  const { peer, client } = broker({
    Run: (r, c) => {
      tell(c, r.id, started);
    },
    Delete: (r, c) => {
      c.frame(r.id, { kind: FrameKind.END, status: { code: 5, message: "gone already" } });
    },
  });
  {
    await using sbx = await Sandbox.create({ client });
    await using job = await start(["sleep", "9"], { client });
    assert.equal(sbx.id, SID);
    assert.equal(sbx.info.state, "running");
    assert.equal(job.id, PID);
    assert.equal(job.result, undefined);
  }
  assert.equal(named(peer, "Delete").length, 1);
  await until(() => peer.last().received.some((r) => r.frame.kind === FrameKind.CANCEL));
});

test("methods without a wrapper are called from the schema that the broker tells", async () => {
  const seen = new Set<string>();
  const files: { name: string; dependency: string[] }[] = [];
  const add = (file: typeof file_stockade_v1_system_service): void => {
    if (!seen.has(file.name)) {
      seen.add(file.name);
      file.dependencies.forEach(add);
      files.push(file.proto);
    }
  };
  add(file_stockade_v1_system_service);
  const set = toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file: files as never }));
  const { client } = broker({
    GetFileDescriptorSet: (r, c) => {
      c.end(r.id, GetFileDescriptorSetResponseSchema, { fileDescriptorSet: set });
    },
    Info: (r, c) => {
      assert.equal(metadata(r, "idempotency-key"), undefined);
      c.end(r.id, InfoResponseSchema, { version: "7", uptimeMs: 5n });
    },
  });
  const schema = await Schema.of(client);
  assert.ok(schema.methods().some((m) => m.path === "/stockade.v1.HealthService/Watch" && m.streaming));
  assert.deepEqual(await schema.call("/stockade.v1.SystemService/Info"), { version: "7", uptimeMs: "5" });
  await assert.rejects(schema.call("/stockade.v1.SystemService/Nope"), errors.UnimplementedError);
  await assert.rejects(schema.call("/stockade.v1.HealthService/Watch"), errors.InvalidArgumentError);
  await assert.rejects(schema.call("/stockade.v1.HealthService/Check", { nope: 1 }), errors.InvalidArgumentError);
});

test("a schema that is none is refused", async () => {
  const { client } = broker({
    GetFileDescriptorSet: (r, c) => {
      c.end(r.id, GetFileDescriptorSetResponseSchema, { fileDescriptorSet: Uint8Array.of(0x0a, 0x03, 0x01) });
    },
  });
  await assert.rejects(Schema.of(client), errors.ProtocolError);
});

test("stdin that is neither text nor bytes is refused, also as a piece, and its job is ended", async () => {
  await using nobody = new Client({ address: "ipc:///nowhere" });
  for (const bad of [5, null, {}, new ArrayBuffer(4)]) {
    await assert.rejects(run(["cat"], { client: nobody, stdin: bad as never }), (e) => {
      return e instanceof errors.InvalidArgumentError && e.subject === "stdin";
    });
  }
  const { peer, client } = broker({
    Run: (r, c) => {
      tell(c, r.id, started);
    },
  });
  await assert.rejects(run(["cat"], { client, stdin: [5] as never }), (e) => {
    return e instanceof errors.InvalidArgumentError && e.subject === "stdin";
  });
  await until(() => peer.last().received.some((r) => r.frame.kind === FrameKind.CANCEL));
  await client.close();
});

test("the client that all share is a new one when the last was closed", async () => {
  const first = defaultClient();
  assert.equal(defaultClient(), first);
  await first.close();
  assert.notEqual(defaultClient(), first);
});
