// The page: which view is shown, who looks at it, and the events that keep it current.

import { get } from "./api.js";
import { fill, h, plain } from "./dom.js";
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
// Milliseconds: events come in bursts, and a view is brought up to date once in this time; a view
// that takes longer says that it is being read; a refused connection is tried again after this
// time, and each time after twice as long: a refusal of credentials counts against the address.
const SETTLE = 400, SLOW = 500, AGAIN = 5_000, SELDOM = 60_000;

const main = document.getElementById("main");
let view = null;
let state = null;
let source = null;
let retry = null;
let pause = AGAIN;
let shows = 0;
let version = null;
const busy = new WeakSet();

const app = {
  get state() { return state; },
  may: (role) => ROLES.indexOf(state.you.role) >= ROLES.indexOf(role),
  say(text) { document.getElementById("said").textContent = plain(text); },
  // A button that is disabled, with the reason beside it, where the role does not allow it.
  button(label, role, act, properties = {}) {
    const allowed = app.may(role);
    const node = h("button", { type: "button", disabled: !allowed, ...properties,
      onclick: () => app.attempt(act, node) }, label);
    if (allowed) return node;
    return h("span", { class: "denied" }, node,
      h("span", { class: "hint" }, `needs the role ${role}; ${state.you.name} is ${state.you.role}`));
  },
  // Does something once, and says why if it cannot be done. What is busy is not disabled: it
  // would lose the focus.
  async attempt(act, node) {
    if (node && (busy.has(node) || node.form && !node.form.reportValidity())) return;
    const turn = shows;
    if (node) {
      busy.add(node);
      node.setAttribute("aria-disabled", "true");
    }
    document.querySelector("main > .error")?.remove();
    try {
      await act();
    } catch (error) {
      if (turn === shows) app.fail(error);
      else app.say(sentence(error.message));
    } finally {
      if (node) {
        busy.delete(node);
        node.removeAttribute("aria-disabled");
      }
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

// A part of the address as it is meant; as it stands where it cannot be read.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", ...rest] = path.split("/").map(decoded);
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
  document.title = plain(`${title} · Counterpoise`);
  const heading = h("h1", { tabindex: "-1" }, title);
  const body = h("div", { class: "view" });
  const reads = h("p", { class: "soft", role: "status" });
  const slow = setTimeout(() => fill(reads, "Reading from the server …"), SLOW);
  fill(main, heading, reads, body);
  for (const link of document.querySelectorAll("nav a")) {
    if (module && link.hash === `#/${module.place}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!first) heading.focus();
  try {
    state = await get("state");
    fill(document.getElementById("who"), `${state.you.name} (${state.you.role})`);
    checkVersion();
    const shown = module ? await module.show(body, app, rest, given) : {};
    if (turn === shows) view = shown;
  } catch (error) {
    if (turn === shows) {
      fill(body);
      app.fail(error);
    }
  } finally {
    clearTimeout(slow);
    reads.remove();
    if (turn === shows) {
      main.removeAttribute("aria-busy");
      document.body.dataset.ready = "yes";
    }
  }
}

// The page's files are those of the server that it was loaded from.
function checkVersion() {
  version ??= state.version;
  const notice = document.getElementById("version");
  notice.hidden = version === state.version;
  if (!notice.hidden)
    fill(notice, `This page is from version ${version} of the server, which now has ${state.version}. `,
      h("button", { type: "button", onclick: () => location.reload() }, "Load the page again"));
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
    if (view === null) {
      // It could not be shown: before the cluster was read, or while the server was away.
      if (!main.hasAttribute("aria-busy") && kinds.has("decision")) await show(true);
      return;
    }
    const turn = shows;
    try {
      await view.update?.(kinds);
      main.querySelector(".error.passing")?.remove();
    } catch (error) {
      if (turn !== shows) return;
      app.fail(error);
      main.querySelector(":scope > .error").classList.add("passing");
    }
  }, SETTLE);
}

async function again() {
  try {
    state = await get("state");
    checkVersion();
  } catch {
    // the view says what is wrong
  }
  happened("decision", null);
}

function follow() {
  const connection = document.getElementById("connection");
  clearTimeout(retry);
  source?.close();
  const own = new EventSource("api/v1/events");
  source = own;
  for (const kind of ["decision", "proposal", "execution"])
    own.addEventListener(kind, (event) => happened(kind, JSON.parse(event.data)));
  own.addEventListener("open", () => {
    const lost = connection.textContent !== "";
    connection.textContent = "";
    pause = AGAIN;
    if (lost || view === null) again();
  });
  own.addEventListener("error", () => {
    connection.textContent = "The connection to the server is lost; what is shown may be old.";
    // After a refusal the browser does not try again by itself.
    if (own.readyState !== EventSource.CLOSED || own !== source || document.hidden) return;
    retry = setTimeout(follow, pause);
    pause = Math.min(2 * pause, SELDOM);
  });
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show());
document.addEventListener("visibilitychange", () => {
  clearTimeout(retry);
  source?.close();
  if (document.hidden) return;
  follow();
  again();
});
await show(true);
follow();
