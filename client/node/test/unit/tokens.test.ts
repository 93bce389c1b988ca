// SPDX-License-Identifier: Apache-2.0
// Capability tokens: the published vectors, and narrowing.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { attenuateToken, inspectToken, sealToken, TokenError, verifyToken } from "../../src/tokens.js";

interface Vector {
  name: string;
  token: string;
  reason: string | null;
  tenant?: string;
  block_ids?: string[];
}

const source = process.env["STOCKADE_SOURCE"] ?? "../..";
const path = `${source}/tests/vectors/tokens.json`;
const file = JSON.parse(readFileSync(path, "utf8")) as { key: string; tokens: Vector[] };
const key = Buffer.from(file.key, "hex");
const good = file.tokens.find((t) => t.name === "three blocks")?.token ?? "";

function reasonOf(text: string): string | null {
  try {
    verifyToken(text, key);
    return null;
  } catch (error) {
    assert.ok(error instanceof TokenError);
    return error.reason;
  }
}

for (const vector of file.tokens) {
  test(`vector: ${vector.name}`, () => {
    const reason = reasonOf(vector.token);
    const right = vector.reason === "ANY" ? reason !== null : reason === vector.reason;
    assert.ok(right, `${vector.name}: ${String(reason)}`);
    if (vector.reason === null) {
      assert.deepEqual(inspectToken(vector.token).blockIds, vector.block_ids);
      assert.equal(inspectToken(vector.token).tenant, vector.tenant);
    }
  });
}

test("a narrower token is valid and says so", () => {
  const tools = [{ program: "git", args: ["clone", "*"] }];
  const narrow = attenuateToken(good, { uses: 1, expires: new Date(2e12), tools });
  const info = verifyToken(narrow, key);
  assert.equal(info.blocks.length, 4);
  assert.deepEqual(
    info.blocks[3]?.map((c) => c.case),
    ["tools", "uses", "expiresMs"],
  );
});

test("a sealed token cannot be narrowed", () => {
  const sealed = sealToken(good);
  assert.ok(verifyToken(sealed, key).sealed);
  assert.throws(() => attenuateToken(sealed, { uses: 1 }), (e: TokenError) => e.reason === "TOKEN_SEALED");
});

test("each changed character is refused", () => {
  for (let at = 5; at < good.length; at += 3) {
    assert.notEqual(reasonOf(good.slice(0, at) + (good[at] === "A" ? "B" : "A") + good.slice(at + 1)), null);
  }
});
