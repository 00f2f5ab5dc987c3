// Now: what is wrong, first; then the brokers by rack.

import { bars, UNITS } from "./bars.js";
import { get, part } from "./api.js";
import { badge, field, fill, h, latest, section, select, table } from "./dom.js";
import { leftOut } from "./tables.js";
import { ago, amount, count, plural, share, times } from "./words.js";

export const place = "now";
export const title = () => "Now";

export function wrongs(findings, state) {
  if (!findings.length) {
    return h("p", null, state.loads_unknown === null ? "Nothing is wrong." : "Nothing is wrong as far as is known.");
  }
  return h("ul", { class: "findings" }, findings.map((f) =>
    h("li", null, badge(f.state), " ", f.sentence, h("span", { class: "soft" }, ` (${f.kind}, since ${ago(f.since)})`))));
}

const OUT_OF_ORDER = [
  ["brokers_not_alive", "broker not alive", "brokers not alive"],
  ["disks_offline", "disk offline", "disks offline"],
  ["replicas_offline", "replica offline", "replicas offline"],
  ["partitions_without_leader", "partition without a leader", "partitions without a leader"],
  ["partitions_reassigning", "partition being reassigned", "partitions being reassigned"],
];

// What the controller does about it, and what keeps it from seeing or acting.
function controller(state, open) {
  const lines = [
    state.executing ? ["An execution is in progress: ", h("a", { href: "#/execution" }, "watch it"), "."] : null,
    open ? [h("a", { href: "#/proposals" }, plural(open, "proposal")), open === 1 ? " waits for approval." : " wait for approval."] : null,
    state.loads_unknown === null ? null : `Loads are not known: ${state.loads_unknown}. Only what needs none is judged and done.`,
    state.held ? "The controller is on hold: it starts nothing until it is released." : null,
    state.acting ? null : "Another controller has the vote and acts; this one does not.",
    ...state.detectors_failing.map((text) => `Not looked for: ${text}`),
    state.left_in_kafka.length ? `Left in Kafka by earlier executions: ${state.left_in_kafka.join(", ")}.` : null,
  ].filter(Boolean);
  return lines.length ? h("ul", null, lines.map((line) => h("li", null, line))) : null;
}

function cluster(totals, state) {
  const wrong = OUT_OF_ORDER.filter(([name]) => totals[name]).map(([name, one, many]) =>
    h("li", null, plural(totals[name], one, many)));
  return [
    wrong.length ? h("ul", null, wrong) : null,
    h("p", { class: "soft" }, `${plural(totals.brokers, "broker")}, ${plural(totals.racks, "rack")}, ` +
      `${plural(totals.topics, "topic")}, ${plural(totals.partitions, "partition")}, ` +
      `${plural(totals.replicas, "replica")}` +
      (state.balancedness === null ? "." : `; balancedness ${count(state.balancedness)} of 100.`)),
  ];
}

function unmet(goals, open) {
  const judged = goals.filter((g) => g.left_out === null);
  const others = goals.filter((g) => g.left_out !== null).map((g) => g.left_out);
  const found = judged.filter((g) => !g.met);
  const hard = found.filter((g) => g.hard).length;
  const rows = found.map((g) => [
    g.goal, g.hard ? "hard" : `tier\u00a0${g.tier}`, `${count(g.unmet_cells)} of ${count(g.cells)}`,
    share(g.worst), g.where ?? ""]);
  if (!rows.length) return [h("p", null, others.length ? "Every other goal is met." : "Every goal is met."), leftOut(others)];
  return [h("details", { open },
    h("summary", null, `${count(rows.length)} of ${plural(judged.length, "goal")} not met, ${count(hard)} of them hard`),
    table("Unmet goals", ["Goal", "Kind", "Not content", "Worst contentment", "Where"], rows)), leftOut(others)];
}

export async function show(body, app) {
  const wrong = h("div"), clusterNow = h("div"), controllerNow = h("div"), goalsNow = h("div"), said = h("p");
  const chart = h("div", { class: "chart" });
  const draw = bars(chart);
  let totals = await get("cluster"), column = null;
  let names = Object.keys(totals.figures);
  const resource = select(names.map((n) => [n, n.replaceAll("_", " ")]), names[0], { onchange: () => app.attempt(load) });
  let unit = "fair_shares";
  const units = h("fieldset", { class: "units" }, h("legend", null, "Unit"), UNITS.map(([value, text]) =>
    h("label", null, h("input", { type: "radio", name: "unit", value, checked: value === unit,
      onchange: () => { unit = value; redraw(); } }), ` ${text}`)));

  function redraw() {
    const total = totals.figures[column.name];
    const capacity = column.of_capacity.some((v) => v !== null);
    const byCapacity = units.querySelector("[value=of_capacity]");
    byCapacity.disabled = !capacity;
    if (!capacity && unit === "of_capacity") {
      unit = "fair_shares";
      units.querySelector("[value=fair_shares]").checked = true;
    }
    draw(column, unit);
    fill(said, `${amount(total.amount, total.unit)} in all` +
      (total.of_capacity === null ? "" : `, ${share(total.of_capacity)} of capacity`) +
      `; fullest: broker ${total.fullest_broker}, ${amount(total.fullest.amount, total.unit)}` +
      (total.fullest.of_capacity === null ? "" : `, ${share(total.fullest.of_capacity)} of capacity`) +
      (total.fullest.fair_shares === null ? "." : `, ${times(total.fullest.fair_shares)}.`) +
      (unit === "amount" ? "" : unit === "fair_shares" ? " The line is the fair share." : " The line is the capacity."));
  }

  const load = latest(() => get(`cluster/columns/${part(resource.value)}`), (found) => {
    column = found;
    redraw();
  });

  async function update() {
    const [findings, found, goals, state, open] = await Promise.all([
      get("findings"), get("cluster"), get("goals"), get("state"), get("proposals?state=open")]);
    totals = found;
    if (String(Object.keys(found.figures)) !== String(names)) {
      // Loads have become known, or unknown.
      names = Object.keys(found.figures);
      fill(resource, names.map((n) => h("option", { value: n, selected: n === resource.value }, n.replaceAll("_", " "))));
    }
    fill(wrong, wrongs(findings, state));
    fill(clusterNow, cluster(totals, state));
    fill(controllerNow, controller(state, open.length));
    fill(goalsNow, unmet(goals, goalsNow.querySelector("details")?.open));
    await load();
  }

  fill(body,
    section("What is wrong", wrong, clusterNow, goalsNow, controllerNow),
    section("Brokers", h("div", { class: "controls" }, field("Resource", resource), units),
      said, h("p", { class: "soft" }, "Choose a broker for its disks, topics and partitions; arrow keys move between them."), chart));
  await update();
  return { update: (kinds) => (kinds.has("decision") || kinds.has("proposal") ? update() : null) };
}
