// SPDX-License-Identifier: Apache-2.0
// Numbers and times for people.

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function seconds(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return "–";
  if (s < 0.001) return `${Math.round(s * 1e6)} µs`;
  if (s < 1) return `${(s * 1e3).toFixed(s < 0.01 ? 1 : 0)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function number(n) {
  if (!Number.isFinite(n)) return "–";
  return Number.isInteger(n) || Math.abs(n) >= 100 ? Math.round(n).toLocaleString("en-US") : n.toFixed(n < 1 ? 2 : 1);
}

export function age(since, now = Date.now()) {
  return since ? seconds(Math.max(0, (now - since) / 1000)) : "–";
}

export function clock(time) {
  const t = new Date(time);
  return Number.isNaN(t.getTime()) ? "–" : `${t.toLocaleTimeString("en-GB")}.${String(t.getMilliseconds()).padStart(3, "0")}`;
}

// A time that may be days away.
export function moment(time) {
  const t = new Date(time);
  if (Number.isNaN(t.getTime())) return "–";
  const clockText = t.toLocaleTimeString("en-GB");
  return t.toDateString() === new Date().toDateString() ? clockText : `${t.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${clockText}`;
}

// 32 digits are long: the first 12, behind the node's name if there is one.
export function shortId(id) {
  const at = id.lastIndexOf("-") + 1;
  return id.slice(0, at + 12);
}
