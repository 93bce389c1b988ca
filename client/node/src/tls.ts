// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 on the way to a broker: addresses of the form "tls+tcp://host:port".
import { createHash, timingSafeEqual, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect, isIP } from "node:net";
import { connect as connectTls } from "node:tls";
import type { ConnectionOptions, TLSSocket } from "node:tls";
import { Code, InvalidArgumentError, UnauthenticatedError } from "./errors.js";

/**
 * How the broker of a "tls+tcp" address proves who it is, and how this program does. Files are PEM. What is not given
 * comes from STOCKADE_CA_FILE, STOCKADE_PIN, STOCKADE_SERVER_NAME, STOCKADE_CERTIFICATE_FILE and STOCKADE_KEY_FILE.
 */
export interface TlsOptions {
  /** Who signs the broker's certificate. Default: whom Node.js trusts. */
  caFile?: string;
  /**
   * "sha256//" and the base64 of the SHA-256 of the public key of the broker's certificate, as for curl's
   * --pinnedpubkey. Without a caFile nothing else is checked.
   */
  pin?: string;
  /** The name in that certificate. Default: the address's host. */
  serverName?: string;
  /** This program's own certificate, with keyFile. */
  certificateFile?: string;
  /** The key of certificateFile. */
  keyFile?: string;
}

const PIN = "sha256//";

function badTls(why: string): InvalidArgumentError {
  return new InvalidArgumentError(Code.INVALID_ARGUMENT, `tls: ${why}`, { reason: "TLS", info: { subject: "tls" } });
}

function fileOf(path: string | undefined): Buffer | undefined {
  if (path === undefined) {
    return undefined;
  }
  try {
    return readFileSync(path);
  } catch (e) {
    throw badTls(`${path}: ${(e as Error).message}`);
  }
}

/** What a TLS connection proves, and asks for. */
export class Proof {
  readonly #connection: ConnectionOptions;
  readonly #digest: Buffer | undefined;

  constructor(given: TlsOptions, host: string) {
    const pin = given.pin ?? process.env["STOCKADE_PIN"];
    const ca = fileOf(given.caFile ?? process.env["STOCKADE_CA_FILE"]);
    const cert = fileOf(given.certificateFile ?? process.env["STOCKADE_CERTIFICATE_FILE"]);
    const key = fileOf(given.keyFile ?? process.env["STOCKADE_KEY_FILE"]);
    const name = given.serverName ?? process.env["STOCKADE_SERVER_NAME"] ?? host;
    if ((cert === undefined) !== (key === undefined)) {
      throw badTls("certificateFile and keyFile are given together");
    }
    if (pin !== undefined) {
      this.#digest = Buffer.from(pin.slice(PIN.length), "base64");
      if (!pin.startsWith(PIN) || this.#digest.length !== 32) {
        throw badTls("a pin is sha256// and 44 characters of base64");
      }
    }
    this.#connection = {
      minVersion: "TLSv1.3",
      rejectUnauthorized: pin === undefined || ca !== undefined,
      ...(isIP(name) === 0 ? { servername: name } : { host: name }),
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    };
  }

  /** Begins TLS to a host. */
  connect(host: string, port: number): TLSSocket {
    return connectTls({ ...this.#connection, socket: connect({ host, port }) });
  }

  /** Throws UnauthenticatedError if the broker has another key than the pin. */
  check(socket: TLSSocket): void {
    if (this.#digest === undefined) {
      return;
    }
    const { publicKey } = new X509Certificate(socket.getPeerCertificate().raw);
    const key = createHash("sha256").update(publicKey.export({ type: "spki", format: "der" })).digest();
    if (!timingSafeEqual(key, this.#digest)) {
      throw unknownBroker(new Error("it has another key than the pin"));
    }
  }
}

/** The error for a broker that is not the one that was meant. */
export function unknownBroker(cause: Error): UnauthenticatedError {
  return new UnauthenticatedError(Code.UNAUTHENTICATED, `the broker's certificate is refused: ${cause.message}`, {
    reason: "TLS_BROKER_UNKNOWN",
    info: { subject: "address", hint: "give the CA file of the broker (caFile, STOCKADE_CA_FILE)" },
  });
}

/** Whether the error is of the handshake, and not of the connection below it. */
export function isOfTls(e: NodeJS.ErrnoException): boolean {
  return /^(?:ERR_TLS|ERR_SSL|CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_)/.test(e.code ?? "");
}
