// SPDX-License-Identifier: Apache-2.0
// Batches against a real broker.
import assert from "node:assert/strict";
import { test } from "node:test";
import { batch } from "../../src/batch.js";
import * as errors from "../../src/errors.js";
import { Proxy, Broker, NO_BPF } from "./server.js";
import { skip, broker, client, sh, eventually, processes } from "./shared.js";

// ---- refusals

test("a job that cannot be is refused with its name", { skip }, async () => {
  const all = async (jobs: Parameters<typeof batch>[0]): Promise<void> => {
    for await (const done of batch(jobs, { client })) {
      assert.fail(`job ${done.number} ran`);
    }
  };
  await assert.rejects(all([{ args: ["true"], limits: { memory: "1T" } }]), /memory_bytes/);
  await assert.rejects(all([[]]), errors.InvalidArgumentError);
  await assert.rejects(all([{ args: ["true"], what: 1 } as never]), /what/);
  assert.throws(() => batch(1 as never), errors.InvalidArgumentError);
  await assert.rejects(async () => {
    for await (const done of batch([["true"]], { client, warm: "python" })) {
      assert.fail(`job ${done.number} ran`);
    }
  }, /BATCH_RESET_FILES/);
});

// ---- what works

test("each job has one result with its output", { skip }, async () => {
  const jobs = Array.from({ length: 20 }, (_, i) => ({
    args: sh(`cat; echo e${i} >&2; exit ${i % 2}`),
    key: `k${i}`,
    stdin: `in ${i}`,
  }));
  const numbers: number[] = [];
  for await (const { number, key, result } of batch(jobs, { client, parallel: 3, window: 5 })) {
    numbers.push(number);
    assert.equal(key, `k${number}`);
    assert.equal(result.stdout, `in ${number}`);
    assert.equal(result.stderr, `e${number}\n`);
    assert.equal(result.exitCode, number % 2);
  }
  assert.deepEqual(numbers.sort((a, b) => a - b), jobs.map((_, i) => i));
});

test("snippets are forked from a warm interpreter", { skip }, async () => {
  const jobs = Array.from({ length: 4 }, (_, i) => ["python3", "-c", `print(${i})`]);
  for await (const { number, result } of batch(jobs, { client, reset: "files", warm: "python", network: "off" })) {
    assert.equal(result.stdout, `${number}\n`);
  }
});

test("a deadline ends all of them, and what was not accepted is an error", { skip }, async () => {
  function* endless(): Generator<string[]> {
    for (;;) {
      yield ["sleep", "60"];
    }
  }
  const outcomes = new Set<string>();
  await assert.rejects(async () => {
    for await (const { result } of batch(endless(), { client, window: 4, deadline: 0.4 })) {
      outcomes.add(result.outcome);
    }
  }, errors.DeadlineExceededError);
  assert.deepEqual([...outcomes], ["cancelled"]);
});

test("leaving the loop cancels what is left", { skip }, async () => {
  for await (const { number } of batch([["true"], ["sleep", "60"], ["sleep", "60"]], { client, parallel: 2 })) {
    assert.equal(number, 0);
    break;
  }
  await eventually(async () => (await processes()) === 0);
});

test("a lost connection is made again, and no job runs twice", { skip }, async () => {
  await using proxy = await Proxy.to(broker);
  const through = new (client.constructor as typeof import("../../src/client.js").Client)({ address: proxy.address });
  const ids = new Map<number, string>();
  const jobs = Array.from({ length: 30 }, (_, i) => ["echo", String(i)]);
  for await (const { number, result } of batch(jobs, { client: through, window: 10 })) {
    assert.equal(result.stdout, `${number}\n`);
    assert.ok(!ids.has(number));
    ids.set(number, result.processId);
    if (ids.size === 5 || ids.size === 15) {
      proxy.cut();
    }
  }
  assert.equal(new Set(ids.values()).size, 30);
  await through.close();
});

test("a broker that was killed has lost it", { skip }, async () => {
  await using own = new Broker("", NO_BPF);
  await own.start();
  const to = own.client();
  const results = batch([["true"], ["sleep", "60"]], { client: to, parallel: 2 });
  assert.equal((await results.next()).value?.number, 0);
  await own.crash();
  await own.start();
  await assert.rejects(results.next(), errors.ConnectionLostError);
  assert.deepEqual([...results.unfinished.keys()], [1]);
  await to.close();
});

test("what a broker that stops has accepted has a result", { skip }, async () => {
  await using own = new Broker("", NO_BPF);
  await own.start();
  const to = own.client();
  const jobs = Array.from({ length: 300 }, () => ["sleep", "0.3"]);
  const results = batch(jobs, { client: to, parallel: 1, window: 64 });
  const reasons = [(await results.next()).value?.result.reason];
  const gone = own.drain();
  const rest = async (): Promise<void> => {
    for await (const { result } of results) reasons.push(result.reason);
  };
  await assert.rejects(rest(), /the broker is shutting down/);
  assert.equal(results.unfinished.size, 0);
  assert.ok(reasons.length >= 64, String(reasons.length));
  assert.ok(reasons.includes("the broker is stopping"));
  assert.equal(await gone, 0);
  await to.close();
});
