// SPDX-License-Identifier: Apache-2.0
// How a sandbox reaches the network: from options to the protocol and back.
import { inspect } from "node:util";
import { create } from "@bufbuild/protobuf";
import {
  NetworkMode,
  NetworkPolicySchema,
  NetworkProtocol,
  NetworkRuleSchema,
  PortRangeSchema,
} from "./gen/stockade/v1/sandbox_service_pb.js";
import type {
  NetworkPolicy as PolicyMessage,
  NetworkRule as RuleMessage,
  PortRange as PortRangeMessage,
} from "./gen/stockade/v1/sandbox_service_pb.js";
import { badArgument, count, listOf, parseSize } from "./units.js";
import type { Size } from "./units.js";

/**
 * Network access of a sandbox: "off" (no sockets but unix ones, from its creation to its end), "none" (loopback only),
 * "allowlist" (only what rules allow) or "open" (all public addresses). The broker refuses the last two if it cannot
 * enforce them.
 */
export type Network = "off" | "none" | "allowlist" | "open";

/**
 * A network policy. A request may only narrow its template's policy; a field that is not set comes from it.
 *
 * A destination has the form "HOST[:PORT[-PORT]][/tcp|/udp]", where HOST is a name ("example.com"), all names below a
 * name ("*.example.com"), an address or a range ("192.0.2.0/24", "[2001:db8::/32]:443"). A range allows addresses of a
 * private or other special range only if it lies within that range: "0.0.0.0/0" allows all public addresses.
 */
export interface NetworkPolicy {
  /** Default: "allowlist" if `allow` is set, else the template's mode. */
  mode?: Network;
  /** Allowed destinations; with "open" additional ones in special ranges. */
  allow?: readonly string[];
  /** Ports of the sandbox that the caller may connect to: 8080 or "9000-9010". */
  inbound?: readonly (number | string)[];
  /** Maximum number of bytes sent during its lifetime, or text such as "1G". */
  egressBytes?: Size;
  /** Maximum number of bytes received during its lifetime. */
  ingressBytes?: Size;
  /** Maximum number of bytes sent per second. */
  egressRate?: Size;
  /** Maximum number of bytes received per second. */
  ingressRate?: Size;
  /** Maximum number of DNS queries per minute. Default: 600. */
  dnsQueries?: number;
}

const modes: Readonly<Record<Network, NetworkMode>> = {
  off: NetworkMode.OFF,
  none: NetworkMode.NONE,
  allowlist: NetworkMode.ALLOWLIST,
  open: NetworkMode.OPEN,
};

const protocols: Readonly<Record<string, NetworkProtocol>> = {
  tcp: NetworkProtocol.TCP,
  udp: NetworkProtocol.UDP,
};

export const PORT_MAX = 65535;

function modeOf(mode: Network | undefined): NetworkMode {
  if (mode === undefined) {
    return NetworkMode.UNSPECIFIED;
  }
  if (!Object.hasOwn(modes, mode)) {
    throw badArgument("network", `${JSON.stringify(mode)} is not one of ${Object.keys(modes).join(", ")}`);
  }
  return modes[mode];
}

function portsOf(text: string, name: string): PortRangeMessage {
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text);
  const first = Number(match?.[1] ?? 0);
  const last = Number(match?.[2] ?? first);
  if (first < 1 || last < first || last > PORT_MAX) {
    throw badArgument(name, `${JSON.stringify(text)} is not a port (1 to ${PORT_MAX}, or A-B)`);
  }
  return create(PortRangeSchema, { first, last });
}

// Host and ports of a destination; ports are undefined without a colon for them.
function splitHost(text: string): { host: string; ports: string | undefined } {
  const bracketed = /^\[([^\]]+)\](?::(.*))?$/.exec(text);
  if (bracketed !== null) {
    return { host: bracketed[1] ?? "", ports: bracketed[2] };
  }
  const colon = text.indexOf(":");
  if (text.startsWith("[")) {
    return { host: "", ports: undefined };
  }
  if (colon < 0 || colon !== text.lastIndexOf(":")) {
    return { host: text, ports: undefined };
  }
  return { host: text.slice(0, colon), ports: text.slice(colon + 1) };
}

function ruleOf(text: string): RuleMessage {
  if (typeof text !== "string") {
    throw badArgument("network.allow", `${inspect(text)} is not a destination, such as "example.com:443"`);
  }
  const protocol = /\/(tcp|udp)$/.exec(text)?.[1];
  const { host, ports } = splitHost(protocol === undefined ? text : text.slice(0, -protocol.length - 1));
  if (host === "") {
    throw badArgument("network.allow", `${JSON.stringify(text)} is not a destination, such as "example.com:443"`);
  }
  const address = host === "host" || host.includes(":") || /^[\d./]+$/.test(host);
  return create(NetworkRuleSchema, {
    cidr: address ? host : "",
    domain: address ? "" : host,
    ports: ports === undefined ? [] : [portsOf(ports, "network.allow")],
    protocol: protocols[protocol ?? ""] ?? NetworkProtocol.UNSPECIFIED,
  });
}

function bytes(value: Size | undefined, name: string): bigint {
  return value === undefined ? 0n : BigInt(parseSize(value, name));
}

const names: Readonly<Record<keyof NetworkPolicy, true>> = {
  mode: true,
  allow: true,
  inbound: true,
  egressBytes: true,
  ingressBytes: true,
  egressRate: true,
  ingressRate: true,
  dnsQueries: true,
};

// A name with a slip of the pen must not leave a policy wider than it reads.
function checkNames(network: NetworkPolicy): void {
  if (typeof network !== "object" || (network as unknown) === null || Array.isArray(network)) {
    throw badArgument("network", `${inspect(network)} is neither a mode nor a policy`);
  }
  for (const name of Object.keys(network)) {
    if (!Object.hasOwn(names, name)) {
      throw badArgument(`network.${name}`, `no such part of a policy; there are ${Object.keys(names).join(", ")}`);
    }
  }
}

/** The policy of a request, ready to be spread into it; nothing for undefined. */
export function networkOf(
  network: Network | NetworkPolicy | undefined,
): { network: PolicyMessage } | undefined {
  if (network === undefined) {
    return undefined;
  }
  if (typeof network === "string") {
    return { network: create(NetworkPolicySchema, { mode: modeOf(network) }) };
  }
  checkNames(network);
  const allow = listOf(network.allow, "network.allow");
  return {
    network: create(NetworkPolicySchema, {
      mode: modeOf(network.mode ?? (allow.length > 0 ? "allowlist" : undefined)),
      outbound: allow.map(ruleOf),
      inbound: listOf(network.inbound, "network.inbound").map((ports) => portsOf(String(ports), "network.inbound")),
      egressBytesMax: bytes(network.egressBytes, "network.egressBytes"),
      ingressBytesMax: bytes(network.ingressBytes, "network.ingressBytes"),
      egressRate: bytes(network.egressRate, "network.egressRate"),
      ingressRate: bytes(network.ingressRate, "network.ingressRate"),
      queriesPerMinute: network.dnsQueries === undefined ? 0 : count(network.dnsQueries, "network.dnsQueries"),
    }),
  };
}

/** May a caller connect to the port, by the policy's `inbound`? */
export function letsIn(policy: NetworkPolicy, port: number): boolean {
  const ranges = (policy.inbound ?? []).map((ports) => portsOf(String(ports), "network.inbound"));
  return ranges.some(({ first, last }) => first <= port && port <= last);
}

/** The mode of a policy by its name. */
export function networkMode(message: PolicyMessage | undefined): Network | "unknown" {
  const found = Object.entries(modes).find(([, n]) => n === message?.mode);
  return (found?.[0] as Network | undefined) ?? "unknown";
}

function showPorts(ports: PortRangeMessage): string {
  return ports.last === 0 || ports.last === ports.first ? String(ports.first) : `${ports.first}-${ports.last}`;
}

// One destination for each range of ports, since that is how one is written.
function showRule(rule: RuleMessage): string[] {
  const host = rule.domain === "" ? rule.cidr : rule.domain;
  const name = Object.entries(protocols).find(([, n]) => n === rule.protocol)?.[0];
  const protocol = name === undefined ? "" : `/${name}`;
  const every = rule.ports.length === 0 || rule.ports.some((p) => p.first === 1 && p.last === PORT_MAX);
  if (every) {
    return [host + protocol];
  }
  const shown = host.includes(":") ? `[${host}]` : host;
  return rule.ports.map((ports) => `${shown}:${showPorts(ports)}${protocol}`);
}

/** A policy as the broker reports it: all fields, sizes in bytes. */
export function networkPolicy(message: PolicyMessage | undefined): NetworkPolicy {
  const mode = networkMode(message);
  const policy: NetworkPolicy = {
    allow: (message?.outbound ?? []).flatMap(showRule),
    inbound: (message?.inbound ?? []).map(showPorts),
  };
  if (mode !== "unknown") {
    policy.mode = mode;
  }
  const limits = {
    egressBytes: message?.egressBytesMax,
    ingressBytes: message?.ingressBytesMax,
    egressRate: message?.egressRate,
    ingressRate: message?.ingressRate,
    dnsQueries: message?.queriesPerMinute,
  };
  for (const [name, value] of Object.entries(limits)) {
    if (value !== undefined && Number(value) !== 0) {
      policy[name as keyof typeof limits] = Number(value);
    }
  }
  return policy;
}
