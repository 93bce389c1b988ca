// SPDX-License-Identifier: Apache-2.0
// Suspicious behaviour: its score, its evidence, and what was done. Acknowledging and silencing concern this browser alone: the
// broker goes on to respond and to report.
import { h, replace, setText } from "./dom.js";
import * as format from "./format.js";
import { List } from "./list.js";
import { changed, store } from "./store.js";

const DONE = "stockade.acknowledged", SILENT = "stockade.silenced";
const SILENCE_MS = 3600e3;
const KEEP = 2000;

function load() {
  try {
    store.acknowledged = new Set(JSON.parse(localStorage.getItem(DONE) ?? "[]"));
    store.silenced = new Map(JSON.parse(localStorage.getItem(SILENT) ?? "[]"));
  } catch {
    store.acknowledged = new Set();
    store.silenced = new Map();
  }
}

function save() {
  localStorage.setItem(DONE, JSON.stringify([...store.acknowledged].slice(-KEEP)));
  localStorage.setItem(SILENT, JSON.stringify([...store.silenced].slice(-KEEP)));
  changed();
}
load();

const key = (e) => `${e.instance}-${e.sequence}`;
const about = (e) => `${e.finding.rule}@${e.template}`;
const isSilenced = (e) => (store.silenced.get(about(e)) ?? 0) > Date.now();

// Those that nobody has dealt with.
export function open() {
  return store.findings.filter((e) => !store.acknowledged.has(key(e)) && !isSilenced(e));
}

function fill(cells, e) {
  const f = e.finding, [severity, time, where, rule, score, response, text] = cells;
  setText(severity, f.severity);
  severity.dataset.severity = f.severity;
  setText(time, format.clock(e.time));
  setText(where, e.sandbox_name || format.shortId(e.sandbox_id));
  where.title = e.sandbox_id;
  setText(rule, f.rule);
  setText(score, f.threshold > 0 ? `${format.number(f.score)} / ${format.number(f.threshold)}` : "–");
  setText(response, f.response);
  setText(text, f.text);
  text.title = f.text;
}

function evidence(e, close) {
  const f = e.finding;
  const line = (name, text) => [h("dt", {}, name), h("dd", {}, text)];
  return h("section", { class: "card evidence", "aria-labelledby": "evidence-title" },
    h("h3", { id: "evidence-title" }, `${f.rule}, ${f.severity}`), h("p", {}, f.text),
    h("dl", {}, line("Time", format.clock(e.time)), line("Score", f.threshold > 0 ? `${format.number(f.score)}; a finding from ${format.number(f.threshold)} on` : "none"),
      line("Done", f.response === "log" ? "noted" : f.response), line("Process", f.comm ? `${f.comm} (pid ${f.pid})` : "–"),
      line("Job", f.process_id || "of the sandbox as a whole"), line("Owner", e.tenant), line("Template", e.template),
      line("Labels", Object.entries(e.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join(", ") || "–")),
    h("div", { class: "buttons" },
      h("a", { href: `#/sandbox/${e.sandbox_id}` }, "The sandbox"),
      h("button", { type: "button", onclick: () => { store.acknowledged.add(key(e)); save(); close(); } }, "Acknowledge"),
      h("button", { type: "button", onclick: () => { store.silenced.set(about(e), Date.now() + SILENCE_MS); save(); close(); } }, `Silence ${f.rule} of ${e.template} for an hour`),
      h("button", { type: "button", onclick: close }, "Close")),
    h("p", { class: "note" }, "In this browser. The broker still reports and responds: its configuration, under ‘anomalies’, changes that."));
}

export function findings() {
  const all = h("input", { type: "checkbox", id: "all", onchange: () => update() });
  const number = h("p", { role: "status", class: "note" });
  const detail = h("div");
  const close = () => {
    detail.replaceChildren();
    list.body.focus();
  };
  const list = new List({
    label: "Findings", key, fill, empty: "There is no open finding.",
    open: (e) => {
      replace(detail, evidence(e, close));
      detail.querySelector("button").focus();
    },
    columns: [{ title: "Severity" }, { title: "Time" }, { title: "Sandbox" }, { title: "Rule" }, { title: "Score", class: "right" }, { title: "Done" }, { title: "What" }],
  });
  const element = h("div", { class: "fill" }, h("div", { class: "bar" }, h("h2", {}, "Findings"), number,
    all, h("label", { for: "all" }, "Also acknowledged and silenced ones")), detail, list.element);
  function update() {
    const shown = (all.checked ? [...store.findings] : open()).reverse();
    setText(number, `${shown.length} of ${store.findings.length}`);
    list.set(shown);
  }
  return { element, update, close: () => list.close() };
}
