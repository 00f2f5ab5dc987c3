// The part of a form that states a plan to make: operation, goals, limits.

import { get } from "./api.js";
import { field, h, select } from "./dom.js";
import { bytes, ids, listed } from "./words.js";

export async function planFields() {
  const [operations, profiles] = await Promise.all([get("operations"), get("profiles")]);
  const kind = select(operations.map((n) => [n, n.replaceAll("_", " ")]), "rebalance", { onchange: fit });
  const brokers = h("input", { type: "text", autocomplete: "off" });
  const topics = h("input", { type: "text", autocomplete: "off", value: ".*" });
  const factor = h("input", { type: "number", min: "1", value: "3" });
  const profile = select([["", "those of the controller"], ...profiles], "");
  const only = h("input", { type: "text", autocomplete: "off" });
  const moves = h("input", { type: "number", min: "0" });
  const size = h("input", { type: "text", autocomplete: "off" });
  const seconds = h("input", { type: "number", min: "1" });
  const ofBrokers = field("Brokers", brokers, "ids, separated by commas");
  const ofTopics = field("Topics", topics, "a regular expression");
  const ofFactor = field("Replicas of each partition", factor);

  function fit() {
    const counts = kind.value === "change_replication_factor";
    ofBrokers.hidden = !/_brokers$/.test(kind.value);
    ofTopics.hidden = ofFactor.hidden = !counts;
  }
  fit();

  return {
    nodes: [field("Operation", kind), ofBrokers, ofTopics, ofFactor, field("Goals", profile),
      h("details", null, h("summary", null, "Limits and single goals"),
        h("div", { class: "form" },
          field("At most moves", moves), field("At most bytes", size, "such as 500 GB"),
          field("Seconds to search", seconds), field("Only these goals", only, "names, separated by commas")))],
    read() {
      const operation = { kind: kind.value };
      if (!ofBrokers.hidden) operation.brokers = ids(brokers.value);
      if (!ofTopics.hidden) operation.replication_factor = { [topics.value]: Number(factor.value) };
      const budget = {};
      if (moves.value) budget.moves = Number(moves.value);
      if (seconds.value) budget.seconds = Number(seconds.value);
      if (size.value.trim()) {
        budget.bytes = bytes(size.value);
        if (budget.bytes === null) throw new Error(`at most bytes: ${size.value} found, an amount such as 500 GB expected`);
      }
      const request = { operation, budget };
      if (profile.value) request.goals = profile.value;
      if (only.value.trim()) request.only = listed(only.value);
      return request;
    },
  };
}
