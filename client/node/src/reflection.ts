// SPDX-License-Identifier: Apache-2.0
// Calls of any method of the broker, with the schema that it sends: for methods without a wrapper here.
import {
  createFileRegistry,
  fromBinary,
  fromJson,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import type {
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  FileRegistry,
  JsonValue,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "./call.js";
import type { Client } from "./client.js";
import { Code, ProtocolError, UnimplementedError } from "./errors.js";
import { ReflectionService } from "./gen/stockade/v1/system_service_pb.js";
import { checkWire } from "./scan.js";
import { badArgument } from "./units.js";

function isUnary(method: DescMethod): method is DescMethodUnary & DescMethod {
  return method.methodKind === "unary";
}

function isStream(method: DescMethod): method is DescMethodServerStreaming & DescMethod {
  return method.methodKind === "server_streaming";
}

/** One method that the broker offers. */
export interface MethodInfo {
  /** Such as "/stockade.v1.ProcessService/Run". */
  path: string;
  /** Full name of the request's message. */
  input: string;
  /** Full name of the response's message. */
  output: string;
  /** True if it returns a stream. */
  streaming: boolean;
}

/**
 * The broker's schema. Requests and responses are in protobuf's JSON form: names in lowerCamelCase, 64-bit numbers as
 * text, bytes in base64.
 *
 * @example
 * const schema = await Schema.of(client);
 * const info = await schema.call("/stockade.v1.SystemService/Info", {});
 */
export class Schema {
  readonly #client: Client;
  readonly #registry: FileRegistry;

  private constructor(client: Client, registry: FileRegistry) {
    this.#client = client;
    this.#registry = registry;
  }

  /** Requests the broker's schema. Rejects with ProtocolError if the response is not a schema. */
  static async of(client: Client, options: CallOptions = {}): Promise<Schema> {
    const answer = await client.unary(ReflectionService.method.getFileDescriptorSet, {}, options);
    return new Schema(client, Schema.#read(answer.fileDescriptorSet));
  }

  static #read(bytes: Uint8Array): FileRegistry {
    checkWire(FileDescriptorSetSchema, bytes);
    try {
      return createFileRegistry(fromBinary(FileDescriptorSetSchema, bytes));
    } catch (e) {
      throw new ProtocolError(`the broker's schema: ${e instanceof Error ? e.message : String(e)}`, { cause: e });
    }
  }

  /** Every method of every service, in the order of the schema. */
  methods(): MethodInfo[] {
    const out: MethodInfo[] = [];
    for (const type of this.#registry) {
      if (type.kind !== "service") {
        continue;
      }
      for (const method of type.methods) {
        out.push({
          path: `/${type.typeName}/${method.name}`,
          input: method.input.typeName,
          output: method.output.typeName,
          streaming: method.methodKind === "server_streaming",
        });
      }
    }
    return out;
  }

  /**
   * Calls a unary method. Rejects with UnimplementedError if the schema does not have the method, InvalidArgumentError
   * if the request does not fit its message, and like `Client.unary`.
   */
  async call(path: string, request: JsonValue = {}, options: CallOptions = {}): Promise<JsonValue> {
    const method = this.method(path);
    if (!isUnary(method)) {
      throw badArgument("path", `${path} answers with a stream: use Schema.stream`);
    }
    const answer = await this.#client.unary(method, this.#request(method, request), options);
    return toJson(method.output, answer, { registry: this.#registry });
  }

  /** Calls a method that returns a stream. Rejects like `call`. */
  async *stream(path: string, request: JsonValue = {}, options: CallOptions = {}): AsyncGenerator<JsonValue, void> {
    const method = this.method(path);
    if (!isStream(method)) {
      throw badArgument("path", `${path} answers with one message: use Schema.call`);
    }
    for await (const message of this.#client.stream(method, this.#request(method, request), options)) {
      yield toJson(method.output, message, { registry: this.#registry });
    }
  }

  /**
   * The descriptor of a method, for `Client.unary` and `Client.stream` with messages instead of JSON. Throws
   * UnimplementedError if the schema does not have the method.
   */
  method(path: string): DescMethod {
    const [, service, name] = /^\/?([^/]+)\/([^/]+)$/.exec(path) ?? [];
    const found: DescService | undefined = this.#registry.getService(service ?? "");
    const method = found?.methods.find((m) => m.name === name);
    if (method === undefined) {
      throw new UnimplementedError(Code.UNIMPLEMENTED, `${path}: the broker's schema has no such method`);
    }
    return method;
  }

  #request(method: DescMethod, json: JsonValue): ReturnType<typeof fromJson> {
    try {
      const message = fromJson(method.input, json, { registry: this.#registry });
      toBinary(method.input, message);
      return message;
    } catch (e) {
      throw badArgument(method.input.typeName, e instanceof Error ? e.message : String(e));
    }
  }
}
