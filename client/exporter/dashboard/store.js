// SPDX-License-Identifier: Apache-2.0
// What the page knows, and how it stays up to date: a stream of events as they happen, and metrics and resource use every two seconds.
// Everything has a bound.
import { Failure, about, call, credential, follow } from "./api.js";

const POLL_MS = 2000;
const SHARE = 5; // it waits so many times as long as the last poll took
const PAGE = 25; // sandboxes of one request: the broker reads their cgroups while it answers
const HANDLED_MS = 10000;
const KEEP = { denials: 5000, findings: 5000, points: 60, jobs: 200 };

// Events that concern the fleet. None of them makes the broker watch system calls.
const KINDS = ["sandbox_created", "sandbox_deleted", "sandbox_paused", "sandbox_resumed", "sandbox_asleep", "sandbox_awake", "job_started", "job_ended",
  "limit_hit", "out_of_memory", "denied", "finding"];

export const store = {
  open: false, version: "", tenant: "*",
  connection: { state: "connecting", text: "", since: Date.now() },
  metrics: new Map(), metricsError: "", metricsRefused: false, history: [],
  sandboxes: new Map(), usageError: "", usageTime: 0,
  denials: [], findings: [], missed: 0, eventsError: "",
  approvals: new Map(), approvalsError: "",
  acknowledged: new Map(), silences: [], handledError: "",
};

// ---- Views that listen

const listeners = new Set();
let due = false;

export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function changed() {
  if (due) return;
  due = true;
  const run = () => {
    due = false;
    for (const listener of listeners) listener();
  };
  // Frames stop in a page that is not seen.
  if (document.hidden) setTimeout(run, 100);
  else requestAnimationFrame(run);
}

export function connection(state, text = "") {
  if (store.connection.state !== state) store.connection.since = Date.now();
  store.connection.state = state;
  store.connection.text = text;
  changed();
}

// ---- Events

function push(list, item, most) {
  list.push(item);
  if (list.length > most + most / 10) list.splice(0, list.length - most);
}

export function sandboxOf(id) {
  let s = store.sandboxes.get(id);
  if (!s) {
    s = { id, name: "", tenant: "", template: "", state: "running", created: 0, jobs: 0, cpu: [], memory: [], usage: null, denial: null, seen: 0 };
    store.sandboxes.set(id, s);
  }
  return s;
}

const STATES = { sandbox_paused: "paused", sandbox_resumed: "running", sandbox_asleep: "asleep", sandbox_awake: "running", sandbox_created: "running" };

// Jobs of Run have a sandbox of their own, which has no event of its own: it is there while its job is.
function takeEvent(e) {
  const time = Date.parse(e.time);
  if (e.kind === "sandbox_deleted") {
    store.sandboxes.delete(e.sandbox_id);
  } else if (e.sandbox_id && !(e.kind === "job_ended" && !store.sandboxes.has(e.sandbox_id))) {
    const s = sandboxOf(e.sandbox_id);
    s.tenant = e.tenant;
    s.template = e.template;
    s.name ||= e.sandbox_name;
    s.seen = Date.now();
    if (e.kind === "sandbox_created") s.created = time;
    if (e.kind in STATES) s.state = STATES[e.kind];
    if (e.kind === "job_started") {
      s.jobs++;
      s.created ||= time;
    }
    if (e.kind === "job_ended") s.jobs = Math.max(0, s.jobs - 1);
    if (e.kind === "denied") s.denial = e.denial;
  }
  if (e.kind === "denied") push(store.denials, e, KEEP.denials);
  if (e.kind === "finding") push(store.findings, e, KEEP.findings);
}

let position = { sequence: 0, instance: "" };

function takeEvents(message) {
  if (message.gap) store.missed += message.gap.count;
  if (message.instance && message.instance !== position.instance) position = { sequence: 0, instance: message.instance };
  for (const e of message.events) {
    takeEvent(e);
    position.sequence = Math.max(position.sequence, e.sequence);
  }
}

function takeApproval(message) {
  const a = message.approval;
  if (!a) return;
  store.approvals.set(a.id, a);
  for (const [id, old] of store.approvals) {
    if (store.approvals.size <= 2000) break;
    if (old.state !== "pending") store.approvals.delete(id);
  }
}

// ---- Metrics

function flatten(metrics) {
  const all = new Map();
  for (const m of metrics)
    all.set(m.name, { bounds: m.bounds, samples: m.samples.map((s) => ({ ...s, labels: Object.fromEntries(m.labels.map((name, i) => [name, s.labels[i]])) })) });
  return all;
}

export function value(metrics, name, labels = {}) {
  const m = metrics.get(name);
  if (!m) return null;
  return m.samples.filter((s) => Object.entries(labels).every(([k, v]) => s.labels[k] === v)).reduce((sum, s) => sum + s.value, 0);
}

// The increase per second since the oldest snapshot of the last minute; null: unknown, or the broker was started again.
export function rate(name, labels) {
  const old = store.history[0], now = store.history.at(-1);
  if (!old || old === now) return null;
  const a = value(old.metrics, name, labels), b = value(now.metrics, name, labels);
  return a === null || b === null || b < a ? null : (b - a) / ((now.time - old.time) / 1000);
}

function buckets(metrics, name) {
  const m = metrics.get(name);
  if (!m) return null;
  const sum = new Array(m.bounds.length + 1).fill(0);
  for (const s of m.samples) s.buckets.forEach((n, i) => { sum[i] += n; });
  return sum;
}

// A quantile of the last minute, or if nothing was observed, since the broker's start; by linear interpolation in its bucket.
export function quantile(name, q) {
  const now = store.history.at(-1), old = store.history[0];
  if (!now) return null;
  const all = buckets(now.metrics, name), before = old && buckets(old.metrics, name);
  if (!all) return null;
  let counts = before ? all.map((n, i) => n - (before[i] ?? 0)) : all;
  if (counts.some((n) => n < 0) || counts.every((n) => n === 0)) counts = all;
  const total = counts.reduce((a, b) => a + b, 0);
  const bounds = now.metrics.get(name).bounds;
  if (total === 0) return null;
  let left = q * total;
  for (let i = 0; i < counts.length; i++) {
    if (left <= counts[i] && counts[i] > 0) {
      const low = i === 0 ? 0 : bounds[i - 1];
      return i < bounds.length ? low + ((bounds[i] - low) * left) / counts[i] : low;
    }
    left -= counts[i];
  }
  return bounds.at(-1);
}

async function pollMetrics() {
  try {
    store.metrics = flatten((await call("MetricsService/Get")).metrics);
    const started = value(store.metrics, "stockade_start_time_seconds");
    if (store.history.length > 0 && value(store.history[0].metrics, "stockade_start_time_seconds") !== started) store.history = [];
    store.history.push({ time: Date.now(), metrics: store.metrics });
    while (store.history.length > (KEEP.points * 1000) / POLL_MS) store.history.shift();
    store.metricsError = "";
  } catch (e) {
    store.metricsError = e instanceof Failure ? e.message : String(e);
    store.metricsRefused = e.code === "PERMISSION_DENIED"; // until there is another credential
    if (e.code === "UNAVAILABLE") throw e;
  }
}

// ---- Resource use

function takeUsage(u, time) {
  const s = sandboxOf(u.sandbox_id);
  const old = s.usage;
  Object.assign(s, { name: u.name, tenant: u.tenant, template: u.template, jobs: u.jobs, seen: time });
  if (u.create_time) s.created = Date.parse(u.create_time);
  if (u.paused) s.state = "paused";
  else if (s.state === "paused") s.state = "running";
  const passed = old ? Date.parse(u.time) - Date.parse(old.time) : 0;
  if (passed > 0) push(s.cpu, Math.max(0, (u.cpu_ns - old.cpu_ns) / (passed * 1e6)), KEEP.points);
  push(s.memory, u.memory_bytes, KEEP.points);
  s.usage = u;
}

async function pollUsage() {
  const began = Date.now();
  try {
    let token = "";
    do {
      const page = await call("TelemetryService/ListUsage", { tenant: store.tenant, page_size: PAGE, page_token: token });
      for (const u of page.usage) takeUsage(u, began);
      token = page.next_page_token;
    } while (token);
    // What neither this list, nor the one before, nor an event since knows has gone.
    for (const [id, s] of store.sandboxes)
      if (s.seen < store.usageTime && s.state !== "asleep") store.sandboxes.delete(id);
    store.usageError = "";
    store.usageTime = began;
  } catch (e) {
    if (e.code === "PERMISSION_DENIED" && store.tenant === "*") {
      store.tenant = "";
      restart();
    } else {
      store.usageError = e instanceof Failure ? e.message : String(e);
    }
  }
}

// ---- What people have handled

async function allPages(method, field, take) {
  let token = "";
  do {
    const page = await call(method, { tenant: store.tenant, page_size: 500, page_token: token });
    page[field].forEach(take);
    token = page.next_page_token;
  } while (token);
}

// Acknowledged findings, by run and number, and the silences in force. An operator's page shows what operators did: a tenant must not
// be able to hide a finding from them.
export async function pollHandled() {
  const acknowledged = new Map(), silences = [], host = store.tenant === "*";
  try {
    await allPages("AnomalyService/ListAcknowledged", "findings", (f) => {
      for (const a of f.acknowledgements) if (a.by_host || !host) acknowledged.set(`${f.instance}-${f.sequence}`, a);
    });
    await allPages("AnomalyService/ListSilences", "silences", (s) => silences.push(s));
    Object.assign(store, { acknowledged, silences, handledError: "" });
  } catch (e) {
    store.handledError = e instanceof Failure ? e.message : String(e);
  }
  handledTime = Date.now();
  changed();
}

let handledTime = 0;

// ---- The loops

let stop = new AbortController();

function streams() {
  const events = { tenant: store.tenant, kinds: KINDS, from_sequence: position.sequence + 1 };
  if (position.sequence > 0) events.instance = position.instance;
  const all = { events: { method: "TelemetryService/Subscribe", request: events } };
  if (credential.get()) all.approvals = { method: "ApprovalService/Watch", request: store.tenant === "*" ? { tenant: "*" } : {} };
  return all;
}

function ended(end, again) {
  if (end.name === "approvals") {
    store.approvalsError = end.text;
    if (end.code === "UNAVAILABLE") again.abort();
    return;
  }
  if (end.code === "PERMISSION_DENIED" && store.tenant === "*") {
    store.tenant = "";
    again.abort();
  } else if (end.code === "OUT_OF_RANGE") {
    position = { sequence: 0, instance: "" };
    again.abort();
  } else {
    store.eventsError = end.text;
    connection(end.code === "UNAUTHENTICATED" ? "credential" : "lost", end.code === "UNAVAILABLE" ? "the broker does not answer" : end.text);
    again.abort();
  }
}

async function followEvents(signal) {
  for (let pause = 250; !signal.aborted; pause = Math.min(5000, pause * 2)) {
    const again = new AbortController();
    const both = AbortSignal.any([signal, again.signal]);
    const take = (name, message) => {
      if (name === "end") ended(message, again);
      else if (name === "cut") connection("lost", "this page was too slow");
      else if (name === "approvals") takeApproval(message);
      else {
        takeEvents(message);
        store.eventsError = "";
        pause = 250;
        connection("live");
      }
      changed();
    };
    try {
      await follow(streams(), take, both);
    } catch (e) {
      connection(e.code === "UNAUTHENTICATED" ? "credential" : "lost", e.message);
      if (e.code === "UNAUTHENTICATED") return;
    }
    if (!signal.aborted) await new Promise((resolve) => { setTimeout(resolve, pause); });
  }
}

async function poll(signal) {
  while (!signal.aborted) {
    const began = Date.now();
    if (!document.hidden && store.connection.state !== "credential") {
      try {
        if (!store.metricsRefused) await pollMetrics();
        await pollUsage();
        if (Date.now() - handledTime > HANDLED_MS) await pollHandled();
      } catch (e) {
        if (store.connection.state === "live") connection("lost", e.message);
      }
      changed();
    }
    await new Promise((resolve) => { setTimeout(resolve, Math.max(POLL_MS - (Date.now() - began), SHARE * (Date.now() - began))); });
  }
}

// Begins again, as with another credential: what the one before could see is forgotten.
export function forget() {
  store.sandboxes.clear();
  store.approvals.clear();
  Object.assign(store, { tenant: "*", denials: [], findings: [], history: [], metrics: new Map(), approvalsError: "", missed: 0, metricsError: "", metricsRefused: false,
    acknowledged: new Map(), silences: [], handledError: "" });
  handledTime = 0;
  position = { sequence: 0, instance: "" };
  restart();
}

export function restart() {
  stop.abort();
  stop = new AbortController();
  connection("connecting");
  followEvents(stop.signal);
  poll(stop.signal);
}

export async function begin() {
  for (;;) {
    try {
      const a = await about();
      Object.assign(store, a);
      break;
    } catch {
      connection("lost", "the exporter does not answer");
      await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
  }
  if (!store.open && !credential.get()) connection("credential", "a credential is needed");
  else restart();
}
