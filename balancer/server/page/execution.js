// Execution: how far it is, live; pause, resume, other limits, stop; hold and release the controller.

import { get, patch, post } from "./api.js";
import { badge, facts, field, fill, h, section } from "./dom.js";
import { amount, ago, bytes, count, ended, span } from "./words.js";

export const place = "execution";
export const title = () => "Execution";

const LIMITS = [["throttle", "Throttle of each broker", "such as 50 MB/s"],
  ["concurrent_moves_per_broker", "Moves at once per broker"], ["concurrent_moves", "Moves at once"],
  ["leadership_batch", "Leadership transfers at once"]];

export async function show(body, app) {
  const live = h("div"), steer = h("div"), last = h("div", { role: "status" }), controller = h("div");
  const bar = h("progress", { max: "1", value: 0, "aria-label": "Share of the bytes that has been copied" });
  const why = h("input", { type: "text", maxlength: "1000", autocomplete: "off" });
  const inputs = Object.fromEntries(LIMITS.map(([name]) => [name, h("input", { type: "text", autocomplete: "off" })]));
  let drawn = null;

  function progress(work) {
    if (work === null) {
      fill(live, h("p", null, "No execution is in progress."));
    } else {
      const p = work.progress;
      bar.value = p === null ? 0 : p.bytes ? p.bytes_moved / p.bytes : p.tasks ? p.tasks_ended / p.tasks : 0;
      fill(live, h("p", null, badge(work.paused ? "paused" : "running"), " ",
        work.proposal ? ["Proposal ", h("a", { href: `#/proposals/${work.proposal}` }, work.proposal)] : work.cause,
        `, since ${ago(work.since)}.`), bar,
        p === null ? h("p", null, "It starts.") : facts([
          ["Tasks", `${count(p.tasks_ended)} of ${count(p.tasks)} ended, ${count(p.tasks_running)} running` +
            (p.tasks_failed ? `, ${count(p.tasks_failed)} failed` : "")],
          ["Waiting", p.tasks_waiting ? `${count(p.tasks_waiting)} for ${p.waits_for}` : null],
          ["Copied", p.bytes === null ? null : `${amount(p.bytes_moved, "B")} of ${amount(p.bytes, "B")}`],
          ["Rate", p.bytes_per_second === null ? null : amount(p.bytes_per_second, "B/s")],
          ["Remaining time", span(p.seconds_left)]]));
    }
    const form = work === null ? "none" : `${work.proposal} ${work.paused} ${JSON.stringify(work.limits)}`;
    if (form === drawn) return;
    drawn = form;
    if (work === null) {
      fill(steer);
      return;
    }
    for (const [name] of LIMITS) {
      const value = work.limits[name];
      inputs[name].value = value === null ? "" : name === "throttle" ? amount(value, "B/s") : String(value);
    }
    fill(steer, section("Steer",
      h("form", { class: "form", onsubmit: (event) => event.preventDefault() }, field("Why", why),
        work.paused ? app.button("Resume", "operator", () => act("resume")) : app.button("Pause", "operator", () => act("pause")),
        app.button("Stop", "operator", () => act("stop"), { class: "danger" })),
      h("p", { class: "soft" }, "Pause: no further move starts. Stop: running moves are cancelled, too."),
      h("form", { class: "form", onsubmit: (event) => event.preventDefault() },
        LIMITS.map(([name, label, hint]) => field(label, inputs[name], hint)),
        app.button("Change limits", "operator", async () => {
          progress(await patch("execution/limits", changes(work.limits)));
          app.say("Limits changed.");
        }))));
  }

  function changes(before) {
    const found = { why: why.value };
    for (const [name, label] of LIMITS) {
      const text = inputs[name].value.trim();
      if (!text) continue;
      const value = name === "throttle" ? bytes(text) : /^\d+$/.test(text) ? Number(text) : null;
      if (value === null) throw new Error(`${label.toLowerCase()}: ${text} found, ${name === "throttle" ? "a rate such as 50 MB/s" : "a whole number"} expected`);
      const shown = name === "throttle" && before[name] !== null && text === amount(before[name], "B/s");
      if (!shown && value !== before[name]) found[name] = value;
    }
    return found;
  }

  async function act(what) {
    progress(await post(`execution/${what}`, { why: why.value }));
    app.say({ pause: "Paused.", resume: "Resumed.", stop: "Asked to stop." }[what]);
  }

  async function update() {
    const [work, state, recent] = await Promise.all([get("execution"), get("state"),
      get("proposals?limit=20")]);
    progress(work);
    const before = recent.find((p) => p.outcome !== null);
    const shown = before ? `${before.id} ${before.state} ${ended(before.outcome)}` : "";
    // filled again, it would be read out again
    if (shown !== last.dataset.shown) fill(last, before ? h("p", null, "Last: proposal ", h("a", { href: `#/proposals/${before.id}` }, before.id), " ", badge(before.state), " ",
      `${ended(before.outcome)}.`) : null);
    last.dataset.shown = shown;
    const holds = state.held ? ["release", "Release the controller"] : ["hold", "Hold the controller"];
    // who did not hold it needs the role admin to release it
    const others = state.held && state.held_by.some((name) => name !== state.you.name);
    fill(controller, h("p", null, state.held ? "It is on hold: it starts nothing until it is released."
      : !state.execute ? "It only proposes now: it does not execute plans."
      : state.acting ? "It acts: it executes what is approved." : "Another controller has the vote and acts."),
      app.button(holds[1], others ? "admin" : "operator", async () => {
        await post(`controller/${holds[0]}`, { why: why.value });
        await update();
      }));
  }

  fill(body, h("div", { "aria-live": "off" }, live), last, steer, section("Controller", controller));
  await update();
  return { progress, update: (kinds) => (kinds.has("proposal") || kinds.has("execution") || kinds.has("decision") ? update() : null) };
}
