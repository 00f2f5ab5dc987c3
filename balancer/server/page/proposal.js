// One proposal: what it brings and costs, what has changed since, and the decision about it.

import { get, part, post } from "./api.js";
import { badge, facts, field, fill, h, latest, s, section, table } from "./dom.js";
import { columnsTable, goalsTable, unmetList, worsened } from "./tables.js";
import { amount, bytes, count, describe, ended, moment, planned, plural, share, span, times } from "./words.js";

export const place = "proposals";
export const title = ([id]) => `Proposal ${id}`;

const PAGE = 50;
// Brokers whose traffic is shown until all are asked for.
const BUSIEST = 20;

function curve(plan) {
  const points = [{ share: 0, relief: 0 }, ...plan.relief, { share: 1, relief: 1 }];
  const x = (p) => 40 + 250 * p.share, y = (p) => 130 - 110 * Math.max(0, Math.min(1, p.relief));
  const line = points.map((p) => `${x(p).toFixed(1)},${y(p).toFixed(1)}`).join(" ");
  const label = (left, top, text, anchor = "middle") => s("text", { x: left, y: top, "text-anchor": anchor }, text);
  return s("svg", { viewBox: "0 0 300 160", class: "curve", role: "img",
    "aria-label": "Relief by share of the plan's cost; the table has the figures" },
    s("path", { d: "M40 20V130H290", class: "axis" }), s("polyline", { points: line, class: "line" }),
    label(36, 24, "100 %", "end"), label(36, 133, "0 %", "end"), label(40, 146, "0 %"), label(290, 146, "100 %", "end"),
    label(165, 157, "share of the cost"), label(44, 14, "relief", "start"));
}

function relief(plan) {
  if (!plan.relief.length) return h("p", { class: "soft" }, "The plan costs nothing, or states no relief.");
  return [curve(plan), table("Relief against cost", ["Share of the cost", "Actions", "Cost", "Worst broker", "Relief"],
    plan.relief.map((p) => [share(p.share), count(p.actions), amount(p.cost, plan.summary.cost_unit),
      times(p.worst_ratio), share(p.relief)]))];
}

export async function show(body, app, [id], given) {
  const path = `proposals/${part(id)}`;
  const head = h("div"), changed = h("div"), decide = h("div"), time = h("div", { role: "status" });
  let kept = await get(path);
  const [plan, traffic] = await Promise.all([get(`${path}/summary`), get(`${path}/traffic?limit=${BUSIEST}`)]);
  const why = h("input", { type: "text", maxlength: "1000", autocomplete: "off" });
  const throttle = h("input", { type: "text", autocomplete: "off", value: "50 MB/s", oninput: estimate });

  function estimate() {
    const rate = bytes(throttle.value);
    time.textContent = traffic.unit !== "bytes" ? "How long it takes is not known, because sizes are not." : rate
      ? `At least ${span(traffic.busiest / rate)} at ${amount(rate, "B/s")}: the busiest broker copies ${amount(traffic.busiest, traffic.unit)}.`
      : `${throttle.value} found, a rate such as 50 MB/s expected.`;
  }

  const copied = h("div");

  function flows(found) {
    const more = found.brokers.length === BUSIEST;
    fill(copied, h("p", null, `${amount(found.amount, found.unit)} are copied between brokers` +
        (found.between_disks ? `, and ${amount(found.between_disks, found.unit)} between disks of one broker.` : ".")),
      table(more ? `The ${BUSIEST} busiest brokers` : "All brokers that copy, the busiest first",
        ["Broker", "In", "Out", "Copies in", "Copies out"], found.brokers.map((t) => [
          h("a", { href: `#/broker/${part(t.broker)}` }, String(t.broker)), amount(t.received, found.unit),
          amount(t.sent, found.unit), count(t.copies_received), count(t.copies_sent)])),
      more ? app.button("All brokers", "viewer", async () => flows(await get(`${path}/traffic`))) : null);
  }

  function heading() {
    fill(head, h("p", null, badge(kept.state), " ", kept.reason),
      facts([
        ["Does", planned(kept.plan)],
        ["Balancedness", `${count(plan.summary.balancedness_before)} to ${count(plan.summary.balancedness_after)} of 100`],
        ["At least, by any plan", amount(plan.summary.cost_bound, plan.summary.cost_unit)],
        ["Made", `${moment(kept.made)} by ${kept.by}`], ["Expires", moment(kept.expires)],
        ["Approved", `${kept.approvals.length} of ${kept.needed}` +
          (kept.approvals.length ? ` (${kept.approvals.map((a) => a.by + (a.why ? `: ${a.why}` : "")).join("; ")})` : "")],
        ["Rejected", kept.decided ? `by ${kept.decided.by}${kept.decided.why ? `: ${kept.decided.why}` : ""}` : null],
        ["Outcome", kept.outcome ? ended(kept.outcome) : null],
        ["Digest", h("code", null, kept.digest)],
      ]));
    const pending = kept.state === "open" || kept.state === "approved";
    if (decide.dataset.state === kept.state && pending) return;
    decide.dataset.state = kept.state;
    fill(decide, kept.state === "executing"
      ? h("p", null, "It is being executed: ", h("a", { href: "#/execution" }, "watch it"), ".")
      : !pending ? h("p", null, `It is ${kept.state}: there is nothing to decide.`)
      : h("form", { class: "form", onsubmit: (event) => event.preventDefault() }, field("Why", why),
        app.button(`Approve: ${planned(kept.plan)}`, "operator", async () => {
          kept = await post(`${path}/approve`, { digest: kept.digest, why: why.value });
          app.say(`Proposal ${kept.id}: ${kept.state}.`);
          heading();
        }, { class: "main" }),
        app.button("Reject", "operator", async () => {
          kept = await post(`${path}/reject`, { why: why.value });
          app.say(`Proposal ${kept.id}: ${kept.state}.`);
          heading();
        })));
  }

  async function since() {
    if (kept.state !== "open" && kept.state !== "approved") {
      fill(changed);
      return;
    }
    const found = await get(`${path}/changes`);
    fill(changed, found.length
      ? h("div", { class: "error" }, h("p", null, "The cluster has changed since; this plan would not be executed. Propose again."),
        h("ul", null, found.slice(0, 20).map((text) => h("li", null, text))),
        found.length > 20 ? h("p", null, `and ${count(found.length - 20)} more.`) : null)
      : h("p", { class: "soft" }, "Nothing that matters to it has changed in the cluster since it was made."));
  }

  const rows = h("div"), broker = h("input", { type: "text", autocomplete: "off", value: given.get("broker") ?? "" });
  const topic = h("input", { type: "text", autocomplete: "off" });
  let offset = 0;

  const actions = latest(async () => {
    let query = `offset=${offset}&limit=${PAGE}`;
    if (broker.value.trim()) query += `&broker=${part(broker.value.trim())}`;
    if (topic.value.trim()) query += `&topic=${part(topic.value.trim())}`;
    return get(`${path}/actions?${query}`);
  }, (found) => {
    offset = found.offset;
    const last = Math.min(offset + PAGE, found.total);
    const turn = (to) => () => app.attempt(async () => { offset = to; await actions(); });
    fill(rows, h("p", { role: "status" }, found.total ? `${count(offset + 1)} to ${count(last)} of ${plural(found.total, "action")}` : "No action matches."),
      table("Actions, in order", ["Action", "Cost", "Helps", "Hurts"], found.actions.map((a) => [describe(a),
        amount(a.cost, plan.summary.cost_unit), Object.keys(a.helped).join(", "), Object.keys(a.hurt).join(", ")])),
      h("div", { class: "controls" },
        h("button", { type: "button", disabled: offset === 0, onclick: turn(Math.max(0, offset - PAGE)) }, "Earlier actions"),
        h("button", { type: "button", disabled: last >= found.total, onclick: turn(offset + PAGE) }, "Later actions")));
  });

  const search = h("form", { class: "controls", onsubmit: (event) => {
    event.preventDefault();
    offset = 0;
    app.attempt(actions);
  } }, field("Broker", broker, "a whole id"), field("Topic", topic, "a whole name"), h("button", { type: "submit" }, "Show"));

  const worse = worsened(plan.goal_results);
  fill(body, head, changed,
    section("Decide", decide),
    section("Before and after", columnsTable(plan.columns), goalsTable(plan.goal_results)),
    section("What gets worse", worse.length
      ? h("ul", null, worse.map((g) => h("li", null, `${g.goal}: contentment ${share(g.contentment_before)} to ` +
        `${share(g.contentment_after)}, not content ${count(g.unmet_cells_before)} to ${count(g.unmet_cells_after)}`)))
      : h("p", null, "No goal as a whole.")),
    section("What stays unmet", unmetList(plan.unmet, Object.values(plan.goals_left_out)), plan.remedy ? h("p", null, plan.remedy.text) : null,
      plan.warnings.length ? h("ul", null, plan.warnings.map((w) => h("li", null, w))) : null),
    section("Relief against cost", relief(plan)),
    section("Time and traffic", h("div", { class: "controls" }, field("Throttle of each broker", throttle)), time, copied),
    section("Actions", search, rows),
    h("p", null, h("a", { href: `api/v1/${path}/plan`, download: `plan-${id}.json` }, "Download the plan")));
  heading();
  estimate();
  flows(traffic);
  await Promise.all([since(), actions()]);
  return { update: async (kinds) => {
    if (kinds.has("proposal")) kept = await get(path);
    heading();
    // progress of an execution changes nothing here
    if (kinds.has("proposal") || kinds.has("decision")) await since();
  } };
}
