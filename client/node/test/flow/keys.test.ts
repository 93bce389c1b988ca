// SPDX-License-Identifier: Apache-2.0
// API keys and tokens of a real broker, which root makes and agents use.
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { after, before, test } from "node:test";
import { Client } from "../../src/client.js";
import * as errors from "../../src/errors.js";
import { info } from "../../src/info.js";
import { run } from "../../src/jobs.js";
import { ApiKeys, Tokens } from "../../src/keys.js";
import type { KeyForm, KeyInfo } from "../../src/keys.js";
import { verifyToken } from "../../src/tokens.js";
import type { TokenCaveats } from "../../src/tokens.js";
import { Broker, NO_BPF } from "./server.js";
import { skip } from "./shared.js";

const RIGHTS = ["process.run", "process.read", "sandbox.read", "sandbox.write", "system.read"];
const ISSUER = "https://ci.example.org";
const issuer = generateKeyPairSync("ed25519");

let folder: string;
let broker: Broker;
let root: Client;

before(async () => {
  if (skip === false) {
    folder = mkdtempSync(join(tmpdir(), "stockade-keys-"));
    chmodSync(folder, 0o755); // the broker has an account of its own
    const jwk = { ...issuer.publicKey.export({ format: "jwk" }), kid: "one" };
    writeFileSync(join(folder, "keys"), JSON.stringify({ keys: [jwk] }), { mode: 0o644 });
    broker = new Broker("", `${NO_BPF}
issuers:
  - issuer: ${ISSUER}
    audience: stockade
    jwks_file: ${folder}/keys
    algorithms: [EdDSA]
    token_ttl: 10m
    grants:
      - {claims: {sub: "repo:acme/*"}, tenant: ci, scopes: [${RIGHTS.join(", ")}]}
`);
    await broker.start();
    root = broker.client();
  }
});

after(async () => {
  if (skip === false) {
    await root.close();
    await broker[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  }
});

function jwt(claims: object = {}): string {
  const now = Math.floor(Date.now() / 1000);
  const all = { iss: ISSUER, aud: "stockade", sub: "repo:acme/a", iat: now, exp: now + 60, ...claims };
  const parts = [{ alg: "EdDSA", kid: "one" }, all];
  const text = parts.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  return `${text}.${sign(null, Buffer.from(text), issuer.privateKey).toString("base64url")}`;
}

async function runs(token: string): Promise<string> {
  await using client = new Client({ address: broker.address, token });
  return (await run(["echo", "yes"], { client })).stdout;
}

async function keysOf(tenant: string): Promise<KeyInfo[]> {
  const found: KeyInfo[] = [];
  for await (const key of ApiKeys.list({ tenant, client: root })) {
    found.push(key);
  }
  return found;
}

test("what is wrong is refused", { skip }, async () => {
  const wrong = errors.InvalidArgumentError;
  await assert.rejects(ApiKeys.create({ colour: "x" } as object), wrong);
  await assert.rejects(ApiKeys.create({ scopes: "process.run" as unknown as string[] }), wrong);
  await assert.rejects(ApiKeys.create({ form: "jwt" as KeyForm }), wrong);
  await assert.rejects(ApiKeys.create({ ttl: 0 }), wrong);
  await assert.rejects(ApiKeys.create({ scopes: ["no.such"], client: root }), wrong);
  await assert.rejects(ApiKeys.revoke("nothing", { client: root }), errors.NotFoundError);
  await assert.rejects(Tokens.mint({ caveats: { methodz: [] } as TokenCaveats }), wrong);
  await assert.rejects(Tokens.revoke("zz", { client: root }), wrong);
  await assert.rejects(Tokens.exchange("a\nb", { client: root }), wrong);
});

test("a key is shown once, listed and revoked", { skip }, async () => {
  const made = await ApiKeys.create({ label: "for ci", scopes: RIGHTS, tenant: "team", ttl: "1h", client: root });
  assert.match(made.secret, /^stk_[0-9a-f]{40}$/);
  assert.ok(!inspect(made).includes(made.secret) && !JSON.stringify(made).includes(made.secret));
  assert.equal(await runs(made.secret), "yes\n");
  assert.deepEqual(await keysOf("team"), [made.info]);
  const { label, maker, hint, created, expires, revoked, id } = made.info;
  assert.deepEqual([label, maker, revoked], ["for ci", "uid:0", null]);
  assert.ok(made.secret.startsWith(hint) && expires !== null);
  assert.equal(Math.round((expires.getTime() - created.getTime()) / 1000), 3600);
  assert.match((await ApiKeys.create({ form: "e2b", client: root })).secret, /^e2b_/);
  await using client = new Client({ address: broker.address, token: made.secret });
  await assert.rejects(ApiKeys.create({ client }), errors.PermissionDeniedError);
  await ApiKeys.revoke(id, { client: root });
  await assert.rejects(runs(made.secret), errors.UnauthenticatedError);
  assert.notEqual((await keysOf("team"))[0]?.revoked, null);
});

test("a token is minted, verified and revoked", { skip }, async () => {
  const expires = new Date(Date.now() + 600_000);
  const caveats = { expires, tools: [{ program: "echo", args: ["*"] }] };
  const minted = await Tokens.mint({ scopes: RIGHTS, tenant: "team", caveats, client: root });
  assert.ok(!inspect(minted).includes(minted.token));
  assert.deepEqual([minted.tenant, minted.expires, minted.scopes.length], ["team", expires, RIGHTS.length]);
  const { keys, audience } = await Tokens.signingKeys({ client: root });
  assert.equal(audience, "stockade");
  const { keyId, blockIds } = verifyToken(minted.token, keys[0]?.key ?? new Uint8Array());
  assert.deepEqual([keyId, blockIds], [keys[0]?.id, [minted.blockId]]);
  assert.equal(await runs(minted.token), "yes\n");
  await using client = new Client({ address: broker.address, token: minted.token });
  await assert.rejects(run(["true"], { client }), errors.PermissionDeniedError);
  await assert.rejects(Tokens.mint({ client }), errors.PermissionDeniedError);
  await Tokens.revoke(minted.blockId, { client: root });
  await assert.rejects(runs(minted.token), errors.UnauthenticatedError);
  await Tokens.rotate({ overlap: "1h", client: root });
  const rotated = (await Tokens.signingKeys({ client: root })).keys;
  assert.equal(rotated.length, 2);
  assert.equal(rotated[1]?.expires, null);
});

test("a JSON Web Token is exchanged", { skip }, async () => {
  await using client = new Client({ address: broker.address, token: `stk_${"0".repeat(40)}` }); // it is not sent
  const made = await Tokens.exchange(jwt(), { client });
  assert.deepEqual([made.tenant, made.scopes.length], ["ci", RIGHTS.length]);
  assert.ok(made.expires !== null && !inspect(made).includes(made.token));
  assert.equal(await runs(made.token), "yes\n");
  const less = await Tokens.exchange(jwt(), { scopes: ["system.read"], ttl: "1m", client });
  assert.deepEqual(less.scopes, ["system.read"]);
  await assert.rejects(runs(less.token), errors.PermissionDeniedError);
  await assert.rejects(Tokens.exchange(jwt(), { scopes: ["key.write"], client }), errors.PermissionDeniedError);
  await assert.rejects(Tokens.exchange(jwt({ exp: 1 }), { client }), errors.UnauthenticatedError);
  await assert.rejects(info({ client }), errors.UnauthenticatedError);
});

test("a token file is read with each call", { skip }, async () => {
  const tokenFile = join(folder, "token");
  const { address } = broker;
  assert.throws(() => new Client({ address, token: "a", tokenFile }), /excludes token/);
  assert.throws(() => new Client({ address, tokenFile }), /no such file/);
  writeFileSync(tokenFile, "\n");
  assert.throws(() => new Client({ address, tokenFile }), /is empty/);
  writeFileSync(tokenFile, "stk_\xff\n", "latin1");
  assert.throws(() => new Client({ address, tokenFile }), /no token has/);
  mkdirSync(join(folder, "dir"));
  assert.throws(() => new Client({ address, tokenFile: join(folder, "dir") }), /no regular file/);
  const first = await ApiKeys.create({ scopes: RIGHTS, tenant: "files", client: root });
  const second = await ApiKeys.create({ scopes: RIGHTS, tenant: "files", client: root });
  writeFileSync(tokenFile, `${first.secret}\r\nnot this\n`);
  await using client = new Client({ address, tokenFile });
  assert.equal((await run(["echo", "1"], { client })).stdout, "1\n");
  await ApiKeys.revoke(first.info.id, { client: root });
  await assert.rejects(info({ client }), errors.UnauthenticatedError);
  writeFileSync(join(folder, "next"), second.secret);
  renameSync(join(folder, "next"), tokenFile);
  assert.equal((await run(["echo", "2"], { client })).stdout, "2\n");
  rmSync(tokenFile);
  await assert.rejects(info({ client }), errors.InvalidArgumentError);
});
