// SPDX-License-Identifier: Apache-2.0
// Policies: what would be decided about a call, and what a denied one says.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { run } from "../../src/jobs.js";
import { Policy } from "../../src/policy.js";
import { Findings } from "../../src/findings.js";
import { Rules } from "../../src/rules.js";
import { Broker } from "./server.js";
import { skip } from "./shared.js";

const POLICY = `
layers:
  - name: base
    rules:
      - {id: push, match: {commands: ["git push ..."]}, verdict: deny, reason: a person pushes}
      - id: people
        match: {commands: [deploy]}
        verdict: ask
        ask: {approvers: ["uid:0"], timeout: 1h}
      - {id: shadow, match: {paths: [/etc/shadow]}, verdict: deny}
      - id: memory
        match: {methods: [ProcessService/Run], languages: [python]}
        verdict: limit
        limit: {limits: {memory: 64M}}
`;

let broker: Broker;
let client: Client;

before(async () => {
  if (skip === false) {
    broker = new Broker(POLICY);
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

test("a call is explained as it would be decided", { skip }, async () => {
  const denied = await Policy.explain(["git", "push", "x"], { client });
  assert.equal(denied.verdict, "deny");
  assert.equal(denied.rule, "base/push");
  assert.equal(denied.reason, "a person pushes");
  assert.match(denied.allowed, /^commands other than git push/);
  const last = denied.steps.at(-1);
  assert.deepEqual([last?.kind, last?.layer, last?.rule, last?.line], ["host", "base", "push", 5]);
  assert.equal((await Policy.explain(["git", "log"], { client })).verdict, "allow");
  const asked = await Policy.explain(["deploy"], { client });
  assert.deepEqual(
    asked.questions.map((q) => [q.rule, q.approvers, q.need, q.timeoutMs]),
    [["base/people", ["uid:0"], 1, 3_600_000]],
  );
  const read = await Policy.explain([], { method: "FileService/Read", paths: ["/etc/../etc/shadow"], client });
  assert.equal(read.rule, "base/shadow");
  const limited = await Policy.explain(["x"], { language: "python", limits: { memory: "8M" }, client });
  assert.deepEqual([limited.verdict, limited.limits], ["limit", { memory: "64M" }]);
  await assert.rejects(Policy.explain(["x"], { method: "FileService/None", client }), errors.NotFoundError);
});

test("the error of a denied call names rule, reason and what is allowed", { skip }, async () => {
  await assert.rejects(run(["git", "push"], { client }), (e: unknown) => {
    assert.ok(e instanceof errors.PermissionDeniedError, String(e));
    assert.match(e.message, /a person pushes/);
    assert.match(String(e), /rule: base\/push; allowed: commands other than git push.*hint: .*change base\/push/);
    assert.equal(e.rule, "base/push");
    return true;
  });
});

test("a call narrows itself", { skip }, async () => {
  const policy = JSON.stringify({ otherwise: "deny", reason: "not now" });
  await assert.rejects(run(["true"], { client, policy }), /not now/);
  assert.equal((await Policy.explain(["true"], { client, policy })).steps.at(-1)?.kind, "request");
  await run(["true"], { client });
});

test("the policy and its sets are shown", { skip }, async () => {
  const shown = await Policy.show({ client });
  assert.deepEqual(
    shown.layers.map((l) => [l.kind, l.name, l.otherwise, l.rules.map((r) => r.id)]),
    [["host", "base", "allow", ["push", "people", "shadow", "memory"]]],
  );
  assert.equal(shown.digest.length, 32);
  const sets = await Policy.sets({ client });
  assert.ok(sets.some((s) => s.name === "pypi" && s.destinations.includes("pypi.org:443/tcp")));
});

test("detection rules are kept, tried and switched off", { skip }, async () => {
  const match = { kinds: ["exec"], all: [{ executable: { suffix: ["/nc"] } }] };
  const rule = { id: "nc", severity: "warning", tags: ["T1571"], message: "{arguments}", match };
  await assert.rejects(Rules.set("mine", "rules: [{id: nc}]", { client }), /mine:1:9: /);
  await assert.rejects(Rules.disable("fork-storm", { client }), errors.FailedPreconditionError);
  assert.deepEqual((await Rules.list({ client })).rules, []);
  const [set] = await Rules.set("mine", { rules: [rule] }, { client });
  assert.deepEqual([set?.id, set?.origin, set?.enabled, set?.tags], ["nc", "tenant", true, ["T1571"]]);
  const events = [{ kind: "exec", executable: "/bin/nc", arguments: "nc -l" }, { kind: "exit" }];
  const found = await Rules.test(events, { client });
  assert.deepEqual(found.map((f) => [f.event, f.rule, f.response, f.text]), [[1, "nc", "alert", "nc -l"]]);
  await Rules.disable("nc", { client });
  assert.deepEqual((await Rules.get("mine", { client })).disabled, ["nc"]);
  await Rules.enable("nc", { client });
  assert.equal((await Rules.check("mine", "rules: []", { client })).length, 0);
  assert.ok((await Rules.list({ client, host: true })).rules.some((r) => r.origin === "tripwire"));
  await Rules.delete("mine", { client });
  await assert.rejects(Rules.get("mine", { client }), errors.NotFoundError);
});

test("findings are acknowledged and silenced", { skip }, async () => {
  await assert.rejects(Findings.silence("nothing", "1h", "a test", { client }), /there is no rule nothing/);
  await assert.rejects(Findings.acknowledge(999999, { client }), errors.NotFoundError);
  const made = await Findings.silence("sensitive-path", "1h", "a test", { comm: "cat", client });
  assert.deepEqual([made.rule, made.comm, made.reason, made.byHost], ["sensitive-path", "cat", "a test", true]);
  await run(["cat", "/etc/shadow"], { client });
  const found = [];
  for await (const f of Findings.list({ rule: "sensitive-path", client })) if (f.silenced) found.push(f);
  assert.equal(found.at(-1)?.silenceId, made.id);
  const sequence = found.at(-1)?.sequence ?? 0;
  await Findings.acknowledge(sequence, { reason: "handled", client });
  for await (const f of Findings.acknowledged({ client })) assert.equal(f.acknowledgements[0]?.reason, "handled");
  await Findings.acknowledge(sequence, { withdraw: true, client });
  await Findings.unsilence(made.id, { client });
  for await (const s of Findings.silences({ client })) assert.fail(s.id);
});
