// SPDX-License-Identifier: Apache-2.0
// What was refused, newest first, and how it would be allowed.
import { h, setText } from "./dom.js";
import * as format from "./format.js";
import { List } from "./list.js";
import { store } from "./store.js";
import { matches } from "./sandboxes.js";

export function fillDenial(cells, e) {
  const d = e.denial ?? {};
  const [time, where, what, destination, reason, hint] = cells;
  setText(time, format.clock(e.time));
  setText(where, e.sandbox_name || format.shortId(e.sandbox_id));
  where.title = e.sandbox_id;
  setText(what, `${e.comm || "?"} (${e.pid}) ${d.operation ?? ""}`);
  setText(destination, `${d.destination ?? ""} ${d.protocol ?? ""}`);
  destination.title = d.destination ?? "";
  setText(reason, d.rule > 0 ? `${d.reason}, rule ${d.rule}` : d.reason ?? "");
  setText(hint, d.hint ?? "");
  hint.title = d.hint ?? "";
}

export const DENIAL_COLUMNS = [{ title: "Time" }, { title: "Sandbox" }, { title: "Process" }, { title: "Destination" }, { title: "Reason" }, { title: "What would allow it", class: "code" }];

export function denials() {
  const search = h("input", { type: "search", id: "search", placeholder: "sandbox, process, destination or reason", autocomplete: "off", oninput: () => update() });
  const number = h("p", { role: "status", class: "note" });
  const list = new List({
    label: "Denials", key: (e) => `${e.instance}-${e.sequence}`, fill: fillDenial, columns: DENIAL_COLUMNS,
    empty: "Nothing was refused since this page was opened, as far back as the broker keeps events.",
    open: (e) => { location.hash = `#/sandbox/${e.sandbox_id}`; },
  });
  const element = h("div", { class: "fill" }, h("div", { class: "bar" }, h("h2", {}, "Denials"), number, h("label", { for: "search" }, "Search"), search), list.element);
  function update() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = store.denials.toReversed();
    const shown = words.length > 0 ? all.filter((e) => matches(words, e.sandbox_name, e.sandbox_id, e.comm, e.denial?.operation, e.denial?.destination, e.denial?.reason)) : all;
    setText(number, `${shown.length}${store.missed > 0 ? `, ${store.missed} events were missed` : ""}`);
    list.set(shown);
  }
  return { element, update, close: () => list.close() };
}
