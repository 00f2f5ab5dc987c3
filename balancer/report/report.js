(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const tip = $("tip");
  const hideTip = (plot) => {
    tip.hidden = true;
    plot.querySelector(".cursor").setAttribute("d", "");
  };
  document.querySelectorAll(".plot").forEach((plot) => {
    const svg = plot.querySelector("svg");
    const column = data.columns[Number(plot.dataset.column)];
    const { width, height } = svg.viewBox.baseVal;
    const left = 34, right = 8, half = height / 2 - 6;
    const pitch = (width - left - right) / data.order.length;
    const ranked = ["before", "after"].map((when) => data.sorted
      ? [...data.order].sort((a, b) => column[when][b] - column[when][a])
      : data.order);
    let place = 0, panel = 0;
    const show = (clientX, clientY) => {
      const b = ranked[panel][place];
      const x = (left + (place + 0.5) * pitch).toFixed(1);
      const y = panel && data.sorted ? half : 18;
      plot.querySelector(".cursor").setAttribute("d", `M${x} ${y}V${panel || !data.sorted ? height - 22 : half - 12}`);
      const state = data.state[b] ? ", " + data.state[b] : "";
      const line = (when, k) => `${when}: ${column.times[k][b]} its share (${column.amounts[k][b]})`;
      tip.textContent = `broker ${data.brokers[b]}, ${data.racks[data.rack[b]]}${state}\n${line("before", 0)}\n${line("after", 1)}`;
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = Math.max(4, Math.min(clientX + 14, innerWidth - box.width - 8)) + "px";
      tip.style.top = (clientY + box.height + 24 > innerHeight ? clientY - box.height - 12 : clientY + 16) + "px";
    };
    plot.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * width / box.width;
      panel = (event.clientY - box.top) * height / box.height > half ? 1 : 0;
      place = Math.max(0, Math.min(data.order.length - 1, Math.floor((x - left) / pitch)));
      show(event.clientX, event.clientY);
    });
    plot.addEventListener("pointerleave", () => hideTip(plot));
    plot.addEventListener("blur", () => hideTip(plot));
    plot.addEventListener("keydown", (event) => {
      const last = data.order.length - 1;
      const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") return hideTip(plot);
      if (event.key === "ArrowUp" || event.key === "ArrowDown") panel = event.key === "ArrowDown" ? 1 : 0;
      else if (to === undefined) return;
      else if (!tip.hidden) place = Math.max(0, Math.min(last, to));
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      show(box.left + (left + place * pitch) * box.width / width, box.top + box.height * (panel ? 0.6 : 0.2));
    });
  });

  const cell = (row, text, kind, tag) => {
    const made = row.appendChild(document.createElement(tag || "td"));
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  $("broker-details").addEventListener("toggle", () => {
    const table = $("broker-table");
    if (table.tBodies[0].rows.length) return;
    const head = table.tHead.insertRow();
    for (const title of ["Broker", "Rack", "State", ...data.columns.map((c) => c.title)]) cell(head, title, "", "th").scope = "col";
    for (const b of data.order) {
      const row = table.tBodies[0].insertRow();
      cell(row, data.brokers[b], "", "th").scope = "row";
      cell(row, data.racks[data.rack[b]]);
      cell(row, data.state[b]);
      for (const c of data.columns) cell(row, c.times.map((of) => of[b]).join(" → "));
    }
  });

  const effect = ([goal, value]) => `${data.goals[goal]} ${value > 0 ? "+" : "−"}${Math.abs(value)}`;
  // the id of a broker stands for the broker, not for every number that contains it
  const ids = new Map(data.brokers.map((id, b) => [String(id).toLowerCase(), b]));
  const actions = data.actions.map(([step, kind, name, route, cost, paid, effects, why, ends]) => ({
    step, kind, name, route, cost, paid, why, ends,
    text: `${kind} ${name} ${route} ${effects.map(effect).join(" ")}`.toLowerCase(),
    helps: effects.reduce((sum, [, value]) => sum + Math.max(value, 0), 0),
  }));
  const orders = { cost: (a, b) => b.cost - a.cost, helps: (a, b) => b.helps - a.helps, step: (a, b) => a.step - b.step };
  const PAGE = 100;
  let shown = PAGE;
  const render = () => {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = actions.filter((a) => words.every((word) => ids.has(word) ? a.ends.includes(ids.get(word)) : a.text.includes(word))).sort(orders[$("sort").value]);
    const body = document.createDocumentFragment();
    for (const a of hits.slice(0, shown)) {
      const row = body.appendChild(document.createElement("tr"));
      cell(row, a.step.toLocaleString("en"), "n");
      cell(row, a.kind, "kind");
      cell(row, a.name, "topic");
      cell(row, a.route);
      cell(row, a.paid, "n");
      cell(row, a.why);
    }
    if (!hits.length) cell(body.appendChild(document.createElement("tr")), "No action matches.").colSpan = 6;
    $("action-rows").replaceChildren(body);
    $("found").textContent = `${Math.min(shown, hits.length).toLocaleString("en")} of ${hits.length.toLocaleString("en")} shown`;
    $("more").hidden = hits.length <= shown;
  };
  if (actions.length) {
    $("controls").hidden = false;
    for (const id of ["search", "sort"]) $(id).addEventListener("input", () => { shown = PAGE; render(); });
    $("more").addEventListener("click", () => { shown += 5 * PAGE; render(); });
    render();
  }

  const rateOf = (text) => {
    const found = /^\s*(\d+\.?\d*)\s*([kmgtp]?)(i?)b(\/s)?\s*$/i.exec(text);
    return found ? Number(found[1]) * (found[3] ? 1024 : 1000) ** " kmgtp".indexOf(found[2].toLowerCase() || " ") : 0;
  };
  const period = (seconds) => {
    const whole = Math.max(1, Math.round(seconds));
    const all = [["d", Math.floor(whole / 86400)], ["h", Math.floor(whole / 3600) % 24], ["min", Math.floor(whole / 60) % 60], ["s", whole % 60]];
    const first = all.findIndex(([, count]) => count);
    return all.slice(first, first + 2).filter(([, count]) => count).map(([unit, count]) => `${count} ${unit}`).join(" ");
  };
  if (data.busiest) {
    const estimate = () => {
      const rate = rateOf($("throttle").value);
      $("takes").textContent = rate ? `at least ${period(data.busiest / rate)}` : "a rate such as 50 MB/s expected";
    };
    $("estimate").hidden = false;
    $("throttle").addEventListener("input", estimate);
    estimate();
  }
  document.querySelectorAll(".copy").forEach((button) => {
    if (!navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", () => navigator.clipboard
      .writeText(button.previousElementSibling.textContent)
      .then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not copied"; }));
  });
  document.documentElement.dataset.ready = "yes";
})();
