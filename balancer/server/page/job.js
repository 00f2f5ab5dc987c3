// A plan that the server is making: how far it is, and a button that ends it.

import { drop, finished, part } from "./api.js";

// The job when it is done; what it says meanwhile is in `said`, with the button after it.
export async function made(app, said, job) {
  const cancel = app.button("Cancel planning", "viewer", () => drop(`jobs/${part(job.id)}`));
  said.after(cancel);
  try {
    return await finished(job, (text) => { said.textContent = text; });
  } finally {
    said.textContent = "";
    if (cancel.contains(document.activeElement)) {
      said.tabIndex = -1;
      said.focus();
    }
    cancel.remove();
  }
}
