// SPDX-License-Identifier: Apache-2.0
// Calls that wait until a person has agreed. What is shown was written by the requester; what is approved is bound to its digest.
import { call, credential } from "./api.js";
import { ask, h, replace, say, setText } from "./dom.js";
import * as format from "./format.js";
import { List } from "./list.js";
import { store } from "./store.js";

function fill(cells, a) {
  const [state, made, who, method, subject, why, votes] = cells;
  setText(state, a.state);
  state.dataset.state = a.state;
  setText(made, format.clock(a.create_time));
  setText(who, a.requester);
  setText(method, a.method);
  setText(subject, a.subject);
  subject.title = a.subject;
  setText(why, a.reason || a.rule);
  setText(votes, `${a.votes.filter((v) => v.agreed).length} of ${a.needed}`);
}

async function approve(a, done) {
  const given = await ask("Approve this call", [
    { name: "reach", label: "How much", options: [["once", "This call, once"], ["session", "The same call, for 8 hours"]] },
    { name: "comment", label: "Comment", placeholder: "optional" },
  ], { text: `${a.requester}: ${a.method} ${a.subject}`, accept: "Approve" });
  if (!given) return;
  await act("approved", "Approve", { id: a.id, digest: a.digest, comment: given.comment, grant: { reach: given.reach } }, done);
}

async function deny(a, done) {
  const given = await ask("Deny this call", [{ name: "comment", label: "Why; the requester sees it", placeholder: "optional" }],
    { text: `${a.requester}: ${a.method} ${a.subject}`, accept: "Deny", danger: true });
  if (given) await act("denied", "Deny", { id: a.id, comment: given.comment }, done);
}

async function act(word, method, request, done) {
  try {
    const { approval } = await call(`ApprovalService/${method}`, request);
    say(approval.state === "pending" ? "Noted: further approvers are needed" : `The call is ${word}`);
    done();
  } catch (e) {
    say(`Not ${word}: ${e.message}${e.hint ? ` (${e.hint})` : ""}`, true);
  }
}

export function approvals() {
  const all = h("input", { type: "checkbox", id: "all", onchange: () => update() });
  const error = h("p", { class: "error", role: "status", hidden: true });
  const number = h("p", { role: "status", class: "note" });
  const detail = h("div");
  let shownId = "";
  const close = () => {
    shownId = "";
    detail.replaceChildren();
  };
  function showOne(a) {
    shownId = a.id;
    const line = (name, text) => [h("dt", {}, name), h("dd", {}, text)];
    const pending = a.state === "pending";
    replace(detail, h("section", { class: "card evidence", "aria-labelledby": "approval-title" },
      h("h3", { id: "approval-title" }, `${a.method}, ${a.state}`), h("pre", { class: "code" }, a.subject),
      h("dl", {}, line("Requester", a.requester), line("Why", a.reason || "–"), line("Rule", a.rule || "the requester asked"), line("Until", format.clock(a.expire_time)),
        line("Approvers", a.approvers.join(", ") || "everybody with the right"), line("Needed", `${a.votes.filter((v) => v.agreed).length} of ${a.needed}`),
        line("Digest", a.digest), a.votes.map((v) => line(v.agreed ? "Agreed" : "Refused", `${v.approver} ${v.comment}`))),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "primary", disabled: !pending, onclick: () => approve(a, close) }, "Approve"),
        h("button", { type: "button", class: "danger", disabled: !pending, onclick: () => deny(a, close) }, "Deny"),
        h("button", { type: "button", onclick: close }, "Close"))));
  }
  const list = new List({
    label: "Approvals", key: (a) => a.id, fill, empty: "No call waits for an approval.",
    open: (a) => {
      showOne(a);
      detail.querySelector("button").focus();
    },
    columns: [{ title: "State" }, { title: "Asked" }, { title: "Requester" }, { title: "Method" }, { title: "What", class: "code" }, { title: "Why" }, { title: "Agreed", class: "right" }],
  });
  const element = h("div", { class: "fill" }, h("div", { class: "bar" }, h("h2", {}, "Approvals"), number, all, h("label", { for: "all" }, "Also answered ones")), error, detail, list.element);
  function update() {
    const text = !credential.get() ? "Approvals need a credential with the right approval.read." : store.approvalsError;
    error.hidden = !text;
    setText(error, text);
    const shown = [...store.approvals.values()].filter((a) => all.checked || a.state === "pending").sort((a, b) => b.revision - a.revision);
    setText(number, `${shown.length}`);
    list.set(shown);
    const open = shownId && store.approvals.get(shownId);
    if (open && !detail.querySelector("h3")?.textContent.endsWith(open.state)) showOne(open);
  }
  return { element, update, close: () => list.close() };
}
