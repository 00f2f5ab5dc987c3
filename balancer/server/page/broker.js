// One broker: what it carries, its disks, its topics and partitions, and what concerns it.

import { get, part } from "./api.js";
import { badge, facts, field, fill, h, latest, section, select, table } from "./dom.js";
import { wrongs } from "./now.js";
import { amount, count, describe, moment, namesBroker, plural, share, times } from "./words.js";

export const place = "now";
export const title = ([id]) => `Broker ${id}`;

// Proposals whose actions with this broker are looked for.
const LAST = 5;

export async function show(body, app, [id]) {
  const query = `broker=${part(id)}`;
  const [load, totals, disks, findings, goals, named, decisions] = await Promise.all([
    get(`cluster/brokers/${part(id)}`), get("cluster"), get(`cluster/disks?${query}`),
    get("findings"), get("goals"), get(`cluster/brokers/${part(id)}/proposals?limit=${LAST}`), get("decisions?detail=false&limit=200"),
  ]);
  const waits = named.filter(({ proposal }) => ["open", "approved", "executing"].includes(proposal.state));
  const first = await Promise.all(waits.slice(0, 3).map(({ proposal }) =>
    get(`proposals/${part(proposal.id)}/actions?${query}&limit=5`)));
  const units = Object.fromEntries(Object.entries(totals.figures).map(([n, t]) => [n, t.unit]));
  const carried = Object.entries(load.figures).map(([name, f]) => [
    name.replaceAll("_", " "), amount(f.amount, units[name]), share(f.of_capacity), times(f.fair_shares)]);
  const topics = h("div"), partitions = h("div");
  const sort = select(Object.keys(units).map((n) => [n, n.replaceAll("_", " ")]), Object.keys(units)[0],
    { onchange: () => app.attempt(most) });

  const most = latest(async () => {
    const name = sort.value, by = `sort=${part(name)}&limit=20&${query}`;
    return [name, await get(`cluster/topics?${by}`), await get(`cluster/partitions?${by}`)];
  }, ([name, ts, ps]) => {
    const unit = units[name];
    fill(topics, table("Topics that carry most here", ["Topic", "Replicas here", name.replaceAll("_", " ")],
      ts.map((t) => [t.topic, count(t.replicas), amount(t.amounts[name], unit)])));
    fill(partitions, table("Partitions that carry most here", ["Partition", "Role here", "Replicas", name.replaceAll("_", " ")],
      ps.map((p) => {
        const leads = String(p.leader) === String(load.broker);
        return [p.partition, leads ? "leader" : "follower", p.replicas.join(", "),
          amount((leads ? p.leader_amounts : p.follower_amounts)[name], unit)];
      })));
  });

  const concerned = findings.filter((f) => namesBroker(`${f.subject} ${f.sentence}`, id));
  const worst = goals.filter((g) => g.where !== null && namesBroker(g.where, id));
  const link = ({ proposal }) => h("a", { href: `#/proposals/${part(proposal.id)}?${query}` }, proposal.id);
  const mentions = decisions.filter((d) => namesBroker(d.reason, id)).slice(0, 10);
  fill(body,
    h("p", null, h("a", { href: "#/now" }, "All brokers")),
    facts([["Rack", load.rack], ["Host", load.host], ["State", badge(load.state)]]),
    section("What is wrong here",
      concerned.length ? wrongs(concerned) : h("p", null, "No finding names this broker."),
      worst.length ? h("p", null, `The worst place of ${worst.map((g) => g.goal).join(", ")}.`) : null),
    section("Load", table("What it carries", ["Resource", "Amount", "Of capacity", "Share"], carried)),
    section("Disks", table("Disks", ["Path", "State", "Used", "Of capacity", "Replicas"],
      disks.map((d) => [d.path, d.state, amount(d.used, "B"), share(d.capacity && d.used !== null ? d.used / d.capacity : null), count(d.replicas)]),
      "None are known.")),
    section("Topics and partitions", h("div", { class: "controls" }, field("Order by", sort)), topics, partitions),
    section("Actions to come",
      waits.length ? waits.map((each, i) => [
        h("p", null, plural(each.actions, "action"), " of proposal ", link(each), " ", badge(each.proposal.state)),
        first[i] ? h("ul", null, first[i].actions.map((a) => h("li", null, describe(a))),
          each.actions > first[i].actions.length ? h("li", null, `and ${count(each.actions - first[i].actions.length)} more`) : null) : null])
        : h("p", { class: "soft" }, "No proposal that waits or is executed has actions with this broker.")),
    section("History",
      table("Earlier proposals with actions here", ["Proposal", "State", "Made", "Actions with this broker"],
        named.filter((each) => !waits.includes(each)).map((each) =>
          [link(each), badge(each.proposal.state), moment(each.proposal.made), count(each.actions)]), `None of the last ${LAST}.`),
      mentions.length
        ? h("ol", { class: "timeline" }, mentions.map((d) => h("li", null, h("time", null, moment(d.time)), " ", badge(d.kind), " ", d.reason)))
        : h("p", { class: "soft" }, "No decision names this broker.")));
  await most();
  return {};
}
