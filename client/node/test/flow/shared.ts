// SPDX-License-Identifier: Apache-2.0
// What the tests against a real broker share: the broker of this process, its client, and how to wait.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { Client } from "../../src/client.js";
import { info } from "../../src/info.js";
import { Sandbox } from "../../src/sandbox.js";
import { Broker, missing } from "./server.js";

export const skip = ["stockaded", "stockade-spawner", "stockade-guest"].reduce<string | false>(
  (found, name) => found || missing(`server/${name}`, true),
  false,
);
export const MB = 1024 * 1024;
export const text = new TextDecoder();

export let broker: Broker;
export let client: Client;

before(async () => {
  if (skip === false) {
    broker = new Broker();
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

export function sh(script: string): string[] {
  return ["sh", "-c", script];
}

export async function eventually(what: () => Promise<boolean>, ms = 60_000): Promise<void> {
  const end = performance.now() + ms;
  while (!(await what())) {
    assert.ok(performance.now() < end, `did not come true within ${ms} ms: ${what.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export async function processes(): Promise<number> {
  return (await info({ client })).processes;
}

export async function listed(metadata: Record<string, string>): Promise<string[]> {
  const ids: string[] = [];
  for await (const box of Sandbox.list({ client, metadata })) {
    ids.push(box.id);
  }
  return ids;
}
