// Figures, times and names as people read them.

import { serverTime } from "./api.js";

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 3 });
const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];

export const count = (number) => whole.format(number);

export function scaled(number, unit) {
  let at = 0;
  while (Math.abs(number) >= 999.5 && at < PREFIXES.length - 1) {
    number /= 1000;
    at += 1;
  }
  return `${short.format(number)} ${PREFIXES[at]}${unit}`;
}

export function amount(number, unit) {
  if (number === null || number === undefined) return "–";
  if (unit === "bytes") return scaled(number, "B");
  if (unit === "B" || unit === "B/s") return scaled(number, unit);
  if (unit === "#") return count(number);
  return `${short.format(number)} ${unit}`;
}

export const share = (number) =>
  number === null || number === undefined ? "–" : `${short.format(100 * number)} %`;

export const times = (number) =>
  number === null || number === undefined ? "–" : `${number.toFixed(2)} × fair share`;

export const plural = (number, noun, nouns = `${noun}s`) =>
  `${count(number)} ${number === 1 ? noun : nouns}`;

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "not known";
  if (seconds < 90) return plural(Math.round(seconds), "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  if (seconds < 172800) return `${short.format(seconds / 3600)} hours`;
  return `${short.format(seconds / 86400)} days`;
}

export const moment = (seconds) =>
  new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const ago = (seconds) => `${span(Math.max(0, serverTime() / 1000 - seconds))} ago`;

// Whether a sentence is about a broker: by its whole id, never by a part of it.
export function namesBroker(text, id) {
  const escaped = String(id).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`\\bbrokers? ([^\\s,]+, )*([^\\s,]+ and )?${escaped}(?![\\w.-]*\\w)`).test(text);
}

// "50MB/s" or "50 MB" as bytes; null where it is neither.
export function bytes(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([kMGTP]?)B?(?:\/s)?\s*$/i.exec(text);
  if (!found) return null;
  return Number(found[1]) * 1000 ** " kmgtp".indexOf(found[2].toLowerCase() || " ");
}

// Names separated by commas; a name may have spaces.
export const listed = (text) => text.split(",").map((name) => name.trim()).filter(Boolean);

export function ids(text) {
  return listed(text.replace(/(\d)\s+(?=\d)/g, "$1,")).map((id) => (String(Number.parseInt(id, 10)) === id ? Number(id) : id));
}

export function planned(plan) {
  const parts = [];
  for (const [name, one, many] of [
    ["replica_moves", "replica move"], ["leadership_moves", "leadership transfer"],
    ["disk_moves", "disk move"], ["replicas_added", "replica added", "replicas added"],
    ["replicas_removed", "replica removed", "replicas removed"],
  ]) if (plan[name]) parts.push(plural(plan[name], one, many));
  if (!parts.length) return "nothing to do";
  return `${parts.join(", ")}, ${amount(plan.cost, plan.cost_unit)}`;
}

// An action of a plan.
export function describe(action) {
  const partition = `${action.topic}-${action.partition}`;
  const from = action.source, to = action.destination;
  switch (action.kind) {
    case "move": return `move ${partition} from broker ${from} to broker ${to}${action.leader ? ", with its leadership" : ""}`;
    case "leadership": return `transfer the leadership of ${partition} from broker ${from} to broker ${to}`;
    case "move_disk": return `move ${partition} on broker ${from} from ${action.source_disk} to ${action.destination_disk}`;
    case "add": return `add a replica of ${partition} on broker ${to}`;
    case "remove": return `remove the replica of ${partition} from broker ${from}`;
    default: return `${action.kind} ${partition}`;
  }
}

// How an execution ended.
export function ended(outcome) {
  const parts = [outcome.state];
  if (outcome.completed) parts.push(`${plural(outcome.completed, "task")} completed`);
  if (outcome.failed) parts.push(`${count(outcome.failed)} failed`);
  if (outcome.cancelled) parts.push(`${count(outcome.cancelled)} cancelled`);
  if (outcome.bytes_moved) parts.push(`${amount(outcome.bytes_moved, "B")} moved`);
  return [parts.join(", "), ...(outcome.problems ?? []).slice(0, 5)].join("; ");
}
