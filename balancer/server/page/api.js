// Asks the server; an answer that is no success becomes an error with the server's sentence.

const BASE = "api/v1/";
// Milliseconds until an answer is given up; a plan of a million actions takes half a minute to read.
const PATIENCE = 120_000;
// How far the server's clock is ahead of this one, in milliseconds.
let ahead = 0;

// Milliseconds since 1970 by the server's clock, which all times that it states are of.
export const serverTime = () => Date.now() + ahead;

async function ask(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin",
    signal: AbortSignal.timeout(PATIENCE) };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(BASE + path, options);
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? `the server has not answered for ${PATIENCE / 1000} seconds`
      : "the server cannot be reached");
  }
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (!Number.isNaN(date)) ahead = date - Date.now();
  const found = await answer.json().catch(() => undefined);
  if (!answer.ok) throw new Error(found?.error ?? `the server answers ${answer.status}`);
  if (found === undefined) throw new Error("the server's answer is cut off, or is not JSON");
  return found;
}

export const get = (path) => ask("GET", path);
export const post = (path, body = {}) => ask("POST", path, body);
export const patch = (path, body) => ask("PATCH", path, body);
export const drop = (path) => ask("DELETE", path);
export const part = encodeURIComponent;

// Waits for a job of the server, and says how far it is.
export async function finished(job, say) {
  while (job.state === "waiting" || job.state === "running") {
    const { phase, met, of, actions } = job.progress;
    say(job.state === "waiting" ? "Waits for another plan." :
      phase ? `Planning (${phase}): ${actions} actions${of ? `, ${met} of ${of} goals met` : ""}.` :
      "Planning.");
    job = await get(`jobs/${part(job.id)}?wait=2`);
  }
  if (job.state !== "done") throw new Error(job.error ?? `the job was ${job.state}`);
  return job;
}
