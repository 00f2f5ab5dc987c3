// Asks the server; an answer that is no success becomes an error with the server's sentence.

const BASE = "api/v1/";

async function ask(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(BASE + path, options);
  } catch {
    throw new Error("the server cannot be reached");
  }
  const found = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(found?.error ?? `the server answers ${answer.status}`);
  return found;
}

export const get = (path) => ask("GET", path);
export const post = (path, body = {}) => ask("POST", path, body);
export const patch = (path, body) => ask("PATCH", path, body);
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
