// SPDX-License-Identifier: Apache-2.0
// The page: views by the part of the address behind '#', the state of the connection, the credential.
import { credential } from "./api.js";
import { ask, replace, say, setText } from "./dom.js";

import { begin, forget, listen, store } from "./store.js";
import { approvals } from "./approvals.js";
import { denials } from "./denials.js";
import { findings, open as openFindings } from "./findings.js";
import { fleet } from "./fleet.js";
import { sandbox } from "./sandbox.js";
import { sandboxes } from "./sandboxes.js";

// Each makes {element, update(), close()}.
const VIEWS = { fleet, sandboxes, sandbox, findings, denials, approvals };

let view = null;

function show() {
  const [, name = "fleet", ...rest] = location.hash.split("/");
  const make = VIEWS[name] ?? fleet;
  view?.close?.();
  view = make(decodeURIComponent(rest.join("/")));
  const main = document.getElementById("main");
  replace(main, view.element);
  main.dataset.view = name in VIEWS ? name : "fleet";
  const title = view.element.querySelector("h2")?.textContent ?? "";
  document.title = title ? `${title} – Stockade` : "Stockade";
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `#/${name === "sandbox" ? "sandboxes" : main.dataset.view}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.update();
}

const WORDS = { connecting: "Connecting", live: "Live", lost: "Disconnected", credential: "Credential needed" };

function count(id, n) {
  const element = document.getElementById(id);
  element.hidden = n === 0;
  setText(element, n > 999 ? "999+" : String(n));
}

function update() {
  const c = store.connection, box = document.getElementById("connection");
  box.dataset.state = c.state;
  const more = c.state === "lost" ? `: ${c.text}; trying again` : "";
  setText(box, `${WORDS[c.state]}${more}`);
  document.documentElement.dataset.stale = String(c.state !== "live");
  nameButton();
  count("count-findings", openFindings().length);
  count("count-approvals", [...store.approvals.values()].filter((a) => a.state === "pending").length);
  view?.update();
}

// Says what a click would do. At once, and not with the next figures: the click after the first does something else.
function nameButton() {
  setText(document.getElementById("credential"), credential.get() ? "Forget the credential" : "Credential");
}

async function changeCredential() {
  if (credential.get()) {
    credential.set("");
    say("The credential is forgotten");
    forgetAll();
    return;
  }
  const given = await ask("Credential", [{ name: "credential", label: "API key or token", type: "password", most: 8000 }],
    { text: "It is sent with each request, checked by the broker, and kept until this tab is closed. ‘stockade key create’ makes one.", accept: "Use it" });
  if (!given?.credential.trim()) return;
  credential.set(given.credential.trim());
  forgetAll();
}

function forgetAll() {
  nameButton();
  if (!store.open && !credential.get()) location.reload();
  else forget();
}

// ---- Light and dark

const THEME = "stockade.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  const chosen = localStorage.getItem(THEME);
  const isDark = chosen ? chosen === "dark" : dark.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.getElementById("theme").setAttribute("aria-pressed", String(isDark));
}

document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  theme();
});
dark.addEventListener("change", theme);
document.getElementById("credential").addEventListener("click", changeCredential);
addEventListener("hashchange", () => {
  show();
  document.getElementById("main").focus({ preventScroll: true });
});
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault();
  document.getElementById("main").focus();
});
addEventListener("error", (e) => say(`This page has failed: ${e.message}`, true));

theme();
listen(update);
show();
begin();
setInterval(() => !document.hidden && view?.tick?.(), 1000);
