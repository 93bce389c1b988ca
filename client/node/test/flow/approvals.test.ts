// SPDX-License-Identifier: Apache-2.0
// Approvals: an agent of the tenant "team" asks, and root answers.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Approval } from "../../src/approvals.js";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { run } from "../../src/jobs.js";
import { Sandbox } from "../../src/sandbox.js";
import { KeyService, RunRequestSchema } from "../../src/schema.js";
import { Broker, NO_BPF } from "./server.js";
import { skip } from "./shared.js";

const POLICY = `
layers:
  - name: base
    rules:
      - id: people
        match: {commands: ["echo deploy* ...", "echo wait ..."]}
        verdict: ask
        reason: it changes production
        ask: {approvers: ["uid:0"]}
`;

let broker: Broker;
let root: Client;
let agent: Client;

before(async () => {
  if (skip === false) {
    broker = new Broker(POLICY, NO_BPF);
    await broker.start();
    root = broker.client();
    const scopes = ["approval.read", "approval.write", "process.run", "process.read", "sandbox.write", "sandbox.read"];
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

function requestOf(...args: string[]): Uint8Array {
  return toBinary(RunRequestSchema, create(RunRequestSchema, { command: { args } }));
}

/** Runs a command that needs an approval; the id of that. */
async function asked(...args: string[]): Promise<string> {
  const error: unknown = await run(args, { client: agent }).then(
    () => undefined,
    (e: unknown) => e,
  );
  assert.ok(error instanceof errors.ApprovalPendingError, String(error));
  assert.ok(error instanceof errors.FailedPreconditionError);
  assert.match(error.approval, /^[0-9a-f]{32}$/);
  return error.approval;
}

/** Answers the approval of this command as soon as there is one. */
async function answer(subject: string, agree: boolean): Promise<void> {
  for await (const info of Approval.watch({ client: root })) {
    if (info.state === "pending" && info.subject === subject) {
      const found = await Approval.connect(info.id, { client: root });
      await (agree ? found.approve() : found.deny({ comment: "not today" }));
      return;
    }
  }
}

function reason(wanted: string): (e: unknown) => boolean {
  return (e) => e instanceof errors.StockadeError && e.reason === wanted;
}

test("what is wrong is refused", { skip }, async () => {
  await assert.rejects(Approval.connect("0".repeat(32), { client: agent }), errors.NotFoundError);
  await assert.rejects(
    Approval.create("ProcessService/Nothing", new Uint8Array(), { client: agent }),
    errors.InvalidArgumentError,
  );
  await assert.rejects(run(["true"], { client: agent, approvalWait: "soon" }), errors.InvalidArgumentError);
  await assert.rejects(run(["echo", "deploy"], { client: agent, approvalWait: "1h" }), errors.InvalidArgumentError);
  await assert.rejects(Approval.list({ state: "open" as "pending", client: root }).next(), errors.InvalidArgumentError);
  const own = await Approval.create("ProcessService/Run", requestOf("true"), { client: root });
  await assert.rejects(own.approve(), reason("APPROVAL_OWN"));
  assert.equal((await own.cancel()).state, "cancelled");
  await assert.rejects(own.cancel(), reason("APPROVAL_ENDED"));
});

test("an answer permits the call once", { skip }, async () => {
  const approval = await asked("echo", "deploy", "once");
  assert.equal(await asked("echo", "deploy", "once"), approval);
  const pending = await Approval.connect(approval, { client: root });
  const { subject, rule, approvers, request } = pending.info;
  assert.deepEqual([subject, rule, approvers], ["echo deploy once", "base/people", ["uid:0"]]);
  assert.equal(fromBinary(RunRequestSchema, request).command?.args[2], "once");
  const listed: string[] = [];
  for await (const info of Approval.list({ state: "pending", client: root })) {
    listed.push(info.id);
  }
  assert.ok(listed.includes(approval));
  const { state, reach, votes } = await pending.approve({ comment: "fine" });
  assert.deepEqual([state, reach, votes[0]?.comment], ["approved", "once", "fine"]);
  const options = { client: agent, approval };
  await assert.rejects(run(["echo", "deploy", "other"], options), reason("APPROVAL_MISMATCH"));
  assert.equal((await run(["echo", "deploy", "once"], options)).stdout, "deploy once\n");
  await assert.rejects(run(["echo", "deploy", "once"], options), reason("APPROVAL_USED"));
  assert.equal((await pending.refresh()).uses, 1);
});

test("a pattern permits what matches it", { skip }, async () => {
  const pending = await Approval.connect(await asked("echo", "deploy-1"), { client: root });
  const { reach, pattern } = await pending.approve({ pattern: "echo deploy-*", ttl: "1h" });
  assert.deepEqual([reach, pattern], ["pattern", "echo deploy-*"]);
  assert.equal((await run(["echo", "deploy-2"], { client: agent })).stdout, "deploy-2\n");
});

test("a call waits for the answer", { skip }, async () => {
  const options = { client: agent, approvalWait: "5m" };
  const [ran] = await Promise.all([run(["echo", "wait", "run"], options), answer("echo wait run", true)]);
  assert.equal(ran.stdout, "wait run\n");
  const denied = answer("echo wait denied", false);
  await assert.rejects(run(["echo", "wait", "denied"], options), reason("APPROVAL_DENIED"));
  await denied;
  await using box = await Sandbox.create({ client: agent });
  const exec = box.run(["echo", "wait", "exec"], { approvalWait: "5m" });
  const [done] = await Promise.all([exec, answer("echo wait exec", true)]);
  assert.equal(done.stdout, "wait exec\n");
  const late = run(["echo", "wait", "long"], { client: agent, approvalWait: "50ms" });
  await assert.rejects(late, errors.ApprovalPendingError);
});

test("a watch of one ends with it, and any other goes on after a restart", { skip }, async () => {
  const pending = await Approval.create("ProcessService/Run", requestOf("true"), { reason: "why not", client: agent });
  assert.equal(pending.info.reason, "why not");
  const states: string[] = [];
  for await (const info of Approval.watch({ id: pending.id, client: agent })) {
    states.push(info.state);
    if (info.state === "pending") {
      await (await Approval.connect(pending.id, { client: root })).deny();
    }
  }
  assert.deepEqual(states, ["pending", "denied"]);
  const watch = Approval.watch({ afterRevision: (await pending.refresh()).revision, client: root });
  const first = await Approval.create("ProcessService/Run", requestOf("id"), { approvers: ["uid:0"], client: agent });
  assert.equal((await watch.next()).value?.id, first.id);
  await broker.crash();
  await broker.start();
  const second = await Approval.create("ProcessService/Run", requestOf("ls"), { approvers: ["uid:0"], client: agent });
  assert.equal((await watch.next()).value?.id, second.id);
  await watch.return();
});
