// SPDX-License-Identifier: Apache-2.0
// API keys and tokens that the broker makes. See proto/stockade/v1/access_service.proto.
import { inspect } from "node:util";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Client } from "./client.js";
import { KeyForm as FormNumber, KeyService, TokenService } from "./gen/stockade/v1/access_service_pb.js";
import type { ApiKey } from "./gen/stockade/v1/access_service_pb.js";
import { controlOf, chosenClient, OPTIONS } from "./jobs.js";
import type { CallControl } from "./jobs.js";
import { caveatsOf, inspectToken } from "./tokens.js";
import type { TokenCaveats } from "./tokens.js";
import { badArgument, knownOptions, lifetimeMs, listOf } from "./units.js";
import type { Duration } from "./units.js";

/** How a key looks: "stk_" or "e2b_", and 40 hex digits. */
export type KeyForm = "stk" | "e2b";

const FORMS: ReadonlyMap<KeyForm, FormNumber> = new Map([
  ["stk", FormNumber.STK],
  ["e2b", FormNumber.E2B],
]);

/** An API key, without its secret. */
export interface KeyInfo {
  /** Names the key; not secret. */
  id: string;
  /** Whose objects it may see and make. */
  tenant: string;
  /** What it is for. */
  label: string;
  /** The rights that it has, such as "sandbox.read". */
  scopes: string[];
  /** How the key begins, to recognize it: "stk_1a2b". */
  hint: string;
  /** When it was made. */
  created: Date;
  /** The tenant that made it. */
  maker: string;
  /** It is refused from then on; null: it does not expire. */
  expires: Date | null;
  /** When it was revoked; null: it was not. */
  revoked: Date | null;
}

/** An API key that was made just now. */
export interface NewKey {
  /** The key itself: keep it, it cannot be shown again. `console.log` of the object leaves it out. */
  readonly secret: string;
  /** What `ApiKeys.list` shows of it. */
  info: KeyInfo;
}

/** A token that was made just now. */
export interface NewToken {
  /** The token itself. `console.log` of the object leaves it out. */
  readonly token: string;
  /** Names its block: `Tokens.revoke` takes it. */
  blockId: string;
  /** Whose objects it may see and make. */
  tenant: string;
  /** The rights that it has. */
  scopes: string[];
  /** When it expires; null: only the caveats say. */
  expires: Date | null;
}

/** A key of the broker that signs tokens, or did. */
export interface SigningKey {
  /** As in `TokenInfo.keyId`: 16 hex digits. */
  id: string;
  /** Its public half (Ed25519), for `verifyToken`: 32 bytes. */
  key: Uint8Array;
  /** When it was made. */
  created: Date;
  /** Its tokens are refused from then on; null: it signs. */
  expires: Date | null;
}

/** Options of `ApiKeys.create`. */
export interface KeyCreateOptions extends CallControl {
  /** What it is for, in a few words. */
  label?: string;
  /** Its rights. Default: those of the caller, without those of operators and those to make further credentials. */
  scopes?: readonly string[];
  /** Another tenant, which needs an operator. */
  tenant?: string;
  /** "e2b": for clients that check the form of E2B's keys. Default: "stk". */
  form?: KeyForm;
  /** It expires after this time, such as "30d". Default: never. */
  ttl?: Duration;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

/** Options of `Tokens.mint`. */
export interface MintOptions extends CallControl {
  /** Its rights. Default: those of the caller, without those of operators and those to make further credentials. */
  scopes?: readonly string[];
  /** Another tenant, which needs an operator. */
  tenant?: string;
  /** What must hold for each call. */
  caveats?: TokenCaveats;
  /** The client to use. Default: `defaultClient()`. */
  client?: Client;
}

/** Options of `Tokens.exchange`. */
export interface ExchangeOptions extends CallControl {
  /** Its rights. Default: all that the issuer's grant gives. */
  scopes?: readonly string[];
  /** The token expires after this time. Default: as late as the broker allows. */
  ttl?: Duration;
  /** What must hold for each call. */
  caveats?: TokenCaveats;
  /** The client to use; the JSON Web Token is sent in place of its own credential. Default: `defaultClient()`. */
  client?: Client;
}

const CAVEATS = {
  scopes: true,
  methods: true,
  sandboxes: true,
  templates: true,
  network: true,
  audience: true,
  tools: true,
  limits: true,
  uses: true,
  notBefore: true,
  expires: true,
} as const;

function dateOf(stamp: Timestamp | undefined): Date | null {
  return stamp === undefined ? null : new Date(Number(stamp.seconds) * 1000 + Math.floor(stamp.nanos / 1e6));
}

// Objects that are logged must not show what they hold.
function hidden<T extends object, K extends string>(
  object: T,
  name: K,
  value: string,
): T & Readonly<Record<K, string>> {
  Object.defineProperty(object, name, { value, enumerable: false });
  return object as T & Readonly<Record<K, string>>;
}

function keyInfo(message: ApiKey | undefined): KeyInfo {
  return {
    id: message?.id ?? "",
    tenant: message?.tenant ?? "",
    label: message?.label ?? "",
    scopes: [...(message?.scopes ?? [])],
    hint: message?.hint ?? "",
    created: dateOf(message?.createTime) ?? new Date(0),
    maker: message?.maker ?? "",
    expires: dateOf(message?.expireTime),
    revoked: dateOf(message?.revokeTime),
  };
}

function caveatList(caveats: TokenCaveats | undefined) {
  return caveatsOf(knownOptions(caveats ?? {}, CAVEATS, "caveats"));
}

/**
 * API keys: texts that clients send as their credential. Its functions reject with a StockadeError.
 *
 * @example
 * const { secret, info } = await ApiKeys.create({ label: "ci", scopes: ["process.run"], ttl: "30d" });
 * const client = new Client({ token: secret });
 * await ApiKeys.revoke(info.id);
 */
export const ApiKeys = {
  /**
   * Makes a key. Its `secret` is shown this once. Rejects with PermissionDeniedError (a right that the caller does not
   * have) and ResourceExhaustedError (too many keys).
   */
  async create(options: KeyCreateOptions = {}): Promise<NewKey> {
    const own = { label: true, scopes: true, tenant: true, form: true, ttl: true, client: true } as const;
    knownOptions(options, { ...OPTIONS.control, ...own });
    const form = FORMS.get(options.form ?? "stk");
    if (form === undefined) {
      throw badArgument("form", `must be one of ${[...FORMS.keys()].join(", ")}`);
    }
    const request = {
      label: options.label ?? "",
      scopes: [...listOf(options.scopes, "scopes")],
      tenant: options.tenant ?? "",
      form,
      ttlMs: lifetimeMs(options.ttl),
    };
    const client = chosenClient(options.client);
    const made = await client.unary(KeyService.method.create, request, controlOf(options));
    return hidden({ info: keyInfo(made.key) }, "secret", made.secret);
  },

  /**
   * Keys, oldest first, expired and revoked ones included; with `tenant` those of another one, or of all ("*"), which
   * needs an operator. Rejects with a StockadeError.
   */
  async *list(
    options: { tenant?: string; client?: Client } & CallControl = {},
  ): AsyncGenerator<KeyInfo, void, undefined> {
    knownOptions(options, { ...OPTIONS.control, tenant: true, client: true });
    const client = chosenClient(options.client);
    let pageToken = "";
    do {
      const request = { pageSize: 1000, pageToken, tenant: options.tenant ?? "" };
      const page = await client.unary(KeyService.method.list, request, controlOf(options));
      yield* page.keys.map(keyInfo);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  },

  /** Revokes a key for ever, by `KeyInfo.id`. Rejects with NotFoundError. */
  async revoke(id: string, options: { client?: Client } & CallControl = {}): Promise<void> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    await client.unary(KeyService.method.revoke, { id }, controlOf(options));
  },
} as const;

/**
 * Capability tokens that the broker makes; `attenuateToken` narrows them offline. Its functions reject with a
 * StockadeError.
 *
 * @example
 * const { token } = await Tokens.mint({ scopes: ["process.run"], caveats: { tools: [{ program: "git" }] } });
 * const client = new Client({ token: (await Tokens.exchange(jwt)).token });
 */
export const Tokens = {
  /**
   * Makes a token with one block. Rejects with PermissionDeniedError: the caller does not have the right, or has a
   * token itself.
   */
  async mint(options: MintOptions = {}): Promise<NewToken> {
    const own = { scopes: true, tenant: true, caveats: true, client: true } as const;
    knownOptions(options, { ...OPTIONS.control, ...own });
    const request = {
      tenant: options.tenant ?? "",
      scopes: [...listOf(options.scopes, "scopes")],
      caveats: caveatList(options.caveats),
    };
    const client = chosenClient(options.client);
    const { token, blockId } = await client.unary(TokenService.method.mint, request, controlOf(options));
    const { tenant, scopes } = inspectToken(token);
    return hidden({ blockId, tenant, scopes, expires: options.caveats?.expires ?? null }, "token", token);
  },

  /**
   * Exchanges a JSON Web Token of an issuer that the broker knows for a token. Rejects with UnauthenticatedError
   * (`reason` says why) and PermissionDeniedError (a right that is not granted).
   */
  async exchange(jwt: string, options: ExchangeOptions = {}): Promise<NewToken> {
    knownOptions(options, { ...OPTIONS.control, scopes: true, ttl: true, caveats: true, client: true });
    if (typeof jwt !== "string" || !/^[\x21-\x7e]+$/.test(jwt)) {
      throw badArgument("jwt", `${typeof jwt === "string" ? "text" : inspect(jwt)} that is no JSON Web Token`);
    }
    const request = {
      scopes: [...listOf(options.scopes, "scopes")],
      ttlMs: lifetimeMs(options.ttl),
      caveats: caveatList(options.caveats),
    };
    const client = chosenClient(options.client);
    const control = { ...controlOf(options), metadata: { authorization: `Bearer ${jwt}` } };
    const made = await client.unary(TokenService.method.exchange, request, control);
    const { blockId, tenant, scopes } = made;
    return hidden({ blockId, tenant, scopes: [...scopes], expires: dateOf(made.expireTime) }, "token", made.token);
  },

  /**
   * Revokes a block for ever, and with it every token that has it: `NewToken.blockId`, or one of `TokenInfo.blockIds`.
   * Rejects with InvalidArgumentError.
   */
  async revoke(blockId: string, options: { client?: Client } & CallControl = {}): Promise<void> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    await client.unary(TokenService.method.revoke, { blockId }, controlOf(options));
  },

  /**
   * The public keys of the broker, the one that signs last, with which anyone can verify a token offline; and its name
   * in caveats of an audience. Rejects with a StockadeError.
   */
  async signingKeys(
    options: { client?: Client } & CallControl = {},
  ): Promise<{ keys: SigningKey[]; audience: string }> {
    knownOptions(options, { ...OPTIONS.control, client: true });
    const client = chosenClient(options.client);
    const { keys, audience } = await client.unary(TokenService.method.listSigningKeys, {}, controlOf(options));
    const known = keys.map(({ id, key, createTime, expireTime }) => ({
      id: Buffer.from(id).toString("hex"),
      key,
      created: dateOf(createTime) ?? new Date(0),
      expires: dateOf(expireTime),
    }));
    return { keys: known, audience };
  },

  /**
   * Signs with a new key from now on, which needs an operator. Tokens of the key before stay valid for `overlap`;
   * default: not at all. Rejects with ResourceExhaustedError: 16 keys are still valid.
   */
  async rotate(options: { overlap?: Duration; client?: Client } & CallControl = {}): Promise<void> {
    knownOptions(options, { ...OPTIONS.control, overlap: true, client: true });
    const client = chosenClient(options.client);
    const request = { overlapMs: lifetimeMs(options.overlap, "overlap") };
    await client.unary(TokenService.method.rotateSigningKey, request, controlOf(options));
  },
} as const;
