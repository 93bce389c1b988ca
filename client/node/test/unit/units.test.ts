// SPDX-License-Identifier: Apache-2.0
// Sizes, durations, limits and addresses as people write them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidArgumentError } from "../../src/errors.js";
import type { Limits } from "../../src/limits.js";
import { limitsInForce, limitsMessage } from "../../src/limits.js";
import { parseAddress } from "../../src/transport.js";
import { lifetimeMs, parseDuration, parseSize, textsOf, wholeMilliseconds } from "../../src/units.js";

function refused(what: () => unknown, field?: string): void {
  assert.throws(what, (e) => e instanceof InvalidArgumentError && (field === undefined || e.subject === field));
}

test("sizes that are none are refused and name their field", () => {
  for (const bad of ["", "M", "1X", "-1", "1 2", "0x10", "1e9", "999999999T", NaN, -1, Infinity]) {
    refused(() => parseSize(bad, "keep"), "keep");
  }
  refused(() => parseSize(null as never, "keep"), "keep");
});

test("what is refused is said in words", () => {
  assert.throws(() => parseSize("lots", "keep"), { message: `keep: 'lots' must be a size, such as "256M"` });
  assert.throws(() => parseDuration("soon", "ttl"), { message: `ttl: 'soon' must be a time, such as "250ms"` });
  assert.throws(() => textsOf({ A: 5 as never }, "env"), { message: "env.A: 5 is not a string" });
  assert.throws(() => textsOf(["data"] as never, "volumes"), { message: "volumes: [ 'data' ] is not an object" });
});

test("sizes are powers of 1024, with and without B", () => {
  assert.equal(parseSize("256M"), 268_435_456);
  assert.equal(parseSize("1.5 GiB"), 1_610_612_736);
  assert.equal(parseSize("64kb"), 65_536);
  assert.equal(parseSize(4096), 4096);
  assert.equal(parseSize("10"), 10);
});

test("durations that are none are refused", () => {
  for (const bad of ["", "s", "5 weeks", "-1s", "1:30", NaN, -0.1]) {
    refused(() => parseDuration(bad, "timeout"), "timeout");
  }
});

test("a duration that no clock holds, and a sandbox that lives for no time, are refused", () => {
  refused(() => parseDuration(1e30, "deadline"), "deadline");
  refused(() => parseDuration(5n as never, "deadline"), "deadline");
  refused(() => lifetimeMs(0), "ttl");
  refused(() => lifetimeMs(Infinity), "ttl");
  assert.equal(lifetimeMs(undefined), 0n);
  assert.equal(lifetimeMs(0.00001), 1n);
});

test("text that is none is refused with its name", () => {
  refused(() => textsOf({ a: 1 as never }, "metadata"), "metadata.a");
  refused(() => textsOf({ A: undefined as never }, "env"), "env.A");
  assert.deepEqual(textsOf(undefined, "env"), {});
});

test("a duration is seconds, or has a unit; whole milliseconds are rounded up", () => {
  assert.equal(parseDuration(1.5), 1500);
  assert.equal(parseDuration("2"), 2000);
  assert.equal(parseDuration("250ms"), 250);
  assert.equal(parseDuration("1.5h"), 5_400_000);
  assert.equal(wholeMilliseconds(0.00001, "t"), 1);
});

test("a limit that is unknown, zero or of the wrong kind is refused", () => {
  refused(() => limitsMessage({ memry: 1 } as Limits), "limits.memry");
  refused(() => limitsMessage({ constructor: 1 } as never), "limits.constructor");
  refused(() => limitsMessage({ memory: 0 }), "limits.memory");
  refused(() => limitsMessage({ pids: 1.5 }), "limits.pids");
  refused(() => limitsMessage({ pids: "5" as never }), "limits.pids");
  refused(() => limitsMessage({ cpus: NaN }), "limits.cpus");
  refused(() => limitsMessage({ inodes: 2 ** 33 }), "limits.inodes");
  refused(() => limitsMessage("64M" as never), "limits");
  refused(() => limitsMessage(null as never), "limits");
});

test("limits become the protocol's units and come back in ours", () => {
  const message = limitsMessage({ memory: "256M", cpus: 0.5, timeout: "1.5s", cpuTime: 2, pids: 64, output: "1K" });
  assert.equal(message.memoryBytes, 268_435_456n);
  assert.equal(message.cpuMillis, 500);
  assert.equal(message.wallMs, 1500n);
  assert.deepEqual(limitsInForce(message), {
    memory: 268_435_456,
    cpus: 0.5,
    cpuTime: 2,
    timeout: 1.5,
    pids: 64,
    output: 1024,
  });
});

test("addresses that are none are refused", () => {
  for (const bad of [
    "",
    "/run/x.sock",
    "ipc://run/x.sock",
    `ipc:///${"x".repeat(107)}`,
    "ipc:///a\0b",
    "tcp://localhost",
    "tcp://localhost:0",
    "tcp://localhost:65536",
    "tcp://user@host:1",
    "tcp://::1:5",
    "ws://localhost:80",
    "http://localhost:80",
  ]) {
    refused(() => parseAddress(bad), "address");
  }
});

test("addresses of unix sockets and of tcp are read", () => {
  assert.deepEqual(parseAddress("ipc:///run/stockade/stockade.sock"), {
    framing: "ipc",
    path: "/run/stockade/stockade.sock",
  });
  assert.deepEqual(parseAddress("unix:/a"), { framing: "ipc", path: "/a" });
  assert.deepEqual(parseAddress("tcp://localhost:7700"), { framing: "tcp", host: "localhost", port: 7700, tls: false });
  assert.deepEqual(parseAddress("tcp://[::1]:7700"), { framing: "tcp", host: "::1", port: 7700, tls: false });
  assert.deepEqual(parseAddress("tls+tcp://broker.example:7443"), {
    framing: "tcp",
    host: "broker.example",
    port: 7443,
    tls: true,
  });
});
