// The page: which view is shown, who looks at it, and the events that keep it current.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import * as broker from "./broker.js";
import * as compare from "./compare.js";
import * as decisions from "./decisions.js";
import * as execution from "./execution.js";
import * as now from "./now.js";
import * as proposal from "./proposal.js";
import * as proposals from "./proposals.js";
import * as whatIf from "./what_if.js";
import * as whyNot from "./why_not.js";

const ROLES = ["viewer", "operator", "admin"];
// Events come in bursts; a view is brought up to date once in this many milliseconds.
const SETTLE = 400;

const main = document.getElementById("main");
let view = null;
let state = null;
let source = null;
let shows = 0;

const app = {
  get state() { return state; },
  may: (role) => ROLES.indexOf(state.you.role) >= ROLES.indexOf(role),
  say(text) { document.getElementById("said").textContent = text; },
  // A button that is disabled, with the reason beside it, where the role does not allow it.
  button(label, role, act, properties = {}) {
    const allowed = app.may(role);
    const node = h("button", { type: "button", disabled: !allowed, ...properties,
      onclick: () => app.attempt(act, node) }, label);
    if (allowed) return node;
    return h("span", { class: "denied" }, node,
      h("span", { class: "hint" }, `needs the role ${role}; ${state.you.name} is ${state.you.role}`));
  },
  // Does something once, and says why if it cannot be done.
  async attempt(act, node) {
    if (node) node.disabled = true;
    try {
      await act();
    } catch (error) {
      app.fail(error);
    } finally {
      if (node) node.disabled = false;
    }
  },
  fail(error) {
    document.querySelector("main > .error")?.remove();
    const said = h("p", { class: "error", role: "alert" }, sentence(error.message));
    main.querySelector("h1").after(said);
    said.scrollIntoView({ block: "nearest" });
  },
  go(hash) { location.hash = hash; },
};

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", ...rest] = path.split("/").map(decodeURIComponent);
  const given = new URLSearchParams(query ?? "");
  switch (name) {
    case "": case "now": return [now, [], given];
    case "broker": return [broker, rest, given];
    case "proposals": return rest.length ? [proposal, rest, given] : [proposals, [], given];
    case "compare": return [compare, rest, given];
    case "execution": return [execution, [], given];
    case "decisions": return [decisions, [], given];
    case "what-if": return [whatIf, [], given];
    case "why-not": return [whyNot, [], given];
    default: return [null, [], given];
  }
}

async function show(first = false) {
  const [module, rest, given] = route();
  const turn = ++shows;
  view = null;
  main.setAttribute("aria-busy", "true");
  document.body.dataset.ready = "no";
  app.say("");
  const title = module ? module.title(rest) : "No such view";
  document.title = `${title} · Counterpoise`;
  const heading = h("h1", { tabindex: "-1" }, title);
  const body = h("div", { class: "view" });
  fill(main, heading, body);
  for (const link of document.querySelectorAll("nav a")) {
    if (module && link.hash === `#/${module.place}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!first) heading.focus();
  try {
    state = await get("state");
    fill(document.getElementById("who"), `${state.you.name} (${state.you.role})`);
    const shown = module ? await module.show(body, app, rest, given) : null;
    if (turn === shows) view = shown;
  } catch (error) {
    if (turn === shows) app.fail(error);
  } finally {
    if (turn === shows) {
      main.removeAttribute("aria-busy");
      document.body.dataset.ready = "yes";
    }
  }
}

let pending = new Set();
let timer = null;

function happened(kind, data) {
  if (kind === "execution") view?.progress?.(data);
  pending.add(kind);
  timer ??= setTimeout(async () => {
    const kinds = pending;
    pending = new Set();
    timer = null;
    try {
      await view?.update?.(kinds);
      main.querySelector(".error.passing")?.remove();
    } catch (error) {
      app.fail(error);
      main.querySelector(":scope > .error").classList.add("passing");
    }
  }, SETTLE);
}

function follow() {
  const connection = document.getElementById("connection");
  source = new EventSource("api/v1/events");
  for (const kind of ["decision", "proposal", "execution"])
    source.addEventListener(kind, (event) => happened(kind, JSON.parse(event.data)));
  source.addEventListener("open", () => {
    const again = connection.textContent !== "";
    connection.textContent = "";
    if (again) happened("decision", null);
  });
  source.addEventListener("error", () => {
    connection.textContent = "The connection to the server is lost; what is shown may be old.";
    // After a refusal the browser does not try again by itself.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => document.hidden || follow(), 5000);
  });
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show());
document.addEventListener("visibilitychange", () => {
  source?.close();
  if (document.hidden) return;
  follow();
  happened("decision", null);
});
await show(true);
follow();
