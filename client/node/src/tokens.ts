// SPDX-License-Identifier: Apache-2.0
// Capability tokens: reading, narrowing and verifying them, without the broker. See proto/stockade/v1/token.proto.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import * as crypto from "node:crypto";
import { Code, UnauthenticatedError } from "./errors.js";
import { CaveatLimitsSchema, CaveatSchema, TokenBlockSchema, TokenSchema } from "./gen/stockade/v1/token_pb.js";
import type { Caveat, SignedBlock, Token, TokenBlock } from "./gen/stockade/v1/token_pb.js";
import { SignedBlockSchema } from "./gen/stockade/v1/token_pb.js";

const PREFIX = "stkt_";
const BLOCK = Buffer.from("stockade token block\0");
const SEAL = Buffer.from("stockade token sealed\0");
const TEXT_MAX = 5 + 4000;
const BLOCKS_MAX = 16;
// What stands before the 32 bytes of a key in DER (RFC 8410).
const PRIVATE = Buffer.from("302e020100300506032b657004220420", "hex");
const PUBLIC = Buffer.from("302a300506032b6570032100", "hex");

/**
 * A text is no valid token, or cannot be narrowed as requested. `reason` is "TOKEN_FORM", "TOKEN_WIDER",
 * "TOKEN_SIGNATURE" or "TOKEN_SEALED".
 */
export class TokenError extends UnauthenticatedError {
  constructor(reason: string, text: string) {
    super(Code.UNAUTHENTICATED, `the token is not valid: ${text}`, { reason });
  }
}

/** A program that jobs may run. */
export interface Tool {
  /** The first word of the command, exactly. */
  program: string;
  /** One pattern for each further word; "*" in it stands for any text. */
  args?: string[];
  /** Words beyond the patterns are allowed. */
  moreArgs?: boolean;
  /** Environment variables that a caller may set. */
  env?: string[];
}

/** The caveats of a new block; all caveats of all blocks must hold. */
export interface TokenCaveats {
  /** Rights that stay, such as "process.run". */
  scopes?: string[];
  /** Such as "ProcessService/Run", or "FileService/*". */
  methods?: string[];
  /** Ids or names of sandboxes that calls must concern. */
  sandboxes?: string[];
  /** Templates of sandboxes that calls may make or concern. */
  templates?: string[];
  /** Destinations such as "example.org:443"; an empty list: no network. */
  network?: string[];
  /** Names of brokers. */
  audience?: string[];
  /** Programs that jobs may run. */
  tools?: Tool[];
  /** The highest limits. 0 or missing: this one is not narrowed. */
  limits?: {
    memoryBytes?: bigint;
    cpuMillis?: number;
    cpuTimeMs?: bigint;
    wallMs?: bigint;
    pids?: number;
    diskBytes?: bigint;
    outputBytes?: bigint;
  };
  /** Number of calls; needs `expires` here or in an earlier block. */
  uses?: number;
  /** Valid from then on. */
  notBefore?: Date;
  /** Valid until then. */
  expires?: Date;
}

/** What a token says. */
export interface TokenInfo {
  /** Whose objects its holder may see and make. */
  tenant: string;
  /** The rights that it has at most. */
  scopes: string[];
  /** The broker's key that signed it: 16 hex digits. */
  keyId: string;
  /** Nobody can narrow it. */
  sealed: boolean;
  /** The ids of its blocks, by which they can be revoked. */
  blockIds: string[];
  /** The caveats of each block. */
  blocks: Caveat["caveat"][][];
}

interface Parsed {
  token: Token;
  blocks: TokenBlock[];
}

function badForm(why: string): TokenError {
  return new TokenError("TOKEN_FORM", why);
}

// A message that this code would write as the same bytes, so that it has no field or caveat that is not understood.
function canonical<T extends DescMessage>(schema: T, bytes: Uint8Array): MessageShape<T> {
  let message: MessageShape<T>;
  try {
    message = fromBinary(schema, bytes, { readUnknownFields: false });
  } catch {
    throw badForm("it is cut or damaged");
  }
  if (!Buffer.from(toBinary(schema, message)).equals(bytes)) {
    throw badForm("it has a field or a caveat that is not known here");
  }
  return message;
}

function decode(text: string): Buffer {
  if (!text.startsWith(PREFIX) || text.length > TEXT_MAX) {
    throw badForm("it does not begin with stkt_, or is too long");
  }
  const bytes = Buffer.from(text.slice(PREFIX.length), "base64url");
  if (encode(bytes) !== text) {
    throw badForm("it has characters that no token has");
  }
  return bytes;
}

function encode(bytes: Uint8Array): string {
  return PREFIX + Buffer.from(bytes).toString("base64url");
}

function checkBlock(block: TokenBlock, first: boolean, expires: boolean): void {
  if (first && (block.tenant === "" || block.scopes.length === 0)) {
    throw badForm("its first block names no tenant or no scopes");
  }
  if (!first && (block.tenant !== "" || block.scopes.length > 0)) {
    throw new TokenError("TOKEN_WIDER", "a later block names a tenant or scopes");
  }
  for (const { caveat } of block.caveats) {
    if (caveat.case === undefined) {
      throw badForm("it has a caveat that is not known here");
    }
    if (caveat.case === "uses" && !expires) {
      throw badForm("a number of uses needs an expiry");
    }
  }
}

function read(text: string): Parsed {
  const token = canonical(TokenSchema, decode(text));
  if (token.blocks.length === 0 || token.blocks.length > BLOCKS_MAX) {
    throw badForm("it has no block, or more than 16");
  }
  if (token.keyId.length !== 8 || ![32, 64].includes(token.proof.length)) {
    throw badForm("the id of its key, or its proof, has a wrong length");
  }
  let expires = false;
  const blocks = token.blocks.map((signed, index) => {
    if (signed.nextKey.length !== 32 || signed.signature.length !== 64) {
      throw badForm("a key or a signature has a wrong length");
    }
    const block = canonical(TokenBlockSchema, signed.block);
    expires ||= block.caveats.some(({ caveat }) => caveat.case === "expiresMs");
    checkBlock(block, index === 0, expires);
    return block;
  });
  return { token, blocks };
}

function hash(bytes: Uint8Array, size: number): Buffer {
  return crypto.createHash("blake2b512").update(bytes).digest().subarray(0, size);
}

function privateKey(seed: Uint8Array): crypto.KeyObject {
  return crypto.createPrivateKey({ key: Buffer.concat([PRIVATE, seed]), format: "der", type: "pkcs8" });
}

function publicOf(seed: Uint8Array): Buffer {
  const key = crypto.createPublicKey(privateKey(seed));
  return key.export({ format: "der", type: "spki" }).subarray(PUBLIC.length);
}

function check(key: Uint8Array, bytes: Uint8Array, signature: Uint8Array): boolean {
  const der = Buffer.concat([PUBLIC, key]);
  try {
    return crypto.verify(null, bytes, crypto.createPublicKey({ key: der, format: "der", type: "spki" }), signature);
  } catch {
    return false;
  }
}

function signedBytes(keyId: Uint8Array, blocks: SignedBlock[], index: number): Buffer {
  const block = blocks[index] as SignedBlock;
  const number = Buffer.alloc(4);
  number.writeUInt32BE(index);
  const before = index === 0 ? keyId : (blocks[index - 1] as SignedBlock).signature;
  return Buffer.concat([BLOCK, number, before, block.nextKey, block.block]);
}

/** @internal The caveats of a block as messages. */
export function caveatsOf(c: TokenCaveats): Caveat[] {
  const all: Caveat["caveat"][] = [];
  const words = ["scopes", "methods", "sandboxes", "templates", "network", "audience"] as const;
  for (const name of words) {
    const list = c[name];
    if (list !== undefined) {
      all.push({ case: name, value: { words: list } } as Caveat["caveat"]);
    }
  }
  if (c.tools !== undefined) {
    const tools = c.tools.map((t) => ({
      program: t.program,
      args: t.args ?? [],
      moreArgs: t.moreArgs ?? false,
      env: t.env ?? [],
    }));
    all.push({ case: "tools", value: { tools } } as unknown as Caveat["caveat"]);
  }
  if (c.limits !== undefined) {
    all.push({ case: "limits", value: create(CaveatLimitsSchema, c.limits) });
  }
  if (c.uses !== undefined) {
    all.push({ case: "uses", value: BigInt(c.uses) });
  }
  if (c.notBefore !== undefined) {
    all.push({ case: "notBeforeMs", value: BigInt(c.notBefore.getTime()) });
  }
  if (c.expires !== undefined) {
    all.push({ case: "expiresMs", value: BigInt(c.expires.getTime()) });
  }
  return all.map((caveat) => create(CaveatSchema, { caveat }));
}

function open(text: string): Parsed {
  const parsed = read(text);
  if (parsed.token.proof.length !== 32) {
    throw new TokenError("TOKEN_SEALED", "it is sealed: nobody can narrow it");
  }
  return parsed;
}

/** Returns a narrower token. Throws TokenError. */
export function attenuateToken(text: string, caveats: TokenCaveats): string {
  const { token } = open(text);
  const block = toBinary(TokenBlockSchema, create(TokenBlockSchema, { caveats: caveatsOf(caveats) }));
  const seed = crypto.randomBytes(32);
  const signed = create(SignedBlockSchema, { block, nextKey: publicOf(seed) });
  token.blocks.push(signed);
  const bytes = signedBytes(token.keyId, token.blocks, token.blocks.length - 1);
  signed.signature = crypto.sign(null, bytes, privateKey(token.proof));
  token.proof = seed;
  const longer = encode(toBinary(TokenSchema, token));
  read(longer);
  return longer;
}

/** Returns the token in a form that nobody can narrow. Throws TokenError. */
export function sealToken(text: string): string {
  const { token } = open(text);
  const last = token.blocks[token.blocks.length - 1] as SignedBlock;
  token.proof = crypto.sign(null, Buffer.concat([SEAL, last.signature]), privateKey(token.proof));
  return encode(toBinary(TokenSchema, token));
}

/** Returns what a token says, without checking its signatures. Throws TokenError. */
export function inspectToken(text: string): TokenInfo {
  const { token, blocks } = read(text);
  const first = blocks[0] as TokenBlock;
  return {
    tenant: first.tenant,
    scopes: [...first.scopes],
    keyId: Buffer.from(token.keyId).toString("hex"),
    sealed: token.proof.length === 64,
    blockIds: token.blocks.map((b) => hash(b.signature, 16).toString("hex")),
    blocks: blocks.map((b) => b.caveats.map((c) => c.caveat)),
  };
}

/**
 * Checks all signatures with the public key of the broker that made the token, as `stockade token keys` shows it. Time
 * and other caveats are not checked. Throws TokenError.
 */
export function verifyToken(text: string, key: Uint8Array): TokenInfo {
  const { token } = read(text);
  const wrong = new TokenError("TOKEN_SIGNATURE", "a signature is wrong, or another broker has made it");
  if (!hash(key, 8).equals(token.keyId)) {
    throw wrong;
  }
  let signer: Uint8Array = key;
  token.blocks.forEach((block, index) => {
    if (!check(signer, signedBytes(token.keyId, token.blocks, index), block.signature)) {
      throw wrong;
    }
    signer = block.nextKey;
  });
  const last = token.blocks[token.blocks.length - 1] as SignedBlock;
  const proven =
    token.proof.length === 64
      ? check(signer, Buffer.concat([SEAL, last.signature]), token.proof)
      : crypto.timingSafeEqual(publicOf(token.proof), signer);
  if (!proven) {
    throw wrong;
  }
  return inspectToken(text);
}
