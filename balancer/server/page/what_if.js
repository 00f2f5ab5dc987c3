// What if: a plan for a cluster that differs from this one; nothing is executed.

import { post } from "./api.js";
import { facts, field, fill, h, section } from "./dom.js";
import { made } from "./job.js";
import { planFields } from "./request.js";
import { columnsTable, goalsTable, unmetList } from "./tables.js";
import { count, ids, listed, planned } from "./words.js";

export const place = "what-if";
export const title = () => "What if";

export async function show(body, app) {
  const add = h("input", { type: "number", min: "0", max: "1000", value: "0", required: true });
  const brokers = h("input", { type: "text", autocomplete: "off" });
  const racks = h("input", { type: "text", autocomplete: "off" });
  const load = h("input", { type: "number", min: "0.01", max: "1000", step: "any", value: "1", required: true });
  const said = h("p", { role: "status" }), result = h("div");
  const asked = await planFields();

  async function ask() {
    fill(result);
    const hypothesis = { add_brokers: Number(add.value), lose_brokers: ids(brokers.value),
      lose_racks: listed(racks.value), scale_load: Number(load.value) };
    const job = await post("what-if", { ...asked.read(), hypothesis, brokers: false });
    const found = (await made(app, said, job)).result;
    said.textContent = `The cluster ${found.cluster}.`;
    fill(result, section("Result", h("p", null, found.verdict),
      facts([["Does", planned(found.plan)],
        ["Balancedness", `${count(found.plan.balancedness_before)} to ${count(found.plan.balancedness_after)} of 100`]]),
      columnsTable(found.columns), goalsTable(found.goals)),
      section("What stays unmet", unmetList(found.unmet, Object.values(found.goals_left_out))));
  }

  fill(body, h("p", null, "Plans for a cluster that differs from this one. Nothing is executed."),
    h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); app.attempt(ask, event.submitter); } },
      field("Add brokers", add), field("Lose brokers", brokers, "ids, separated by commas"),
      field("Lose racks", racks, "names, separated by commas"), field("Times the load", load), asked.nodes,
      h("button", { type: "submit", class: "main" }, "Try")), said, result);
  return {};
}
