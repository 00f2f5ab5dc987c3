// One broker: what it carries, its disks, its topics and partitions, and what concerns it.

import { get, part } from "./api.js";
import { badge, facts, field, fill, h, section, select, table } from "./dom.js";
import { wrongs } from "./now.js";
import { amount, count, moment, namesBroker, share, times } from "./words.js";

export const place = "now";
export const title = ([id]) => `Broker ${id}`;

export async function show(body, app, [id]) {
  const query = `broker=${part(id)}`;
  const [load, totals, disks, findings, goals, proposals, decisions] = await Promise.all([
    get(`cluster/brokers/${part(id)}`), get("cluster"), get(`cluster/disks?${query}`),
    get("findings"), get("goals"), get("proposals?state=open&limit=5"), get("decisions?detail=false&limit=200"),
  ]);
  const waiting = await Promise.all(proposals.map(async (p) =>
    [p, (await get(`proposals/${p.id}/actions?${query}&limit=1`)).total]));
  const units = Object.fromEntries(Object.entries(totals.figures).map(([n, t]) => [n, t.unit]));
  const carried = Object.entries(load.figures).map(([name, f]) => [
    name.replaceAll("_", " "), amount(f.amount, units[name]), share(f.of_capacity), times(f.fair_shares)]);
  const topics = h("div"), partitions = h("div");
  const sort = select(Object.keys(units).map((n) => [n, n.replaceAll("_", " ")]), Object.keys(units)[0],
    { onchange: () => app.attempt(most) });

  async function most() {
    const by = `sort=${part(sort.value)}&limit=20&${query}`;
    const [ts, ps] = await Promise.all([get(`cluster/topics?${by}`), get(`cluster/partitions?${by}`)]);
    const unit = units[sort.value];
    fill(topics, table("Topics that carry most here", ["Topic", "Replicas here", sort.value.replaceAll("_", " ")],
      ts.map((t) => [t.topic, count(t.replicas), amount(t.amounts[sort.value], unit)])));
    fill(partitions, table("Partitions that carry most here", ["Partition", "Leader", "Replicas", "As leader", "As follower"],
      ps.map((p) => [p.partition, String(p.leader ?? "none"), p.replicas.join(", "),
        amount(p.leader_amounts[sort.value] ?? null, unit), amount(p.follower_amounts[sort.value] ?? null, unit)])));
  }

  const concerned = findings.filter((f) => namesBroker(`${f.subject} ${f.sentence}`, id));
  const worst = goals.filter((g) => g.where !== null && namesBroker(g.where, id));
  const history = decisions.filter((d) => namesBroker(d.reason, id)).slice(0, 10);
  fill(body,
    h("p", null, h("a", { href: "#/now" }, "All brokers")),
    facts([["Rack", load.rack], ["Host", load.host], ["State", badge(load.state)]]),
    section("What is wrong here",
      concerned.length ? wrongs(concerned) : h("p", null, "No finding names this broker."),
      worst.length ? h("p", null, `The worst place of ${worst.map((g) => g.goal).join(", ")}.`) : null),
    section("Load", table("What it carries", ["Resource", "Amount", "Of capacity", "Share"], carried)),
    section("Disks", table("Disks", ["Path", "State", "Used", "Of capacity", "Replicas"],
      disks.map((d) => [d.path, d.state, amount(d.used, "B"), share(d.capacity ? d.used / d.capacity : null), count(d.replicas)]),
      "None are known.")),
    section("Topics and partitions", h("div", { class: "controls" }, field("Order by", sort)), topics, partitions),
    section("Actions that wait for approval", table("Actions that wait for approval", ["Proposal", "Actions with this broker"],
      waiting.filter(([, n]) => n).map(([p, n]) =>
        [h("a", { href: `#/proposals/${p.id}?${query}` }, p.id), count(n)]))),
    section("History", history.length
      ? h("ol", { class: "timeline" }, history.map((d) => h("li", null, h("time", null, moment(d.time)), " ", badge(d.kind), " ", d.reason)))
      : h("p", { class: "soft" }, "No decision names this broker.")));
  await most();
  return {};
}
