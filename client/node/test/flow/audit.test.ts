// SPDX-License-Identifier: Apache-2.0
// The audit log: a tenant sees its own records, root all.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AuditLog } from "../../src/audit.js";
import type { AuditRecord } from "../../src/audit.js";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { run } from "../../src/jobs.js";
import { KeyService } from "../../src/schema.js";
import { Broker, NO_BPF } from "./server.js";
import { skip } from "./shared.js";

let broker: Broker;
let root: Client;
let agent: Client;

before(async () => {
  if (skip === false) {
    broker = new Broker("", NO_BPF);
    await broker.start();
    root = broker.client();
    const scopes = ["audit.read", "process.run", "process.read", "sandbox.write", "sandbox.read"];
    const { secret } = await root.unary(KeyService.method.create, { tenant: "team", scopes });
    agent = new Client({ address: broker.address, token: secret });
  }
});

after(async () => {
  if (skip === false) {
    await agent.close();
    await root.close();
    await broker[Symbol.asyncDispose]();
  }
});

async function all(records: AsyncIterable<AuditRecord>): Promise<AuditRecord[]> {
  const found: AuditRecord[] = [];
  for await (const record of records) {
    found.push(record);
  }
  return found;
}

test("wrong arguments are refused", { skip }, async () => {
  await assert.rejects(all(AuditLog.records({ tenant: "*", client: agent })), errors.PermissionDeniedError);
  await assert.rejects(AuditLog.prove("0".repeat(32), { client: agent }), errors.NotFoundError);
});

test("a tenant sees its own records, and its job is proved", { skip }, async () => {
  await run(["true"], { client: root });
  await run(["true"], { client: agent });
  for await (const job of AuditLog.watch({ afterSequence: 1n, kinds: ["job"], client: agent })) {
    assert.equal(job.kind, "job");
    assert.equal(job.tenant, "team");
    assert.ok(job.message.body.case === "job");
    const proof = await AuditLog.prove(job.message.body.value.processId, { client: agent });
    assert.equal(proof?.checkpoint?.signature.length, 64);
    break;
  }
  const own = await all(AuditLog.records({ client: agent }));
  assert.deepEqual([...new Set(own.map((record) => record.tenant))], ["team"]);
  const kinds = new Set((await all(AuditLog.records({ tenant: "*", client: root }))).map((record) => record.kind));
  assert.ok(kinds.has("start") && kinds.has("call") && kinds.has("job"), [...kinds].join());
});
