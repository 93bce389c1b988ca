// SPDX-License-Identifier: Apache-2.0
// All sandboxes that the credential may see.
import { spark } from "./chart.js";
import { h, setText } from "./dom.js";
import * as format from "./format.js";
import { List } from "./list.js";
import { store } from "./store.js";

const ORDERS = {
  newest: ["Newest", (a, b) => b.created - a.created || (a.id < b.id ? -1 : 1)],
  cpu: ["CPU", (a, b) => (b.cpu.at(-1) ?? 0) - (a.cpu.at(-1) ?? 0) || (a.id < b.id ? -1 : 1)],
  memory: ["Memory", (a, b) => (b.memory.at(-1) ?? 0) - (a.memory.at(-1) ?? 0) || (a.id < b.id ? -1 : 1)],
  denials: ["Denials", (a, b) => (b.usage?.denials ?? 0) - (a.usage?.denials ?? 0) || (a.id < b.id ? -1 : 1)],
  name: ["Name", (a, b) => (a.name || a.id).localeCompare(b.name || b.id)],
};

export function lastDenial(d) {
  return d ? `${d.operation} ${d.destination} (${d.reason})` : "";
}

function fill(cells, s) {
  const [state, name, owner, template, old, jobs, cpu, memory, denial] = cells;
  setText(state, s.state);
  state.dataset.state = s.state;
  setText(name, s.name ? `${s.name} (${format.shortId(s.id)})` : format.shortId(s.id));
  name.title = s.id;
  setText(owner, s.tenant);
  setText(template, s.template);
  setText(old, format.age(s.created));
  setText(jobs, String(s.jobs));
  curve(cpu, s.cpu, 0.05, `${format.number((s.cpu.at(-1) ?? 0) * 100)} %`);
  curve(memory, s.memory, 1 << 20, s.usage ? format.bytes(s.usage.memory_bytes) : "–");
  setText(denial, lastDenial(s.denial) || (s.usage?.denials > 0 ? `${s.usage.denials} before` : ""));
  denial.title = lastDenial(s.denial);
}

function curve(cell, values, least, text) {
  if (!cell.firstElementChild) cell.append(spark([], { width: 64, height: 20 }), h("span"));
  spark(values, { width: 64, height: 20, n: 30, least, label: text }, cell.firstElementChild);
  setText(cell.lastElementChild, text);
}

// Those whose texts have all words.
export function matches(words, ...texts) {
  const all = texts.join(" ").toLowerCase();
  return words.every((w) => all.includes(w));
}

export function sandboxes() {
  const search = h("input", { type: "search", id: "search", placeholder: "name, id, owner, template or state", autocomplete: "off", oninput: () => update() });
  const order = h("select", { id: "order", onchange: () => update() }, Object.entries(ORDERS).map(([v, [label]]) => h("option", { value: v }, label)));
  const number = h("p", { role: "status", class: "note" });
  const error = h("p", { class: "error", role: "status", hidden: true });
  const list = new List({
    label: "Sandboxes", key: (s) => s.id, fill, empty: "There is no sandbox.",
    open: (s) => { location.hash = `#/sandbox/${s.id}`; },
    columns: [{ title: "State" }, { title: "Name" }, { title: "Owner" }, { title: "Template" }, { title: "Age" }, { title: "Jobs", class: "right" },
      { title: "CPU", class: "curve" }, { title: "Memory", class: "curve" }, { title: "Last denial" }],
  });
  const element = h("div", { class: "fill" }, h("div", { class: "bar" }, h("h2", {}, "Sandboxes"), number,
    h("label", { for: "search" }, "Search"), search, h("label", { for: "order" }, "Sort by"), order), error, list.element);

  function update() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...store.sandboxes.values()];
    const shown = words.length > 0 ? all.filter((s) => matches(words, s.name, s.id, s.tenant, s.template, s.state)) : all;
    shown.sort(ORDERS[order.value][1]);
    setText(number, shown.length === all.length ? `${all.length}` : `${shown.length} of ${all.length}`);
    error.hidden = !store.usageError;
    setText(error, store.usageError ? `No figures: ${store.usageError}` : "");
    setText(list.empty, store.connection.state === "live" ? "There is no sandbox." : "Not known: there is no connection.");
    list.set(shown);
  }
  return { element, update, tick: update, close: () => list.close() };
}
