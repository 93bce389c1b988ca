// SPDX-License-Identifier: Apache-2.0
// What the page requests from the exporter. The credential is in a header of each request, and in sessionStorage until the tab is
// closed; it is in no URL.

const KEY = "stockade.credential";

export class Failure extends Error {
  constructor(code, text, hint = "") {
    super(text);
    this.code = code;
    this.hint = hint;
  }
}

export const credential = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

function headers() {
  const all = { "Content-Type": "application/json" };
  if (credential.get()) all.Authorization = `Bearer ${credential.get()}`;
  return all;
}

async function failure(response) {
  try {
    const e = await response.json();
    return new Failure(e.code, e.text, e.hint);
  } catch {
    return new Failure("UNKNOWN", `the exporter answered ${response.status}`);
  }
}

async function post(path, body, signal) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal, cache: "no-store", credentials: "omit" });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Failure("UNAVAILABLE", "the exporter does not answer");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export async function call(method, request = {}) {
  return (await post(`/api/call/${method}`, request, AbortSignal.timeout(15000))).json();
}

export async function about() {
  return (await fetch("/api/about", { cache: "no-store" })).json();
}

// One event of text/event-stream: "event: NAME", "data: JSON".
function parse(block) {
  let name = "message", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data ? [name, JSON.parse(data)] : null;
}

// Follows streams ({name: {method, request}}), until the signal is raised, they end, or nothing comes for SILENCE_MS (the exporter
// beats once a second). take(name, message) gets each message; "end" has the name of the stream that has ended, and why.
const SILENCE_MS = 6000;

export async function follow(streams, take, signal, opened = () => {}) {
  const silence = new AbortController();
  const stop = () => silence.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, 2 * SILENCE_MS);
  try {
    const response = await post("/api/watch", streams, silence.signal);
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      text += value;
      for (let at; (at = text.indexOf("\n\n")) >= 0; text = text.slice(at + 2)) {
        const event = parse(text.slice(0, at));
        if (event) take(...event);
      }
    }
  } catch (e) {
    if (signal.aborted) return;
    if (e instanceof Failure) throw e;
    throw new Failure("UNAVAILABLE", silence.signal.aborted ? "the exporter is silent" : "the connection to the exporter has broken");
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}
