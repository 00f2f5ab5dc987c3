// Builds elements: text from the cluster only ever becomes a text node.

// Control characters, and those that turn the direction of writing, as escapes: a name that has
// one must not look like another, or turn round the sentence that it is in.
export const plain = (text) => String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
  (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

const nodes = (children) => children.flat(3).filter((c) => c !== null && c !== undefined && c !== false)
  .map((c) => (c instanceof Node ? c : plain(c)));

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : name.startsWith("aria-") ? plain(value) : value);
  }
  element.append(...nodes(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function s(tag, properties, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A table that scrolls within itself where the screen is narrow.
export function table(caption, headings, rows, empty = "None.") {
  if (!rows.length) return h("p", { class: "soft" }, `${caption}: ${empty.toLowerCase()}`);
  const head = h("tr", null, headings.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map((cells) =>
    h("tr", null, cells.map((cell, i) =>
      i === 0
        ? h("th", { scope: "row" }, cell)
        : h("td", { class: typeof cell === "string" && /^[\d−-]/.test(cell) && cell.length < 24 ? "figure" : null }, cell))));
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    h("table", null, h("caption", null, caption), h("thead", null, head), h("tbody", null, body)));
}

export function facts(pairs) {
  return h("dl", { class: "facts" },
    pairs.filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

let fields = 0;

export function field(label, control, hint) {
  control.id ||= `field-${++fields}`;
  const note = hint ? h("span", { class: "hint", id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, note);
}

export function select(values, chosen, properties) {
  const options = values.map((v) => (Array.isArray(v) ? v : [v, v]));
  return h("select", properties,
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

export function section(title, ...children) {
  return h("section", null, h("h2", null, title), ...children);
}

export function badge(state) {
  return h("span", { class: `badge ${state.replaceAll(" ", "-")}` }, state);
}

// Replaces what an element holds. The focus within it goes to the element that takes the place:
// the one with the same link or words, or the next that can have it.
export function fill(element, ...children) {
  const held = element.contains(document.activeElement) && element !== document.activeElement ? document.activeElement : null;
  const at = held ? reachable(element).indexOf(held) : -1;
  element.replaceChildren(...nodes(children));
  if (!held || held.isConnected && document.activeElement === held) return;
  const found = reachable(element);
  const same = held.isConnected ? held : found.find((e) => identity(e) === identity(held));
  (same ?? found[Math.min(at, found.length - 1)] ?? document.querySelector("main h1"))?.focus({ preventScroll: true });
}

const reachable = (element) =>
  [...element.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter((e) => !e.disabled && !e.hidden);

const identity = (e) => [e.tagName, e.id, e.getAttribute("href"), e.id ? "" : e.textContent].join("|");

// Of several answers on their way, only the one that was asked for last is shown.
export function latest(ask, show) {
  let asked = 0;
  return async (...given) => {
    const turn = ++asked;
    const answer = await ask(...given);
    if (turn === asked) show(answer);
  };
}
