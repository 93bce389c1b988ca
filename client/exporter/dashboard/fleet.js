// SPDX-License-Identifier: Apache-2.0
// The broker as a whole: is there room, how long do requests wait, what goes wrong, what was lost.
import { spark } from "./chart.js";
import { h, replace, setText } from "./dom.js";
import * as format from "./format.js";
import { quantile, rate, store, value } from "./store.js";

// The words of the broker, such as NOT_EXECUTED.
const word = (text) => text.toLowerCase().replaceAll("_", " ");
const perSecond = (v) => (v === null ? "–" : `${format.number(v)}/s`);

// Counters that stay 0 while nothing is lost: [metric, what it says].
const LOSSES = [
  ["stockade_kernel_lost_events_total", "Events lost in the kernel"],
  ["stockade_events_missed_total", "Events that slow readers missed"],
  ["stockade_log_lost_lines_total", "Lines of the log"],
  ["stockade_sandboxes_lost_total", "Sandboxes whose guest failed"],
  ["stockade_sandboxes_unremoved_total", "Sandboxes that could not be removed"],
  ["stockade_pool_queue_full_total", "Requests refused: the queue was full"],
  ["stockade_pool_failures_total", "Requests for a sandbox given up"],
  ["stockade_job_oom_kills_total", "Processes killed: out of memory"],
];

const TIMES = [
  ["stockade_pool_wait_seconds", "Wait for a sandbox"],
  ["stockade_sandbox_birth_duration_seconds", "Set-up of a sandbox"],
  ["stockade_job_duration_seconds", "Duration of a job"],
  ["stockade_rpc_call_duration_seconds", "Duration of a call"],
];

function card(title) {
  const figure = h("p", { class: "figure" }, "–"), note = h("p", { class: "note" });
  const curve = spark([], { width: 240, height: 36, label: title });
  return { title, figure, note, curve, element: h("section", { class: "card", "aria-label": title }, h("h3", {}, title), figure, note, curve) };
}

// The values of the last minute of a rate, or of a gauge.
function series(name, isRate) {
  const points = store.history.map((s) => ({ time: s.time, v: value(s.metrics, name) ?? 0 }));
  return isRate ? points.slice(1).map((p, i) => Math.max(0, (p.v - points[i].v) / ((p.time - points[i].time) / 1000))) : points.map((p) => p.v);
}

export function fleet() {
  const cards = {
    sandboxes: card("Sandboxes"), jobs: card("Running jobs"), queue: card("Queue"), ended: card("Jobs that end"),
    denials: card("Denials"), calls: card("Calls"), relay: card("Through the relay"), findings: card("Findings"),
  };
  const times = h("tbody"), losses = h("tbody"), pools = h("tbody"), outcomes = h("tbody");
  const error = h("p", { class: "error", role: "status", hidden: true });
  const element = h("div", {}, h("h2", {}, "Fleet"), error,
    h("div", { class: "cards" }, Object.values(cards).map((c) => c.element)),
    h("div", { class: "tables" },
      table("Times, of the last minute", ["", "p50", "p99"], times), table("Outcomes of jobs", ["Outcome", "Total", "Rate"], outcomes),
      table("Pools of ready sandboxes", ["Template", "Ready", "Running jobs"], pools), table("Losses", ["", "Total", "Rate"], losses)));

  const set = (c, text, note, name, isRate) => {
    setText(c.figure, text);
    setText(c.note, note);
    spark(series(name, isRate), { width: 240, height: 36, n: 30, least: 1, label: `${c.title}: ${text}` }, c.curve);
  };

  function update() {
    const m = store.metrics;
    error.hidden = !store.metricsError;
    setText(error, store.metricsError ? `No metrics: ${store.metricsError}` : "");
    if (m.size === 0) return;
    const of = (name, labels) => value(m, name, labels) ?? 0;
    const states = m.get("stockade_sandboxes")?.samples ?? [];
    const byState = new Map();
    for (const s of states) byState.set(s.labels.state, (byState.get(s.labels.state) ?? 0) + s.value);
    set(cards.sandboxes, format.number(of("stockade_sandboxes")), [...byState].filter(([, n]) => n > 0).map(([s, n]) => `${n} ${word(s)}`).join(", "), "stockade_sandboxes");
    set(cards.jobs, format.number(of("stockade_jobs")), `CPU ${format.number(rate("stockade_job_cpu_seconds_total") ?? 0)} s/s of those that ended`, "stockade_jobs");
    set(cards.queue, format.number(of("stockade_pool_queue_length")), `oldest waits ${format.seconds(of("stockade_pool_oldest_wait_seconds"))}`, "stockade_pool_queue_length");
    set(cards.ended, perSecond(rate("stockade_jobs_ended_total")), `${format.number(of("stockade_jobs_ended_total"))} in all`, "stockade_jobs_ended_total", true);
    set(cards.denials, perSecond(rate("stockade_denials_total")), `${format.number(of("stockade_denials_total"))} in all`, "stockade_denials_total", true);
    set(cards.calls, perSecond(rate("stockade_rpc_calls_total")), `${format.number(of("stockade_rpc_connections"))} connections`, "stockade_rpc_calls_total", true);
    set(cards.relay, `${format.bytes(rate("stockade_relay_bytes_total") ?? 0)}/s`, `${format.bytes(of("stockade_relay_bytes_total"))} in all`, "stockade_relay_bytes_total", true);
    set(cards.findings, perSecond(rate("stockade_findings_total")), `${format.number(of("stockade_findings_total"))} in all`, "stockade_findings_total", true);
    rows(times, TIMES.map(([name, label]) => [label, format.seconds(quantile(name, 0.5)), format.seconds(quantile(name, 0.99))]));
    const outcome = new Set((m.get("stockade_jobs_ended_total")?.samples ?? []).map((s) => s.labels.outcome));
    rows(outcomes, [...outcome].map((o) => [word(o), format.number(of("stockade_jobs_ended_total", { outcome: o })), perSecond(rate("stockade_jobs_ended_total", { outcome: o }))]));
    rows(pools, (m.get("stockade_pool_ready")?.samples ?? []).map((s) => [s.labels.template, format.number(s.value), format.number(of("stockade_jobs", { template: s.labels.template }))]));
    rows(losses, LOSSES.map(([name, label]) => [label, format.number(of(name)), perSecond(rate(name)), of(name) > 0 ? "bad" : ""]));
  }
  return { element, update };
}

export function table(caption, heads, body) {
  return h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads.map((t) => h("th", { scope: "col" }, t)))), body);
}

// Rows of texts or elements; a fourth entry of a row may be its class. What did not change is left as it is.
export function rows(body, all, columns = 3) {
  const text = JSON.stringify(all, (k, v) => (v instanceof Node ? v.textContent : v));
  if (body.dataset.text === text) return;
  body.dataset.text = text;
  replace(body, all.map((r) => h("tr", { class: r[columns] || undefined }, r.slice(0, columns).map((c, i) => (i === 0 ? h("th", { scope: "row" }, c) : h("td", {}, c))))));
}
