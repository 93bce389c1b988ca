// SPDX-License-Identifier: Apache-2.0
// A table of any length, of which only the rows that can be seen exist. Arrows, Page and Home keys move the chosen row, Enter opens it;
// the number of all rows and the number of each are said to screen readers.
import { h } from "./dom.js";

const ROW = 34; // pixels, as in style.css

export class List {
  // columns: [{title, class}]; fill(cells, item): updates the cells of a row; key(item); open(item), or none
  constructor({ label, columns, fill, key, open, empty }) {
    Object.assign(this, { columns, fill, key, open, items: [], rows: new Map(), chosen: 0 });
    this.head = h("div", { role: "row", class: "row head", "aria-rowindex": 1 },
      columns.map((c) => h("div", { role: "columnheader", class: c.class }, c.title)));
    this.space = h("div", { class: "space", role: "rowgroup" });
    this.empty = h("p", { class: "empty" }, empty);
    this.body = h("div", { class: "body", tabindex: 0, role: "rowgroup", "aria-label": label }, this.space);
    this.element = h("div", { class: `list of-${label.toLowerCase()}`, role: "table", "aria-label": label }, h("div", { role: "rowgroup" }, this.head), this.empty, this.body);
    this.body.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("keydown", (e) => this.press(e));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.body);
  }

  close() {
    this.resized.disconnect();
  }

  set(items) {
    this.items = items;
    this.element.setAttribute("aria-rowcount", String(items.length + 1));
    this.empty.hidden = items.length > 0;
    this.space.style.height = `${items.length * ROW}px`;
    this.draw(true);
  }

  press(e) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (e.target !== this.body && e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
    if (e.key === "Enter" && this.open && this.items[this.chosen]) this.open(this.items[this.chosen]);
    if (!(e.key in steps) || this.items.length === 0) return;
    e.preventDefault();
    this.chosen = Math.min(this.items.length - 1, Math.max(0, this.chosen + steps[e.key]));
    const top = this.chosen * ROW, bottom = top + ROW;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (bottom > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = bottom - this.body.clientHeight;
    this.draw();
  }

  make(item) {
    const cells = this.columns.map((c) => h("div", { role: "cell", class: c.class }));
    const row = h("div", { role: "row", class: this.open ? "row can-open" : "row" }, cells);
    const made = { row, cells, item };
    row.addEventListener("click", (e) => {
      this.chosen = this.items.indexOf(made.item);
      if (this.open && !e.target.closest("button, a")) this.open(made.item);
      else this.draw();
    });
    return made;
  }

  // again: also rows that were there before have new values.
  draw(again = false) {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW) - 4);
    const last = Math.min(this.items.length, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW) + 4);
    this.chosen = Math.min(this.chosen, Math.max(0, this.items.length - 1));
    const left = new Set(this.rows.keys());
    for (let i = first; i < last; i++) {
      const item = this.items[i], key = this.key(item);
      let made = this.rows.get(key);
      if (!made) {
        made = this.make(item);
        this.rows.set(key, made);
        this.fill(made.cells, item);
      } else if (again || made.item !== item) {
        this.fill(made.cells, item);
      }
      left.delete(key);
      made.item = item;
      made.row.id = `row-${i}`;
      made.row.style.transform = `translateY(${i * ROW}px)`;
      made.row.setAttribute("aria-rowindex", String(i + 2));
      made.row.classList.toggle("chosen", i === this.chosen);
      if (made.row.parentNode !== this.space) this.space.append(made.row);
    }
    for (const key of left) {
      this.rows.get(key).row.remove();
      this.rows.delete(key);
    }
    if (this.items.length > 0) this.body.setAttribute("aria-activedescendant", `row-${this.chosen}`);
  }
}
