// SPDX-License-Identifier: Apache-2.0
// The client on real sockets against the real RPC layer (echo-server): sizes, streams, many calls, cancel, drain, cuts.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import { readFileSync } from "node:fs";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import type { DescMethodServerStreaming, DescMethodUnary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { serving } from "../../src/info.js";
import { HELLO_REP } from "../peer.js";
import { EchoServer, Proxy, build, missing } from "./server.js";

const skip = missing("tests/echo/echo-server");

interface Service {
  client: Client;
  call: (name: string, request: Fields, options?: object) => Promise<Record<string, never>>;
  stream: (name: string, request: Fields, options?: object) => AsyncIterable<Record<string, never>>;
}

type Fields = Record<string, unknown>;

function service(address: string): Service {
  const client = new Client({ address, reconnectTimeout: 5 });
  const set = fromBinary(FileDescriptorSetSchema, readFileSync(join(build, "tests/echo/gen/echo_set.bin")));
  const methods = createFileRegistry(set).getService("stockade.test.EchoService")?.methods ?? [];
  const method = (name: string): unknown => methods.find((m) => m.name === name);
  return {
    client,
    call: async (name, request, o = {}) =>
      (await client.unary(method(name) as DescMethodUnary, request, o)) as unknown as Record<string, never>,
    stream: (name, request, o = {}) =>
      client.stream(method(name) as DescMethodServerStreaming, request, o) as unknown as AsyncIterable<
        Record<string, never>
      >,
  };
}

async function started(): Promise<EchoServer> {
  const server = new EchoServer();
  await server.start();
  return server;
}

async function peer(server: EchoServer, onConnection: (socket: Socket) => void): Promise<{
  address: string;
  close: () => void;
}> {
  const path = join(server.folder, `liar-${Math.random().toString(36).slice(2)}`);
  const listener = createServer(onConnection);
  await new Promise<void>((resolve) => listener.listen(path, resolve));
  return {
    address: `ipc://${path}`,
    close: () => {
      listener.close();
    },
  };
}

test("nobody listening, a folder as a socket and a silent listener are told apart", { skip }, async () => {
  await using server = await started();
  const absent = new Client({ address: `${server.address}-none` });
  await assert.rejects(serving("", { client: absent }), (e) => {
    assert.ok(e instanceof errors.BrokerUnreachableError);
    assert.match(e.message, /is stockaded running/);
    return true;
  });
  const folder = new Client({ address: `ipc://${server.folder}` });
  await assert.rejects(serving("", { client: folder }), errors.BrokerUnreachableError);
  const silent = await peer(server, () => undefined);
  const client = new Client({ address: silent.address, connectTimeout: 1 });
  await assert.rejects(serving("", { client }), /speaks SP/);
  silent.close();
});

test("an address with or without TLS where the other is spoken says so", { skip }, async () => {
  await using server = await started();
  const call = (address: string, connectTimeout = 5): Promise<unknown> =>
    serving("", { client: new Client({ address, connectTimeout, reconnectTimeout: 1 }) });
  const hints = (words: string) => (e: unknown) => {
    assert.ok(e instanceof errors.BrokerUnreachableError, String(e));
    assert.ok(e.message.includes(words) && (e.info["hint"] ?? "").includes(words), e.message);
    return true;
  };
  await assert.rejects(call(server.tcp.replace("tcp://", "tls+tcp://")), hints("speak no TLS there (tcp://)"));
  const secure = createTlsServer().listen(0, "127.0.0.1");
  await once(secure, "listening");
  const port = (listener: Server): number => (listener.address() as AddressInfo).port;
  await assert.rejects(call(`tcp://127.0.0.1:${port(secure)}`), hints("speak TLS there (tls+tcp://)"));
  secure.close();
  const others: Socket[] = [];
  const greets = createServer((socket) => others.push(socket.on("error", () => undefined)) && socket.write(HELLO_REP));
  const silent = createServer((socket) => others.push(socket));
  for (const listener of [greets, silent]) {
    await once(listener.listen(0, "127.0.0.1"), "listening");
    await assert.rejects(call(`tls+tcp://127.0.0.1:${port(listener)}`, 1), hints("speak no TLS there (tcp://)"));
    listener.close();
  }
  others.forEach((socket) => socket.destroy());
});

test("nonsense, an oversize frame and half a frame from a listener are clear errors", { skip }, async () => {
  await using server = await started();
  const huge = Buffer.from("01ffffffffffffffff", "hex");
  const half = Buffer.from("010000000000000010800000010802", "hex");
  for (const [bytes, error] of [
    [Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n"), /not a Stockade broker/],
    [Buffer.concat([HELLO_REP, huge]), /at most 4194304/],
    [Buffer.concat([HELLO_REP, half]), /connection was lost/],
  ] as const) {
    const liar = await peer(server, (socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => socket.end(bytes));
    });
    const client = new Client({ address: liar.address, reconnectTimeout: 0 });
    await assert.rejects(serving("", { client }), error);
    liar.close();
  }
});

test("a request over the bound of its field is refused by the broker with the field's name", { skip }, async () => {
  await using server = await started();
  const echo = service(server.address);
  await assert.rejects(echo.call("Echo", { data: new Uint8Array(4_000_001) }), (e) => {
    assert.ok(e instanceof errors.InvalidArgumentError);
    assert.equal(e.reason, "FIELD_INVALID");
    assert.equal(e.fields[0]?.field, "data");
    assert.equal(e.subject, "data");
    return true;
  });
  await echo.client.close();
});

test("requests and replies from nothing to 4 MB pass over ipc and tcp", { skip }, async () => {
  await using server = await started();
  for (const address of [server.address, server.tcp]) {
    const echo = service(address);
    for (const size of [0, 1, 65_535, 65_536, 1_000_003, 4_000_000]) {
      const data = new Uint8Array(size).map((_, i) => i % 251);
      const answer = await echo.call("Echo", { data });
      assert.equal(Buffer.compare(answer["data"] as unknown as Uint8Array, data), 0, `${size} bytes over ${address}`);
    }
    await echo.client.close();
  }
});

test("100 calls at once on one connection each get their own answer", { skip }, async () => {
  await using server = await started();
  await using proxy = await Proxy.to(server);
  const echo = service(proxy.address);
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) => echo.call("Change", { data: Buffer.from(`${i}`), delayMs: (i * 37) % 50 })),
  );
  answers.forEach((answer, i) => {
    assert.equal(Buffer.from(answer["data"] as unknown as Uint8Array).toString(), `${i}`);
  });
  assert.equal(proxy.connections, 1);
  await echo.client.close();
});

test("5,000 calls and 300 streams are queued where the connection has no room, none is refused", { skip }, async () => {
  await using server = await started();
  const echo = service(server.address);
  await echo.call("Echo", {}); // connected, before the calls keep this thread busy for as long as that takes
  const calls = Array.from({ length: 5000 }, (_, i) => echo.call("Echo", { data: Buffer.from(`${i}`) }));
  const streams = Array.from({ length: 300 }, async () => {
    let n = 0;
    for await (const message of echo.stream("Count", { count: 40n, bytes: 100 })) {
      n += Number(message["number"]) === n ? 1 : 1000;
    }
    return n;
  });
  assert.equal((await Promise.all(calls)).length, 5000);
  assert.deepEqual(new Set(await Promise.all(streams)), new Set([40]));
  await echo.client.close();
});

test("a stream of 100 MB arrives whole and in order, in little memory", { skip }, async () => {
  await using server = await started();
  for (const address of [server.address, server.tcp]) {
    const echo = service(address);
    const bytes = 60_000;
    const count = Math.ceil(100_000_000 / bytes);
    let next = 0;
    let total = 0;
    const before = process.memoryUsage().rss;
    for await (const message of echo.stream("Count", { count: BigInt(count), bytes })) {
      assert.equal(Number(message["number"]), next++);
      total += (message["filler"] as unknown as Uint8Array).length;
    }
    assert.equal(total, count * bytes);
    const grown = process.memoryUsage().rss - before;
    assert.ok(grown < 80_000_000, `${grown} bytes more memory`);
    await echo.client.close();
  }
});

test("a slow reader of a stream does not hold up other calls", { skip }, async () => {
  await using server = await started();
  const echo = service(server.address);
  const stream = echo.stream("Count", { count: 10_000n, bytes: 60_000 })[Symbol.asyncIterator]();
  await stream.next();
  const began = performance.now();
  for (let i = 0; i < 50; i++) {
    await echo.call("Echo", { data: Uint8Array.of(i) });
  }
  assert.ok(performance.now() - began < 30_000);
  await stream.return?.();
  await echo.client.close();
});

test("a cancelled call, a left stream and a deadline end the work in the server", { skip }, async () => {
  await using server = await started();
  const echo = service(server.address);
  await echo.call("Stats", {}); // connected: the next call is sent at once
  const controller = new AbortController();
  const change = echo.call("Change", { delayMs: 60_000 }, { signal: controller.signal });
  setTimeout(() => {
    controller.abort();
  }, 20);
  await assert.rejects(change, errors.CancelledError);
  const left = echo.stream("Count", { count: 10_000n, bytes: 1000 })[Symbol.asyncIterator]();
  await left.next();
  await left.return?.();
  const began = performance.now();
  await assert.rejects(echo.call("Change", { delayMs: 60_000 }, { deadline: "100ms" }), errors.DeadlineExceededError);
  const took = performance.now() - began;
  assert.ok(took >= 95 && took < 30_000, `${took} ms`);
  let stats = await echo.call("Stats", {});
  for (let i = 0; i < 3000 && Number(stats["handlersCancelled"]) + Number(stats["handlersDeadline"]) < 3; i++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    stats = await echo.call("Stats", {});
  }
  assert.equal(Number(stats["handlersCancelled"]) + Number(stats["handlersDeadline"]), 3);
  await echo.client.close();
});

test("after a crash and a new start of the server the client finds it again by itself", { skip }, async () => {
  await using server = await started();
  const echo = service(server.address);
  const open = echo.call("Change", { delayMs: 60_000 });
  const failed = assert.rejects(open, errors.ConnectionLostError);
  const stream = echo.stream("Count", { count: 1_000_000n, bytes: 10 })[Symbol.asyncIterator]();
  await stream.next();
  await server.crash();
  const again = echo.call("Echo", { data: Uint8Array.of(7) });
  await new Promise((resolve) => setTimeout(resolve, 200));
  await server.start();
  assert.deepEqual([...((await again)["data"] as unknown as Uint8Array)], [7]);
  await failed;
  await assert.rejects(async () => {
    while ((await stream.next()).done !== true);
  }, errors.ConnectionLostError);
  assert.equal(Number((await echo.call("Change", {}))["executed"]), 1);
  await echo.client.close();
});

test("a draining server finishes what it began; the next call waits for the new one", { skip }, async () => {
  await using server = await started();
  const echo = service(server.address);
  const open = echo.call("Change", { data: Buffer.from("kept"), delayMs: 300 });
  await echo.call("Echo", {});
  const drained = server.drain();
  await new Promise((resolve) => setTimeout(resolve, 100));
  const next = echo.call("Echo", { data: Uint8Array.of(1) });
  assert.equal(Buffer.from((await open)["data"] as unknown as Uint8Array).toString(), "kept");
  assert.equal(await drained, 0);
  await server.start();
  assert.deepEqual([...((await next)["data"] as unknown as Uint8Array)], [1]);
  await echo.client.close();
});

test("a call that changes something and loses its answer is not executed twice", { skip }, async () => {
  await using server = await started();
  await using proxy = await Proxy.to(server);
  const echo = service(proxy.address);
  const needle = Buffer.from("change-me");
  proxy.onReply = (chunk) => chunk.includes(needle);
  await assert.rejects(echo.call("Change", { data: needle }), errors.ConnectionLostError);
  proxy.onReply = () => false;
  assert.equal(Number((await echo.call("Change", {}))["executed"]), 2);
  await echo.client.close();
});

test("an idempotent call whose answer is lost is made again without the caller noticing", { skip }, async () => {
  await using server = await started();
  await using proxy = await Proxy.to(server);
  const echo = service(proxy.address);
  const needle = Buffer.from("echo-me");
  let cuts = 0;
  proxy.onReply = (chunk) => cuts < 3 && chunk.includes(needle) && ++cuts > 0;
  const answer = await echo.call("Echo", { data: needle });
  assert.equal(Buffer.from(answer["data"] as unknown as Uint8Array).toString(), "echo-me");
  assert.equal(cuts, 3);
  assert.equal(proxy.connections, 4);
  await echo.client.close();
});

test("an idle client does not keep the program running", { skip }, async () => {
  await using server = await started();
  const { execFile } = await import("node:child_process");
  const { promisify } = await import("node:util");
  const index = new URL("../../src/index.js", import.meta.url).href;
  const program = `import { serving } from ${JSON.stringify(index)}; console.log(await serving());`;
  const env = { ...process.env, STOCKADE_ADDRESS: server.address };
  const args = ["--input-type=module", "-e", program];
  const { stdout } = await promisify(execFile)(process.execPath, args, { env, timeout: 60_000 });
  assert.equal(stdout, "true\n");
});

test("an idle connection is kept alive by PINGs at the pace that the broker allows", { skip }, async () => {
  await using server = await started();
  await using proxy = await Proxy.to(server);
  const client = new Client({ address: proxy.address, keepalive: 1 });
  let pongs = 0;
  await serving("", { client });
  proxy.onReply = (chunk) => {
    pongs += chunk.length > 0 ? 1 : 0;
    return false;
  };
  const began = performance.now();
  while (pongs < 2 && performance.now() - began < 120_000) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(pongs, 2);
  assert.ok(performance.now() - began > 11_900);
  assert.equal(await serving("", { client }), true);
  assert.equal(proxy.connections, 1);
  await client.close();
});

test("a unix socket whose queue is full is waited for", async () => {
  const folder = await mkdtemp(join(tmpdir(), "stockade-full-"));
  const path = join(folder, "s");
  const full = `
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(0)
waiting = []
try:
    while True:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        sock.connect(sys.argv[1])
        waiting.append(sock)
except BlockingIOError:
    print("full", flush=True)
time.sleep(0.2)
for _ in waiting:
    listener.accept()[0].close()
listener.accept()[0].close()
`;
  const listener = spawn("python3", ["-c", full, path], { stdio: ["ignore", "pipe", "inherit"] });
  await once(listener.stdout, "data");
  await using client = new Client({ address: `ipc://${path}`, connectTimeout: 30 });
  await assert.rejects(serving("", { client }), /the peer closed the connection|ECONNRESET|EPIPE/); // it got through
  await rm(folder, { recursive: true });
});
