// Builds elements: text from the cluster only ever becomes a text node.

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
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
        : h("td", { class: typeof cell === "string" && /^[\d−-]/.test(cell) ? "figure" : null }, cell))));
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

// Replaces what an element holds, and leaves the focus where it was if that element stays.
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
}
