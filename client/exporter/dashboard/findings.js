// SPDX-License-Identifier: Apache-2.0
// Suspicious behaviour: its score, its evidence, and what was done. Acknowledgements and silences are kept by the broker.
import { call, credential } from "./api.js";
import { ask, h, replace, say, setText } from "./dom.js";
import * as format from "./format.js";
import { List } from "./list.js";
import { pollHandled, store } from "./store.js";

const HOURS = [["1", "1 hour"], ["8", "8 hours"], ["24", "1 day"], ["168", "7 days"]];

const key = (e) => `${e.instance}-${e.sequence}`;
const handledKey = (e) => `${e.finding.instance}-${e.finding.sequence}`;
const acknowledgement = (e) => store.acknowledged.get(handledKey(e));

// The silence in force that is about a finding, also one that was found before. For an operator only those that end the host's alert.
function silence(e) {
  const f = e.finding, host = store.tenant === "*";
  return store.silences.find((s) => s.rule === f.rule && Date.parse(s.expire_time) > Date.now() && (s.by_host || f.tenant_rule || !host) &&
    (s.tenant === "*" || s.tenant === e.tenant) && (!s.sandbox_id || s.sandbox_id === e.sandbox_id) &&
    (!s.template || s.template === e.template) && (!s.comm || s.comm === f.comm));
}

const isSilenced = (e) => e.finding.silenced || (store.tenant !== "*" && e.finding.silence_id !== "") || silence(e) !== undefined;

// Those that nobody has handled.
export function open() {
  return store.findings.filter((e) => !acknowledgement(e) && !isSilenced(e));
}

async function act(word, method, request, done) {
  try {
    await call(`AnomalyService/${method}`, request);
    await pollHandled();
    say(word);
    done();
  } catch (e) {
    say(`Not done: ${e.message}${e.hint ? ` (${e.hint})` : ""}`, true);
  }
}

async function acknowledge(e, done) {
  const given = await ask("Acknowledge this finding", [{ name: "reason", label: "Why; others see it", placeholder: "optional" }],
    { text: `${e.finding.rule}: ${e.finding.text}`, accept: "Acknowledge" });
  const request = { sequence: e.finding.sequence, instance: e.finding.instance, tenant: e.tenant };
  if (given) await act("The finding is acknowledged", "AcknowledgeFinding", { ...request, reason: given.reason }, done);
}

const withdraw = (e, done) => act("The acknowledgement is withdrawn", "AcknowledgeFinding",
  { sequence: e.finding.sequence, instance: e.finding.instance, tenant: e.tenant, withdraw: true }, done);

async function makeSilence(e, done) {
  const given = await ask("Silence a rule", [
    { name: "hours", label: "How long", options: HOURS },
    { name: "about", label: "About", options: [["template", `Template ${e.template}`], ["sandbox", `Sandbox ${e.sandbox_name || format.shortId(e.sandbox_id)}`], ["all", `All sandboxes of ${e.tenant}`]] },
    { name: "reason", label: "Why; others see it" },
  ], { text: `Findings of ${e.finding.rule} will raise no alert. They are still recorded, and responses follow.`, accept: "Silence" });
  if (!given) return;
  const about = given.about === "template" ? { template: e.template } : given.about === "sandbox" ? { sandbox_id: e.sandbox_id } : {};
  await act(`${e.finding.rule} is silenced`, "CreateSilence",
    { rule: e.finding.rule, tenant: e.tenant, reason: given.reason, ttl_ms: Number(given.hours) * 3600e3, ...about }, done);
}

const endSilence = (s, done) => act("The silence has ended", "DeleteSilence", { silence_id: s.id, tenant: s.tenant }, done);

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
      line("Labels", Object.entries(e.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join(", ") || "–"), handled(e, line)),
    h("div", { class: "buttons" },
      h("a", { href: `#/sandbox/${e.sandbox_id}` }, "The sandbox"), buttons(e, close),
      h("button", { type: "button", onclick: close }, "Close")),
    !credential.get() && h("p", { class: "note" }, "To acknowledge and to silence needs a credential with the right anomaly.write."));
}

// What can be done about it.
function buttons(e, close) {
  const off = !credential.get(), quiet = silence(e);
  const button = (text, run) => h("button", { type: "button", disabled: off, onclick: run }, text);
  return [
    acknowledgement(e) ? button("Withdraw the acknowledgement", () => withdraw(e, close)) : button("Acknowledge", () => acknowledge(e, close)),
    quiet ? button(`End the silence of ${e.finding.rule}`, () => endSilence(quiet, close)) : button(`Silence ${e.finding.rule}`, () => makeSilence(e, close)),
  ];
}

// Who has handled it, as lines of the evidence.
function handled(e, line) {
  const a = acknowledgement(e), s = silence(e);
  return [a && line("Acknowledged", `${format.moment(a.time)} by ${a.by}${a.reason ? `: ${a.reason}` : ""}`),
    s && line("Silenced", `until ${format.moment(s.expire_time)} by ${s.created_by}: ${s.reason}`)];
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
