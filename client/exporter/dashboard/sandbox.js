// SPDX-License-Identifier: Apache-2.0
// One sandbox: what its jobs do and did, as far back as the broker keeps its events.
import { Failure, call, credential, follow } from "./api.js";
import { ask, h, replace, say, setText, visible } from "./dom.js";
import * as format from "./format.js";
import { rows, table } from "./fleet.js";
import { List } from "./list.js";
import { changed, store } from "./store.js";

const KEEP = { events: 5000, text: 200000 };

// ---- What the events say

function read(e, to) {
  to.events.push(e);
  if (to.events.length > KEEP.events * 1.1) to.events.splice(0, to.events.length - KEEP.events);
  if (e.kind === "exec") {
    const x = e.execution;
    const p = to.processes.get(e.pid) ?? { pid: e.pid, parent: x.parent_pid };
    Object.assign(p, { path: x.path, args: x.arguments, uid: x.uid, cwd: x.cwd, comm: e.comm, job: e.process_id, started: e.time, ended: null });
    to.processes.set(e.pid, p);
  } else if (e.kind === "exit") {
    const p = to.processes.get(e.pid);
    if (p) Object.assign(p, { ended: e.time, code: e.exit.code, signal: e.exit.signal });
  } else if (e.kind === "job_started") {
    to.jobs.set(e.process_id, { id: e.process_id, args: e.job.args, started: e.time, facts: null });
  } else if (e.kind === "job_ended") {
    to.jobs.set(e.process_id, { args: [], ...to.jobs.get(e.process_id), id: e.process_id, facts: e.job, ended: e.time });
  }
  for (const map of [to.processes, to.jobs]) if (map.size > KEEP.events) map.delete(map.keys().next().value);
}

function outcome(f) {
  if (!f) return "runs";
  if (f.outcome === "exited") return `exit ${f.exit_code}`;
  return f.outcome === "signaled" ? `signal ${f.signal}` : `${f.outcome}${f.reason ? `: ${f.reason}` : ""}`;
}

const command = (args) => args.map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", "'\\''")}'`)).join(" ");

function what(e) {
  const d = e.execution ?? e.exit ?? e.file ?? e.flow ?? e.denial ?? e.job ?? e.finding ?? e.limit ?? e.transfer ?? e.call ?? e.signal ?? e.lost;
  if (e.kind === "exec") return `${d.path} ${d.arguments}`;
  if (e.kind === "exit") return d.signal ? `signal ${d.signal}` : `exit ${d.code}, after ${format.seconds(d.lived_ns / 1e9)}`;
  if (e.kind === "denied") return `${d.operation} ${d.destination}: ${d.reason}`;
  if (e.kind === "job_started") return command(d.args);
  if (e.kind === "job_ended") return outcome(d);
  if (e.kind === "finding") return `${d.rule}: ${d.text}`;
  if (e.flow) return `${d.name || d.destination} ${d.protocol}${d.reason ? `: ${d.reason}` : ""}`;
  if (e.file) return `${d.operation} ${d.resolved || d.path}`;
  if (e.transfer) return `${d.method} ${d.path} (${format.bytes(d.bytes)})`;
  if (e.call) return `${d.name} = ${d.result}`;
  return e.note || (d ? Object.entries(d).filter(([, v]) => typeof v !== "object").map(([k, v]) => `${k} ${v}`).join(", ") : "");
}

// ---- Parts of the view, as tabs

function processTree() {
  const element = h("div", { role: "tree", "aria-label": "Processes", class: "tree" });
  let drawn = "";
  const node = (p, below, depth) => h("div", { role: "treeitem", "aria-expanded": below.has(p.pid) ? "true" : undefined, class: p.ended ? "ended" : "runs" },
    h("span", { class: "mono" }, `${p.pid} ${p.args || p.path || p.comm}`),
    h("span", { class: "note" }, ` uid ${p.uid}, ${p.ended ? (p.signal ? `signal ${p.signal}` : `exit ${p.code}`) : "runs"}`),
    below.has(p.pid) && depth < 32 && h("div", { role: "group" }, below.get(p.pid).map((c) => node(c, below, depth + 1))));
  return {
    element,
    update(known) {
      const all = [...known.processes.values()].slice(-500);
      const text = all.map((p) => `${p.pid}${p.ended}${p.args}`).join();
      if (text === drawn) return;
      drawn = text;
      const pids = new Set(all.map((p) => p.pid)), below = Map.groupBy(all.filter((p) => pids.has(p.parent) && p.parent !== p.pid), (p) => p.parent);
      replace(element, all.filter((p) => !pids.has(p.parent) || p.parent === p.pid).map((p) => node(p, below, 0)));
      if (all.length === 0) replace(element, h("p", { class: "note" }, "No program was executed as far back as the broker keeps events."));
    },
  };
}

// The last events of some kinds as a list.
function listOf(label, columns, kinds, fill, empty) {
  const list = new List({ label, columns: columns.map((title) => (typeof title === "string" ? { title } : title)), key: (e) => `${e.instance}-${e.sequence}`, fill, empty });
  return { element: list.element, update: (known) => list.set(known.events.filter((e) => kinds(e)).reverse()), close: () => list.close() };
}

const NETWORK = new Set(["connect", "flow", "flow_ended", "listen"]);

function connections() {
  return listOf("Connections", ["Time", "Verdict", "Rule", "Destination", "Name, or what would allow it", "Process", "Bytes"], (e) => NETWORK.has(e.kind) || (e.kind === "denied" && e.denial.operation !== "dns"), (cells, e) => {
    const d = e.flow ?? e.denial, [time, verdict, rule, destination, name, process, size] = cells;
    setText(time, format.clock(e.time));
    setText(verdict, e.kind === "denied" ? `denied: ${d.reason}` : e.kind === "flow_ended" ? d.reason || "ended" : e.kind === "listen" ? "listens" : "allowed");
    verdict.dataset.severity = e.kind === "denied" ? "warning" : "";
    setText(rule, d.rule > 0 ? String(d.rule) : e.kind === "denied" ? "none allows it" : "mode open");
    setText(destination, `${d.destination} ${d.protocol}`);
    destination.title = e.denial?.hint ?? "";
    setText(name, e.denial ? e.denial.hint : d.name);
    name.title = e.denial?.hint ?? "";
    setText(process, `${e.comm} (${e.pid})`);
    setText(size, e.kind === "flow_ended" ? `${format.bytes(d.out_bytes)} out, ${format.bytes(d.in_bytes)} in` : "");
  }, "No connection.");
}

function names() {
  return listOf("Names", ["Time", "Name", "Verdict", "Rule"], (e) => e.kind === "lookup" || (e.kind === "denied" && e.denial.operation === "dns"), (cells, e) => {
    const d = e.flow ?? e.denial, [time, name, verdict, rule] = cells;
    setText(time, format.clock(e.time));
    setText(name, d.name || d.destination);
    setText(verdict, e.kind === "denied" ? `denied: ${d.reason}` : d.reason || "resolved");
    verdict.dataset.severity = e.kind === "denied" ? "warning" : "";
    setText(rule, d.rule > 0 ? String(d.rule) : "–");
  }, "No name was looked up.");
}

function files() {
  return listOf("Files", ["Time", "Operation", "Path", "Result", "Process"], (e) => e.file || e.transfer, (cells, e) => {
    const d = e.file ?? e.transfer, [time, operation, path, result, process] = cells;
    setText(time, format.clock(e.time));
    setText(operation, d.operation ?? `${d.method} (${d.direction})`);
    setText(path, d.resolved || d.path);
    setText(result, e.transfer ? `${format.bytes(d.bytes)}${d.complete ? "" : ", cut off"}` : d.error ? `errno ${d.error}` : "done");
    setText(process, e.comm ? `${e.comm} (${e.pid})` : "the caller");
  }, "No sensitive path was touched, and no file was sent or received.");
}

function timeline() {
  return listOf("Timeline", ["Time", "Kind", "Severity", "Process", { title: "What", class: "code" }], () => true, (cells, e) => {
    const [time, kind, severity, process, text] = cells;
    setText(time, format.clock(e.time));
    setText(kind, e.kind.replaceAll("_", " "));
    setText(severity, e.severity);
    severity.dataset.severity = e.severity;
    setText(process, e.comm ? `${e.comm} (${e.pid})` : "");
    setText(text, what(e));
    text.title = visible(what(e), 500);
  }, "The broker keeps no event of it.");
}

const FIGURES = [["wall_us", "Wall", 1e6], ["queue_us", "Queue", 1e6], ["setup_us", "Set-up", 1e6], ["cpu_user_ns", "CPU, user", 1e9], ["cpu_system_ns", "CPU, system", 1e9], ["throttled_ns", "Throttled", 1e9]];
const SIZES = [["memory_peak_bytes", "Memory, peak"], ["io_read_bytes", "Read"], ["io_write_bytes", "Written"], ["output_bytes", "Output"]];

// A figure that the host cannot provide has no source.
function figure(bill, name, show) {
  const f = bill?.[name];
  return f && f.source ? show(f.value) : "–";
}

function bills() {
  const body = h("tbody");
  return {
    element: h("div", { class: "scroll" }, table("Jobs and their bills", ["Job", "Outcome", ...FIGURES.map(([, l]) => l), ...SIZES.map(([, l]) => l), "Processes"], body)),
    update(known) {
      rows(body, [...known.jobs.values()].reverse().slice(0, 200).map((j) => [`${format.shortId(j.id)} ${command(j.args)}`.slice(0, 120), outcome(j.facts),
        ...FIGURES.map(([n, , unit]) => figure(j.facts?.bill, n, (v) => format.seconds(v / unit))), ...SIZES.map(([n]) => figure(j.facts?.bill, n, format.bytes)),
        figure(j.facts?.bill, "pids_peak", format.number)]), 13);
    },
  };
}

// ---- Live output

const hexText = new TextDecoder();

function decode(hex) {
  const bytes = new Uint8Array(hex.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(hex.substr(2 * i, 2), 16);
  return hexText.decode(bytes);
}

function output() {
  const jobs = h("select", { id: "job", onchange: () => attach(jobs.value) });
  const text = h("pre", { class: "output", tabindex: 0, role: "log", "aria-label": "Output" });
  const state = h("p", { class: "note", role: "status" });
  const element = h("div", { class: "fill" }, h("div", { class: "bar" }, h("label", { for: "job" }, "Job"), jobs, state), text);
  let stop = new AbortController(), attached = "", offered = "";

  function add(s, kind) {
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 20;
    text.append(h("span", { class: kind }, ...s.split("\n").flatMap((line, i) => (i === 0 ? [visible(line, 100000)] : [document.createTextNode("\n"), visible(line, 100000)]))));
    let size = text.textContent.length;
    while (size > KEEP.text && text.firstChild) {
      size -= text.firstChild.textContent.length;
      text.firstChild.remove();
    }
    if (atEnd) text.scrollTop = text.scrollHeight;
  }

  async function attach(id) {
    stop.abort();
    stop = new AbortController();
    attached = id;
    text.replaceChildren();
    if (!id) return;
    if (!credential.get()) return setText(state, "The output needs a credential of the owner.");
    setText(state, "attached");
    const mine = stop.signal;
    try {
      await follow({ output: { method: "ProcessService/Attach", request: { process_id: id } } }, (name, m) => {
        if (mine.aborted) return;
        if (name === "end") setText(state, m.code === "OK" ? "the job has ended" : m.text);
        else if (m.event?.output) add(decode(m.event.output.data), m.event.output.stream);
        else if (m.event?.gap) add(`\n[${format.bytes(m.event.gap.bytes)} are missing]\n`, "gap");
      }, mine);
    } catch (e) {
      setText(state, e.message);
    }
    return undefined;
  }
  return {
    element,
    update(known) {
      const all = [...known.jobs.values()].reverse().slice(0, 50);
      const now = all.map((j) => `${j.id}${j.facts ? 1 : 0}`).join();
      if (now === offered) return;
      offered = now;
      replace(jobs, all.map((j) => h("option", { value: j.id }, `${format.shortId(j.id)} ${command(j.args).slice(0, 60)} (${outcome(j.facts)})`)));
      if (attached && known.jobs.has(attached)) jobs.value = attached;
      else if (all.length > 0) attach(all[0].id);
      else setText(state, "No job was started as far back as the broker keeps events.");
    },
    close: () => stop.abort(),
  };
}

// ---- The view

const TABS = [["timeline", "Timeline", timeline], ["output", "Output", output], ["processes", "Processes", processTree], ["connections", "Connections", connections],
  ["names", "Names", names], ["files", "Files", files], ["jobs", "Jobs", bills]];

function tabs(panel, chosen) {
  const buttons = TABS.map(([id, label], i) => h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "panel", onclick: () => choose(i) }, label));
  function choose(i, focus = false) {
    buttons.forEach((b, k) => {
      b.setAttribute("aria-selected", String(k === i));
      b.setAttribute("tabindex", k === i ? "0" : "-1");
    });
    panel.setAttribute("aria-labelledby", buttons[i].id);
    if (focus) buttons[i].focus();
    chosen(TABS[i][2]);
  }
  const element = h("div", { role: "tablist", "aria-label": "Parts of the sandbox", class: "tabs", onkeydown: (e) => {
    const i = buttons.indexOf(document.activeElement), step = { ArrowRight: 1, ArrowLeft: -1, Home: -i, End: buttons.length - 1 - i }[e.key];
    if (i < 0 || step === undefined) return;
    e.preventDefault();
    choose((i + step + buttons.length) % buttons.length, true);
  } }, buttons);
  return { element, choose };
}

const ACTS = [["Pause", "pause", "Pause", "running"], ["Resume", "resume", "Resume", "paused"], ["Delete", "kill", "Kill", ""]];

async function act(method, word, s) {
  if (method === "Delete" && !(await ask("Kill this sandbox", [], { text: `${s.name || s.id}: every job in it is killed, and it is removed with its files.`, accept: "Kill", danger: true }))) return;
  try {
    await call(`SandboxService/${method}`, { id: s.id });
    say(`Done: ${word} ${s.name || format.shortId(s.id)}`);
  } catch (e) {
    say(`Could not ${word}: ${e.message}${e.hint ? ` (${e.hint})` : ""}`, true);
  }
}

export function sandbox(id) {
  const known = { events: [], processes: new Map(), jobs: new Map() };
  const stop = new AbortController();
  const title = h("h2", {}, format.shortId(id)), facts = h("dl", { class: "facts" });
  const error = h("p", { class: "error", role: "status", hidden: true });
  const panel = h("div", { role: "tabpanel", id: "panel", class: "fill" });
  let part = null, now = null;
  const buttons = ACTS.map(([method, word, label]) => h("button", { type: "button", class: method === "Delete" ? "danger" : undefined, onclick: () => act(method, word, now ?? { id, name: "" }) }, label));
  const bar = tabs(panel, (make) => {
    part?.close?.();
    part = make();
    replace(panel, part.element);
    part.update(known);
  });
  const element = h("div", { class: "fill" }, h("div", { class: "bar" }, title, h("div", { class: "buttons" }, buttons)), error, facts, bar.element, panel);

  function update() {
    const s = store.sandboxes.get(id);
    now = s ?? now;
    const u = now?.usage;
    setText(title, now?.name ? `${now.name} (${format.shortId(id)})` : format.shortId(id));
    const state = s ? s.state : "gone";
    const all = [["State", state], ["Owner", now?.tenant ?? "–"], ["Template", now?.template ?? "–"], ["Age", format.age(now?.created)], ["Jobs", s?.jobs ?? 0],
      ["CPU", `${format.number((now?.cpu.at(-1) ?? 0) * 100)} %`], ["Memory", u ? `${format.bytes(u.memory_bytes)} of ${format.bytes(u.memory_limit_bytes)}` : "–"],
      ["Processes", u ? `${u.pids} of ${u.pids_limit}` : "–"], ["Network", u?.network ? `${format.bytes(u.network.out_bytes)} out, ${format.bytes(u.network.in_bytes)} in` : "–"],
      ["Denials", u?.denials ?? 0], ["Alerts", u?.alerts ?? 0], ["Lost events", u?.lost ?? 0]];
    const text = JSON.stringify(all);
    if (facts.dataset.text !== text) {
      facts.dataset.text = text;
      replace(facts, all.map(([name, v]) => h("div", {}, h("dt", {}, name), h("dd", {}, v))));
    }
    buttons.forEach((b, i) => {
      const [, , , when] = ACTS[i];
      b.disabled = !credential.get() || !s || (when && s.state !== when);
      b.title = credential.get() ? "" : "needs a credential of the owner";
    });
    part?.update(known);
  }

  async function run() {
    for (let from = 1, instance = ""; !stop.signal.aborted;) {
      const request = { tenant: store.tenant, sandbox_ids: [id], from_sequence: from, ...(instance ? { instance } : {}) };
      try {
        await follow({ sandbox: { method: "TelemetryService/Subscribe", request } }, (name, m) => {
          if (name === "end") throw new Failure(m.code, m.text);
          if (name !== "sandbox") return;
          if (m.instance !== instance) from = 1;
          instance = m.instance;
          for (const e of m.events) {
            read(e, known);
            from = e.sequence + 1;
          }
          error.hidden = true;
          changed();
        }, stop.signal);
      } catch (e) {
        setText(error, `No events: ${e.message}`);
        error.hidden = false;
      }
      if (!stop.signal.aborted) await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
  }
  bar.choose(0);
  run();
  return { element, update, tick: update, close: () => { stop.abort(); part?.close?.(); } };
}
