// Proposals: those that are kept, by state; ask for one; compare two.

import { get, part, post } from "./api.js";
import { badge, field, fill, h, latest, section, select, table } from "./dom.js";
import { made } from "./job.js";
import { planFields } from "./request.js";
import { amount, count, moment, planned } from "./words.js";

export const place = "proposals";
export const title = () => "Proposals";

const STATES = ["open", "approved", "executing", "executed", "failed", "stale", "interrupted",
  "rejected", "expired", "superseded", "empty"];

export async function show(body, app) {
  const list = h("div"), said = h("p", { role: "status" });
  const state = select([["", "all"], ...STATES], "", { onchange: () => app.attempt(load) });
  const a = h("select"), b = h("select"), pair = h("div");
  const asked = await planFields();
  const reason = h("input", { type: "text", maxlength: "1000", autocomplete: "off" });

  const load = latest(() => get(`proposals?limit=100${state.value ? `&state=${state.value}` : ""}`), (found) => {
    fill(list, table("Proposals, the newest first",
      ["Proposal", "State", "Made", "By", "Operation", "What it does", "Balancedness"],
      found.map((p) => [h("a", { href: `#/proposals/${p.id}` }, p.id), badge(p.state), moment(p.made), p.by,
        p.plan.operation.kind.replaceAll("_", " "), planned(p.plan),
        `${count(p.plan.balancedness_before)} to ${count(p.plan.balancedness_after)}`])));
    for (const [menu, at] of [[a, 0], [b, 1]]) {
      const chosen = menu.value;
      fill(menu, found.map((p) => h("option", { value: p.id },
        `${p.id}, ${p.plan.operation.kind.replaceAll("_", " ")}, ${amount(p.plan.cost, p.plan.cost_unit)}`)));
      menu.value = found.some((p) => p.id === chosen) ? chosen : (found[Math.min(at, found.length - 1)]?.id ?? "");
    }
    pair.hidden = found.length < 2;
  });

  fill(pair, h("div", { class: "form" }, field("One", a), field("The other", b),
    h("button", { type: "button", onclick: () => app.go(`#/compare/${part(a.value)}/${part(b.value)}`) }, "Compare")));
  fill(body,
    section("Kept", h("div", { class: "controls" }, field("State", state)), list),
    section("Ask for a proposal",
      h("form", { class: "form", onsubmit: (event) => event.preventDefault() },
        asked.nodes, field("Why", reason),
        app.button("Propose", "operator", async () => {
          const job = await post("proposals", { ...asked.read(), reason: reason.value });
          const done = await made(app, said, job);
          // a reader who has gone to another view stays there
          if (said.isConnected) app.go(`#/proposals/${done.proposal}`);
          else app.say(`Proposal ${done.proposal} is made.`);
        }, { class: "main" })), said),
    section("Compare two", h("p", { class: "soft" }, "Two proposals that are kept, side by side; it takes two."), pair));
  await load();
  return { update: (kinds) => (kinds.has("proposal") ? load() : null) };
}
