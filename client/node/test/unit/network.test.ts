// SPDX-License-Identifier: Apache-2.0
// Network policies as people write them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidArgumentError } from "../../src/errors.js";
import { networkMode, networkOf, networkPolicy } from "../../src/network.js";

function refused(what: () => unknown, field: string): void {
  assert.throws(what, (e) => e instanceof InvalidArgumentError && e.subject === field);
}

test("what is no destination, port or mode is refused and names its field", () => {
  for (const bad of ["", ":80", "a:0", "a:65536", "a:9-8", "a:", "a:x", "[::1", "[::1]80", "[]:80", "a:80-"]) {
    refused(() => networkOf({ allow: [bad] }), "network.allow");
  }
  for (const bad of [0, 65536, "http", "9-8"]) {
    refused(() => networkOf({ inbound: [bad] }), "network.inbound");
  }
  refused(() => networkOf("all" as never), "network");
  refused(() => networkOf({ egressBytes: "1X" }), "network.egressBytes");
  refused(() => networkOf({ dnsQueries: -1 }), "network.dnsQueries");
});

test("what is no policy, or says something that no policy has, is refused and never taken for less", () => {
  for (const bad of [5, null, [], ["none"], true]) {
    refused(() => networkOf(bad as never), "network");
  }
  refused(() => networkOf({ allowed: ["example.com"] } as never), "network.allowed");
  refused(() => networkOf({ allow: "example.com" as never }), "network.allow");
  refused(() => networkOf({ allow: [5 as never] }), "network.allow");
  refused(() => networkOf({ inbound: 8000 as never }), "network.inbound");
});

test("destinations become rules, and alone they mean an allowlist", () => {
  const allow = ["example.com", "*.example.com:443/tcp", "192.0.2.0/24:80-90", "[2001:db8::/32]:53/udp", "::1"];
  const message = networkOf({ allow })?.network;
  assert.equal(networkMode(message), "allowlist");
  const rules = message?.outbound.map((r) => [r.domain, r.cidr, r.ports.map((p) => [p.first, p.last]), r.protocol]);
  assert.deepEqual(rules, [
    ["example.com", "", [], 0],
    ["*.example.com", "", [[443, 443]], 1],
    ["", "192.0.2.0/24", [[80, 90]], 0],
    ["", "2001:db8::/32", [[53, 53]], 2],
    ["", "::1", [], 0],
  ]);
  assert.equal(networkOf(undefined), undefined);
});

test("a policy comes back as it was said", () => {
  const said = {
    mode: "open" as const,
    allow: ["10.0.0.0/8:80-90/tcp", "[fd00::/8]:443"],
    inbound: ["8080", "9000-9010"],
    egressBytes: 1000,
    egressRate: 2000,
    dnsQueries: 60,
  };
  assert.deepEqual(networkPolicy(networkOf(said)?.network), said);
  assert.equal(networkMode(networkOf("none")?.network), "none");
});
