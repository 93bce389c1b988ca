// SPDX-License-Identifier: Apache-2.0
// Small curves.
import { svg } from "./dom.js";

// Updates a sparkline of values (the last `n` of them), from 0 to the largest, at least `least`.
export function spark(values, { width = 96, height = 24, n = 60, least = 1e-9, label = "" } = {}, element = null) {
  const shown = values.slice(-n);
  const most = Math.max(least, ...shown);
  const step = width / Math.max(1, n - 1);
  const from = width - (shown.length - 1) * step;
  const points = shown.map((v, i) => `${(from + i * step).toFixed(1)},${(height - 1 - (v / most) * (height - 3)).toFixed(1)}`);
  if (!element) {
    element = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", preserveAspectRatio: "none" },
      svg("polygon", { class: "area" }), svg("polyline", { class: "line" }));
  }
  const [area, line] = element.children;
  line.setAttribute("points", points.join(" "));
  area.setAttribute("points", shown.length > 1 ? `${from.toFixed(1)},${height} ${points.join(" ")} ${width},${height}` : "");
  if (label) element.setAttribute("aria-label", label);
  return element;
}
