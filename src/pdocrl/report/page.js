"use strict";
// Sorting and filtering. The page is whole without this script: it adds the controls it serves.

// Every header cell of a sortable table becomes a button. Rows sort by data-value, else by text; what has no value
// stays last. Numbers start with the highest, words with the first letter.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const key = (row) => {
        const cell = row.cells[column];
        return cell.hasAttribute("data-value") ? cell.dataset.value : cell.textContent.trim();
      };
      const rows = [...body.rows];
      const numeric = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
      const before = head.getAttribute("aria-sort");
      const order = before === "none" ? (numeric ? "descending" : "ascending")
        : before === "descending" ? "ascending" : "descending";
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        if (a === "" || b === "") return (a === "") - (b === "");
        return sign * (numeric ? Number(a) - Number(b) : a.localeCompare(b));
      });
      body.append(...rows);
      heads.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", order);
    });
  });
}

// The slider of the cost limit: marks, numbers and film of the chosen position. All coordinates come with the page.
for (const turn of document.querySelectorAll(".turn")) {
  const stops = JSON.parse(turn.querySelector('script[type="application/json"]').textContent);
  const form = turn.querySelector("form");
  const range = form.querySelector("input");
  const show = () => {
    const stop = stops[Number(range.value)];
    form.querySelector("output").textContent = stop.limit;
    range.setAttribute("aria-valuetext", `limit ${stop.limit}: ${stop.says}`);
    turn.querySelector(".says .at").textContent = stop.limit;
    turn.querySelector(".says span").textContent = stop.says;
    turn.querySelector(".says").className = `says ${stop.verdict}`;
    const targets = turn.querySelector(".targets");
    if (targets) targets.textContent = stop.targets;
    for (const part of turn.querySelectorAll(".moves")) {
      const place = stop.at[part.dataset.part];
      part.classList.toggle("off", !place);
      if (place) part.setAttribute("transform", `translate(${place[0]} ${place[1]})`);
    }
    [...turn.querySelectorAll("tbody tr")].forEach((row, i) => {
      [...row.querySelectorAll("td")].forEach((cell, j) => { cell.textContent = stop.cells[i][j]; });
    });
    for (const film of turn.querySelectorAll("[data-film]")) {
      film.classList.toggle("off", Number(film.dataset.film) !== stop.film);
    }
    for (const button of form.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.stop === range.value));
    }
  };
  range.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of form.querySelectorAll("button")) {
    button.addEventListener("click", () => { range.value = button.dataset.stop; show(); });
  }
  form.hidden = false;
  show();
}

// The heat map of a policy: positions along the frontier, words for the cell pointed at, a state's actions, search.
for (const map of document.querySelectorAll(".policy-map")) {
  const data = JSON.parse(map.querySelector('script[type="application/json"]').textContent);
  const form = map.querySelector("form");
  const range = form.querySelector('input[type="range"]');
  const rows = [...map.querySelectorAll(".heat-map tbody tr")];
  const percent = (x) => `${x >= 0.005 || x === 0 ? Math.round(100 * x) : "<1"} %`;
  let at = Number(map.dataset.start);
  let chosen = -1;
  const logged = (s, a) => data.rows[s][a] / Math.max(1, data.rows[s].reduce((x, y) => x + y, 0));
  const explain = (s) => {
    chosen = s;
    rows.forEach((row, i) => row.classList.toggle("chosen", i === s));
    const table = document.createElement("table");
    table.className = "tight";
    const add = (parent, kind, texts, first) => {
      const line = parent.insertRow();
      texts.forEach((text, i) => {
        const cell = document.createElement(i === 0 ? first : kind);
        if (cell.tagName === "TH") cell.scope = kind === "th" ? "col" : "row";
        cell.textContent = text;
        line.append(cell);
      });
    };
    const names = Object.keys(data.values);
    table.createCaption().textContent = `In state ${data.states[s]}`;
    add(table.createTHead(), "th", ["action", "policy", "in the log", "rows", ...names.map((n) => `${n} from here`)], "th");
    const body = table.createTBody();
    data.actions.map((_, a) => a)
      .filter((a) => data.rows[s][a] > 0 || data.policies[at][s][a] > 0)
      .sort((a, b) => data.policies[at][s][b] - data.policies[at][s][a] || data.rows[s][b] - data.rows[s][a])
      .forEach((a) => add(body, "td", [data.actions[a], percent(data.policies[at][s][a]), percent(logged(s, a)),
        data.rows[s][a].toLocaleString("en"), ...names.map((n) => data.values[n][s][a])], "th"));
    map.querySelector(".explained").replaceChildren(table);
    map.querySelector(".explained").scrollIntoView({block: "nearest"});
  };
  const show = () => {
    const stop = data.stops[at];
    if (range) {
      form.querySelector("output").textContent = stop.limit;
      range.setAttribute("aria-valuetext", `limit ${stop.limit}: ${stop.says}`);
    }
    const limit = map.querySelector(".says .at");
    if (limit) limit.textContent = stop.limit;
    map.querySelector(".says span").textContent = stop.says;
    map.querySelector(".says").className = `says ${stop.yes ? "yes" : "no"}`;
    rows.forEach((row, s) => data.policies[at][s].forEach((p, a) => {
      const cell = row.cells[a + 1];
      cell.style.setProperty("--share", p);
      cell.textContent = p >= 0.005 ? Math.round(100 * p) : "";
    }));
    for (const line of map.querySelectorAll("g.stop")) line.classList.toggle("off", Number(line.dataset.stop) !== at);
    if (chosen >= 0) explain(chosen);
  };
  rows.forEach((row, s) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = row.cells[0].textContent;
    button.addEventListener("click", () => explain(s));
    row.cells[0].replaceChildren(button);
    row.addEventListener("click", (event) => { if (event.target.tagName === "TD") explain(s); });
    row.addEventListener("pointerover", (event) => {
      const a = event.target.cellIndex - 1;
      if (!(a >= 0)) return;
      const values = Object.entries(data.values).map(([name, own]) => `${name} from here ${own[s][a]}`);
      const words = `${data.states[s]}, action ${data.actions[a]}: policy ${percent(data.policies[at][s][a])}, log `
        + `${percent(logged(s, a))}, ${data.rows[s][a].toLocaleString("en")} rows; ${values.join(", ")}`;
      map.querySelector(".pointed").textContent = words;
      event.target.title = words;
    });
  });
  if (range) range.addEventListener("input", () => { at = Number(range.value); show(); });
  form.querySelector('input[type="search"]').addEventListener("input", (event) => {
    const part = event.target.value.trim().toLowerCase();
    rows.forEach((row, s) => row.classList.toggle("off", !data.states[s].toLowerCase().includes(part)));
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
}

// Ranks of the chosen task and limit, by the rule of the table's note: safe before unsafe, then reward among the safe,
// cost among the unsafe; ties share their rank. Intervals and interquartile means are of everything, so they give way.
const scores = document.getElementById("scores");
const ranking = document.querySelector('[aria-label="Methods over all tasks"] tbody');
const before = ranking ? [...ranking.rows].map((row) => row.cloneNode(true)) : [];
const rank = (chosen) => {
  if (!scores || !ranking) return;
  if (!chosen.task && !chosen.limit) { ranking.replaceChildren(...before.map((row) => row.cloneNode(true))); return; }
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const found = new Map();  // method → {ranks, rewards, costs, limits, kept, over, episodes}
  const tasks = new Map();  // task → method → its cells
  for (const cell of JSON.parse(scores.textContent)) {
    if ((chosen.task && cell.task !== chosen.task) || (chosen.limit && cell.limit !== chosen.limit)) continue;
    if (!tasks.has(cell.task)) tasks.set(cell.task, new Map());
    const methods = tasks.get(cell.task);
    methods.set(cell.method, [...(methods.get(cell.method) ?? []), cell]);
  }
  for (const methods of tasks.values()) {
    const merit = new Map();
    for (const [method, cells] of methods) {
      const [reward, cost] = [mean(cells.map((c) => c.reward)), mean(cells.map((c) => c.cost))];
      merit.set(method, cost <= 1 ? reward : -1e6 - cost);
      const own = found.get(method) ?? {ranks: [], rewards: [], costs: [], limits: 0, kept: 0, over: 0, episodes: 0};
      own.rewards.push(reward);
      own.costs.push(cost);
      for (const cell of cells) {
        own.limits += 1;
        own.kept += cell.cost <= 1;
        own.over += cell.over;
        own.episodes += cell.episodes;
      }
      found.set(method, own);
    }
    for (const [method, own] of merit) {
      const all = [...merit.values()];
      const above = all.filter((other) => other > own).length;
      found.get(method).ranks.push(above + (all.filter((other) => other === own).length + 1) / 2);
    }
  }
  const rows = before.map((row) => row.cloneNode(true)).filter((row) => found.has(row.dataset.method));
  for (const row of rows) {
    const own = found.get(row.dataset.method);
    const safe = own.costs.filter((cost) => cost <= 1).length;
    const texts = [mean(own.ranks).toFixed(2), "–", `${safe} of ${own.costs.length}`, `${own.kept} of ${own.limits}`,
      `${Math.round(100 * own.over / own.episodes)} %`, mean(own.rewards).toFixed(2), "–", mean(own.costs).toFixed(2), "–"];
    texts.forEach((text, i) => { row.cells[i + 1].textContent = text; row.cells[i + 1].dataset.value = parseFloat(text); });
  }
  const order = (row) => {  // of equal ranks the safer first, then by reward
    const own = found.get(row.dataset.method);
    const share = own.costs.filter((cost) => cost <= 1).length / own.costs.length;
    return [mean(own.ranks), -share, -own.kept / own.limits, -mean(own.rewards)];
  };
  const first = (a, b) => a.map((value, i) => value - b[i]).find((apart) => Math.abs(apart) > 1e-9) ?? 0;
  rows.sort((a, b) => first(order(a), order(b)));
  ranking.replaceChildren(...rows);
};

// A choice hides everything that belongs to another method, task or limit. What is told over all limits at once
// (data-limit="all") gives way to what is told of one (data-alone) where the page has both.
const form = document.querySelector("form.filters");
if (form) {
  const names = ["method", "task", "limit"];
  const said = form.querySelector("output");
  const apply = () => {
    const chosen = Object.fromEntries(names.map((name) => [name, form.elements[name].value]));
    rank(chosen);
    for (const element of document.querySelectorAll("[data-method], [data-task], [data-limit]")) {
      const fits = names.every((name) => {
        const own = element.dataset[name];
        if (own === undefined) return true;
        if (name === "limit" && own === "all") return chosen.limit === "";
        if (name === "limit" && element.hasAttribute("data-alone")) return own === chosen.limit;
        return chosen[name] === "" || own === chosen[name];
      });
      element.classList.toggle("off", !fits);
    }
    for (const card of document.querySelectorAll(".card:has(li[data-task])")) {
      card.classList.toggle("off", !card.querySelector("li[data-task]:not(.off)"));
    }
    const words = names.filter((name) => chosen[name]).map((name) => `${name} ${chosen[name]}`);
    const means = chosen.limit ? " Results, profile and improvement stay means over all limits." : "";
    said.textContent = words.length ? `Shown: ${words.join(", ")}.${means}` : "Everything is shown.";
  };
  form.addEventListener("change", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
}

// Every picture can be saved in the light theme: as SVG with its looks written into it, as PDF by printing it alone.
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "font-family", "font-size", "text-anchor"];
const standalone = (svg) => {
  const copy = svg.cloneNode(true);
  const parts = (of) => [...of.querySelectorAll("path, use, circle, text")];
  const theirs = parts(copy);
  document.documentElement.classList.add("paper");
  parts(svg).forEach((own, i) => {
    if (own.closest(".off")) { theirs[i].remove(); return; }
    let part = theirs[i];
    if (own.tagName === "use") {
      part = document.createElementNS(svg.namespaceURI, "path");
      part.setAttribute("d", document.querySelector(own.getAttribute("href")).getAttribute("d"));
      part.setAttribute("transform", own.getAttribute("transform")
        ?? `translate(${own.getAttribute("x")} ${own.getAttribute("y")})`);
      theirs[i].replaceWith(part);
    }
    const style = getComputedStyle(own);
    for (const look of LOOKS) part.setAttribute(look, style.getPropertyValue(look));
    part.removeAttribute("class");
  });
  document.documentElement.classList.remove("paper");
  const [left, top, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const frame = {x: left - 2, y: top - 4, width: width + 4, height: height + 8};
  const ground = document.createElementNS(svg.namespaceURI, "rect");
  for (const [name, value] of Object.entries({...frame, fill: "#ffffff"})) ground.setAttribute(name, value);
  copy.prepend(ground);
  copy.setAttribute("viewBox", Object.values(frame).join(" "));
  for (const name of ["width", "height"]) copy.setAttribute(name, frame[name]);
  copy.removeAttribute("class");
  return copy;
};
const printed = (copy, name) => {
  const [sheet, size, title] = [document.createElement("div"), document.createElement("style"), document.title];
  sheet.className = "sheet";
  sheet.append(copy);
  size.textContent = `@page { size: ${copy.getAttribute("width")}px ${copy.getAttribute("height")}px; margin: 0; }`;
  document.head.append(size);
  document.body.append(sheet);
  document.title = name;  // which a browser makes the file's name of
  document.documentElement.classList.add("alone");
  addEventListener("afterprint", () => {
    for (const made of [sheet, size]) made.remove();
    document.title = title;
    document.documentElement.classList.remove("alone");
  }, {once: true});
  print();
};
for (const svg of document.querySelectorAll("svg.chart")) {
  const name = svg.getAttribute("aria-labelledby").slice(0, -2);
  const [box, save, head] = ["div", "details", "summary"].map((tag) => document.createElement(tag));
  box.className = "picture";
  save.className = "save";
  head.textContent = "Save";
  head.setAttribute("aria-label", `Save the picture: ${svg.querySelector("title").textContent}`);
  save.append(head, ...["SVG", "PDF"].map((kind) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.addEventListener("click", () => {
      const copy = standalone(svg);
      if (kind === "PDF") { printed(copy, name); return; }
      const link = document.createElement("a");
      link.href = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
      link.download = `${name}.svg`;
      link.click();
    });
    return button;
  }));
  svg.replaceWith(box);
  box.append(svg, save);
}
