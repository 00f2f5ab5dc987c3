// Decisions: what the controller did in each round, and why.

import { get } from "./api.js";
import { badge, fill, h } from "./dom.js";
import { moment, plural } from "./words.js";

export const place = "decisions";
export const title = () => "Decisions";

const PAGE = 50;

// Rounds that only look, wait or watch: those after each other that decide the same are one entry.
const QUIET = new Set(["balanced", "trivial", "waiting", "cooling", "stale", "reported", "unfixable", "nothing_helps",
  "insufficient_gain", "executing", "standby"]);

const when = (decision) => h("time", { datetime: new Date(decision.time * 1000).toISOString() }, moment(decision.time));

const said = (decision) => [when(decision), " ", badge(decision.kind), " ", decision.reason,
  decision.cause ? h("span", { class: "soft" }, ` (${decision.cause})`) : null];

const alike = (a, b) => QUIET.has(a.kind) && a.kind === b.kind && a.cause === b.cause;

// Decisions, the newest first, in runs of those that are alike.
function runs(decisions) {
  const found = [];
  for (const decision of decisions) {
    if (found.length && alike(found.at(-1)[0], decision)) found.at(-1).push(decision);
    else found.push([decision]);
  }
  return found;
}

// The entry of a run. It keeps its elements while newer rounds are added: the focus, and what is open.
function entry() {
  const head = h("div"), summary = h("summary"), rest = h("ol", { class: "timeline" });
  const more = h("details", null, summary, rest);
  const item = h("li", null, head, more);
  let shown = 0;
  return { item, show: ([newest, ...others]) => {
    if (shown === others.length + 1) return;
    shown = others.length + 1;
    fill(head, said(newest));
    more.hidden = !others.length;
    if (!others.length) return;
    fill(summary, `and ${plural(others.length, "round")} like it since ${moment(others.at(-1).time)}`);
    fill(rest, others.map((d) => h("li", null, said(d))));
  } };
}

export async function show(body, app) {
  const list = h("ol", { class: "timeline" });
  let oldest = null, newest = 0, decisions = [], entries = new Map();

  function draw() {
    const drawn = new Map();
    let place = 0;
    for (const run of runs(decisions)) {
      const first = run.at(-1).time;
      const found = entries.get(first) ?? entry();
      found.show(run);
      drawn.set(first, found);
      if (list.children[place] !== found.item) list.insertBefore(found.item, list.children[place] ?? null);
      place += 1;
    }
    while (list.children.length > place) list.lastElementChild.remove();
    entries = drawn;
  }

  const older = h("button", { type: "button", onclick: () => app.attempt(async () => {
    const found = await get(`decisions?detail=false&limit=${PAGE}&before=${oldest}`);
    decisions.push(...found);
    draw();
    if (found.length) oldest = found.at(-1).time;
    older.hidden = found.length < PAGE;
    app.say(`${found.length} older decisions shown.`);
  }) }, "Older decisions");

  async function update() {
    const found = (await get(`decisions?detail=false&limit=${PAGE}`)).filter((d) => d.time > newest);
    if (!found.length) return;
    newest = found[0].time;
    if (found.length === PAGE) {
      // there may be others between these and the ones that are shown
      oldest = null;
      decisions = [];
      older.hidden = false;
    }
    oldest ??= found.at(-1).time;
    decisions.unshift(...found);
    draw();
  }

  fill(body, list, older);
  await update();
  older.hidden = decisions.length < PAGE;
  return { update: (kinds) => (kinds.has("decision") ? update() : null) };
}
