// Brokers by rack as bars, each a link with the broker's id under it; the arrow keys move along.

import { fill, h, plain } from "./dom.js";
import { amount, plural, share, times } from "./words.js";

export const UNITS = [["amount", "Amount"], ["of_capacity", "% of capacity"],
  ["fair_shares", "× fair share"]];

const stateOf = (column, i) => {
  const id = String(column.broker[i]);
  return Object.hasOwn(column.states, id) ? column.states[id] : null;
};

// What a bar is called: its figure in every unit.
function words(column, i) {
  const state = stateOf(column, i);
  return [`broker ${column.broker[i]}, ${column.racks[column.rack[i]]}`, state,
    column.amount[i] === null ? "not known" : amount(column.amount[i], column.unit),
    column.of_capacity[i] === null ? null : `${share(column.of_capacity[i])} of capacity`,
    column.fair_shares[i] === null ? null : times(column.fair_shares[i])].filter(Boolean).join(", ");
}

export function bars(container) {
  let drawn = "";
  let links = [];

  function build(column) {
    const groups = column.racks.map((rack) => ({ rack, links: [] }));
    links = column.broker.map((id, i) => {
      const link = h("a", { class: "bar", href: `#/broker/${encodeURIComponent(id)}`, tabindex: "-1" },
        h("span", { class: "track" }, h("span", { class: "level" })), h("span", { class: "id" }, String(id)));
      groups[column.rack[i]].links.push(link);
      return link;
    });
    if (links.length) links[0].tabIndex = 0;
    fill(container, groups.filter((g) => g.links.length).map((g) =>
      h("div", { class: "rack", role: "group", "aria-label": `${g.rack}, ${plural(g.links.length, "broker")}` },
        h("h3", null, g.rack, h("span", { class: "soft" }, ` ${g.links.length}`)),
        h("div", { class: "bars" }, g.links))));
  }

  container.addEventListener("keydown", (event) => {
    const at = links.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0,
      End: links.length - 1 }[event.key];
    if (at < 0 || to === undefined || !links[to]) return;
    event.preventDefault();
    links[at].tabIndex = -1;
    links[to].tabIndex = 0;
    links[to].focus();
  });

  return function draw(column, unit) {
    const brokers = JSON.stringify([column.broker, column.rack, column.racks]);
    if (brokers !== drawn) build(column);
    drawn = brokers;
    const values = column[unit].map((v) => v ?? 0);
    const mark = unit === "amount" ? null : 1;
    const top = Math.max(mark ?? 0, ...values) || 1;
    container.classList.toggle("unmarked", mark === null);
    container.style.setProperty("--mark", String((mark ?? 0) / top));
    links.forEach((link, i) => {
      const said = plain(words(column, i));
      link.title = said;
      link.setAttribute("aria-label", said);
      link.classList.toggle("gone", stateOf(column, i) !== null);
      link.classList.toggle("unknown", column.amount[i] === null);
      link.classList.toggle("full", (column.of_capacity[i] ?? 0) > 1);
      link.firstChild.firstChild.style.height = `${(100 * values[i]) / top}%`;
    });
  };
}
