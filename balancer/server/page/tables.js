// Tables about a plan that several views show.

import { h, table } from "./dom.js";
import { plural, share, times } from "./words.js";

export function columnsTable(columns) {
  return table("Worst broker of each resource", ["Resource", "Before", "After", "No plan is below"],
    Object.entries(columns).map(([name, c]) => [name.replaceAll("_", " "), times(c.before.worst_ratio),
      times(c.after.worst_ratio), times(c.worst_ratio_bound)]));
}

const said = (met, cells) => (met ? "met" : `${cells} not content`);

export function goalsTable(goals) {
  const changed = goals.filter((g) => !(g.met_before && g.met_after));
  const met = goals.length - changed.length;
  return [
    table("Goals that are not met before or after", ["Goal", "Kind", "Before", "After", "Contentment"],
      changed.map((g) => [g.goal, g.hard ? "hard" : `tier\u00a0${g.tier}`, said(g.met_before, g.unmet_cells_before),
        said(g.met_after, g.unmet_cells_after), `${share(g.contentment_before)} to ${share(g.contentment_after)}`])),
    h("p", { class: "soft" }, `${met} of ${goals.length} goals are met before and after.`),
  ];
}

export const worsened = (goals) => goals.filter((g) =>
  g.contentment_after < g.contentment_before - 1e-9 || g.unmet_cells_after > g.unmet_cells_before);

// What keeps a goal unmet: the first clause; the rest, which may be a page long, can be unfolded.
function reason(text) {
  const end = text.indexOf("; ");
  if (end < 0) return text.endsWith(".") ? text : `${text}.`;
  return [`${text.slice(0, end)}.`, h("details", null, h("summary", null, "Why"), h("p", null, text.slice(end + 2)))];
}

// Goals that are not judged, with the reasons; null where there are none.
export const leftOut = (reasons) => (reasons.length ? h("details", null,
  h("summary", null, `${plural(reasons.length, "goal")} left out`), h("ul", null, reasons.map((why) => h("li", null, why)))) : null);

export function unmetList(unmet, reasons) {
  if (!unmet.length) return [h("p", null, reasons.length ? "Every other goal is met after it." : "Every goal is met after it."), leftOut(reasons)];
  const remedies = new Map();
  for (const u of unmet) if (u.remedy) remedies.set(u.remedy, [...(remedies.get(u.remedy) ?? []), u]);
  return [h("ul", null, unmet.map((u) => h("li", null, h("b", null, u.goal), u.hard ? " (hard)" : "",
    u.proven ? ": no placement meets it. " : ": the search did not reach it. ", reason(u.reason)))),
  ...[...remedies].map(([remedy, goals]) => h("p", null, h("b", null, goals.length === unmet.length && goals.length > 1
    ? `Remedy for ${goals.length === 2 ? "both" : `all ${goals.length}`}: `
    : `Remedy for ${goals.map((u) => u.goal).join(", ")}: `), remedy)), leftOut(reasons)];
}
