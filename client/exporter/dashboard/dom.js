// SPDX-License-Identifier: Apache-2.0
// Elements and texts. Strings of jobs become text nodes and nothing else: no module sets innerHTML, and the server's policy
// (Trusted Types) refuses one that does.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

// A text in which nothing is invisible and nothing turns the direction of writing, of at most `most` characters.
export function visible(text, most = 2000) {
  const cut = String(text ?? "").slice(0, most);
  const shown = cut.replace(HIDDEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  return cut.length < String(text ?? "").length ? `${shown}…` : shown;
}

const NAMES = new Set(["class", "id", "role", "type", "title", "href", "for", "tabindex", "scope", "name", "value", "placeholder",
  "autocomplete", "maxlength", "method", "colspan", "open"]);

// An element. Keys: attributes of the list above, aria-*, data-*; on*: listeners; `disabled`, `hidden`, `checked`: properties.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "disabled" || name === "hidden" || name === "checked") element[name] = value;
    else if (name === "href" && !String(value).startsWith("#")) throw new Error("links lead within the page");
    else if (NAMES.has(name) || name.startsWith("aria-") || name.startsWith("data-")) element.setAttribute(name, String(value));
    else throw new Error(`no attribute ${name}`);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Sets a text only if it is another one, so that screen readers and selections are left in peace.
export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

// A modal dialog with a form; gives the values of its fields, or null when it was cancelled.
export function ask(title, fields, { text = "", accept = "OK", danger = false } = {}) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const inputs = fields.map((f) => {
      const id = `field-${f.name}`;
      const input = f.options
        ? h("select", { id, name: f.name }, f.options.map(([value, label]) => h("option", { value }, label)))
        : h("input", { id, name: f.name, type: f.type ?? "text", autocomplete: "off", maxlength: f.most ?? 256, placeholder: f.placeholder });
      return [h("label", { for: id }, f.label), input];
    });
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title), text && h("p", {}, text), inputs,
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
        h("button", { type: "submit", value: "ok", class: danger ? "danger" : "primary" }, accept)));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      const values = Object.fromEntries(fields.map((f) => [f.name, form.elements[f.name].value]));
      dialog.remove();
      before?.focus?.();
      resolve(dialog.returnValue === "ok" ? values : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A message for a moment; errors stay until they are closed.
export function say(text, error = false) {
  const box = document.getElementById("messages");
  const message = h("div", { class: error ? "message error" : "message" }, h("span", {}, text),
    h("button", { type: "button", "aria-label": "Close", onclick: () => message.remove() }, "×"));
  box.append(message);
  while (box.children.length > 4) box.firstElementChild.remove();
  if (!error) setTimeout(() => message.remove(), 5000);
}
