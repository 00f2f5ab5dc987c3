// Decisions: what the controller did in each round, and why.

import { get } from "./api.js";
import { badge, fill, h } from "./dom.js";
import { moment } from "./words.js";

export const place = "decisions";
export const title = () => "Decisions";

const PAGE = 50;

function row(decision) {
  return h("li", null, h("time", { datetime: new Date(decision.time * 1000).toISOString() }, moment(decision.time)), " ",
    badge(decision.kind), " ", decision.reason, decision.cause ? h("span", { class: "soft" }, ` (${decision.cause})`) : null);
}

export async function show(body, app) {
  const list = h("ol", { class: "timeline" });
  let oldest = null, newest = 0;
  const older = h("button", { type: "button", onclick: () => app.attempt(async () => {
    const found = await get(`decisions?detail=false&limit=${PAGE}&before=${oldest}`);
    list.append(...found.map(row));
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
      fill(list);
      older.hidden = false;
    }
    oldest ??= found.at(-1).time;
    list.prepend(...found.map(row));
  }

  fill(body, list, older);
  await update();
  older.hidden = list.children.length < PAGE;
  return { update: (kinds) => (kinds.has("decision") ? update() : null) };
}
