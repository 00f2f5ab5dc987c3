// Two proposals side by side.

import { get, part } from "./api.js";
import { fill, h, section, table } from "./dom.js";
import { amount, count, times } from "./words.js";

export const place = "proposals";
export const title = () => "Two proposals";

const FIGURES = [["replica_moves", "Replica moves"], ["leadership_moves", "Leadership transfers"],
  ["disk_moves", "Disk moves"], ["replicas_added", "Replicas added"], ["replicas_removed", "Replicas removed"],
  ["balancedness_after", "Balancedness after"]];

export async function show(body, app, [a, b]) {
  const found = await get(`proposals/compare?a=${part(a)}&b=${part(b)}`);
  const both = [found.a, found.b];
  const heads = [a, b].map((id) => h("a", { href: `#/proposals/${part(id)}` }, id));
  const rows = FIGURES.map(([name, text]) => [text, ...both.map((p) => count(p.summary[name]))]);
  rows.push(["Cost", ...both.map((p) => amount(p.summary.cost, p.summary.cost_unit))]);
  rows.push(["Unmet goals", ...both.map((p) => p.unmet.join(", ") || "none")]);
  const names = [...new Set(both.flatMap((p) => Object.keys(p.columns)))];
  fill(body,
    section("Figures", table("Figures", ["Figure", ...heads], rows)),
    section("Worst broker after it", table("Worst broker of each resource", ["Resource", ...heads.map((x) => x.cloneNode(true))],
      names.map((n) => [n.replaceAll("_", " "), ...both.map((p) => times(p.columns[n]?.after.worst_ratio))]))),
    section("Actions", table("Actions", ["Where", "Actions"], [["in both", count(found.actions_in_both)],
      [`only in ${a}`, count(found.actions_only_in_a)], [`only in ${b}`, count(found.actions_only_in_b)]])));
  return {};
}
