// Why not there: what keeps a partition from a broker, by the scores of each goal.

import { get, post } from "./api.js";
import { field, fill, h, section, select, table } from "./dom.js";
import { made } from "./job.js";
import { amount, ids, share } from "./words.js";

export const place = "why-not";
export const title = () => "Why not there";

const EFFECTS = { helps: "better", stops: "stops it", worse: "worse", none: "no change" };

function answer(found) {
  return section(`${found.action.charAt(0).toUpperCase()}${found.action.slice(1)}`, h("p", null, found.verdict),
    h("p", { class: "soft" }, `It would cost ${amount(found.cost, found.cost_unit)}.`),
    table("Effect on each goal", ["Goal", "Kind", "Effect", "Contentment"],
      found.goals.filter((g) => g.effect !== "none").map((g) => [g.goal, g.hard ? "hard" : `tier ${g.tier}`, EFFECTS[g.effect],
        `${share(g.before)} to ${share(g.after)}`])));
}

export async function show(body, app) {
  const partition = h("input", { type: "text", required: true, autocomplete: "off" });
  const broker = h("input", { type: "text", required: true, autocomplete: "off" });
  const kept = (await get("proposals?limit=20")).filter((p) => p.cause === "request");
  const proposal = select([["", "a rebalance that is planned now"], ...kept.map((p) => p.id)], "");
  const said = h("p", { role: "status" }), result = h("div");

  async function ask() {
    fill(result);
    const [id] = ids(broker.value);
    if (!partition.value.trim() || id === undefined) throw new Error("a partition and the id of a broker are expected");
    const job = await post("why-not", { partition: partition.value.trim(), broker: id,
      proposal: proposal.value || null });
    const done = await made(app, said, job);
    fill(result, done.result.answers.map(answer));
    app.say("Answered.");
  }

  fill(body, h("p", null, "Why is a partition not on a broker at the end of a plan?"),
    h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); app.attempt(ask, event.submitter); } },
      field("Partition", partition, "such as orders-3"), field("Broker", broker, "its id"), field("At the end of", proposal),
      h("button", { type: "submit", class: "main" }, "Ask")), said, result);
  return {};
}
