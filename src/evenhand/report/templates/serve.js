// The list of runs: sorting, filtering, polling, and a comparison of two runs. No library, no build step.
// All texts come from untrusted files: they are only ever set as text, never as HTML.
import { curvesOf, draw, labels, make, percent } from "./serve_curves.js";

const find = (selector, within = document) => within.querySelector(selector);
const POLL = 1000 * Number(document.body.dataset.poll);

const filter = find("#filter");
const sorting = { runs: null, comparisons: null };
let listed = { runs: [], comparisons: [], note: "" };
let ticked = new Set(location.hash.replace(/^#runs=/, "").split(",").filter((id) => /^[0-9a-f]{16}$/.test(id)));
const details = new Map();

// ---- The tables

function fillRow(row, kind, columns) {
  const element = make("tr", { role: "row", "data-id": row.id, "data-state": row.state });
  const tick = make("td", { class: "tick", role: "cell" });
  if (kind === "runs") {
    const box = make("input", { type: "checkbox", "aria-label": `compare: ${row.cells[0].text}` });
    box.checked = ticked.has(row.id);
    box.addEventListener("change", () => toggle(row.id, box.checked));
    tick.append(box);
  }
  element.append(tick);
  row.cells.forEach((cell, place) => {
    const first = place === 0;
    const attributes = { class: columns[place].replaceAll(" ", "-"), "data-label": columns[place] };
    Object.assign(attributes, first ? { scope: "row", role: "rowheader" } : { role: "cell" });
    const shown = make(first ? "th" : "td", attributes, cell.text);
    if (cell.note) shown.append(" ", make("small", {}, cell.note));
    if (first && (row.report || row.try)) shown.append(" ", linksOf(row));
    if (first) for (const problem of row.problems) shown.append(" ", make("small", { class: "problem" }, problem));
    element.append(shown);
  });
  return element;
}

function linksOf(row) {
  const links = make("span", { class: "links" });
  const name = row.cells[0].text;
  if (row.report) links.append(make("a", { href: row.report }, "report", make("span", { class: "unseen" }, ` of ${name}`)));
  if (row.try) {
    const what = make("span", { class: "unseen" }, `: classify a picture with ${name}`);
    links.append(" ", make("a", { href: row.try }, "try it", what));
  }
  return links;
}

function inOrder(rows, by) {
  if (by === null) return rows;
  const sign = by.descending ? -1 : 1;
  const before = (one, other) => {
    const [a, b] = [one.cells[by.column].sort, other.cells[by.column].sort];
    const [noA, noB] = [a === null || a === "", b === null || b === ""];
    if (noA || noB) return noA - noB; // missing values last either way
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  return [...rows].sort(before);
}

function matches(row, words) {
  const texts = [row.state, ...row.problems, ...row.cells.flatMap((cell) => [cell.text, cell.note])];
  const text = texts.join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function showTable(kind) {
  const table = find(`table#${kind}`);
  const columns = [...table.tHead.querySelectorAll("[data-column]")].map((head) => head.dataset.name);
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = inOrder(listed[kind], sorting[kind]).filter((row) => matches(row, words));
  const body = table.tBodies[0];
  const old = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const line = focused?.closest("tr").dataset.id; // before the element is removed below
  const elements = rows.map((row) => {
    const known = old.get(row.id);
    const content = JSON.stringify(row);
    if (known !== undefined && known.content === content) return known;
    const fresh = fillRow(row, kind, columns);
    const shown = known?.content === undefined ? fresh : refill(known, fresh);
    shown.content = content;
    return shown;
  });
  if (elements.length !== body.rows.length || elements.some((row, place) => row !== body.rows[place])) {
    body.replaceChildren(...elements);
  }
  refocus(focused, line, body);
  table.nextElementSibling.hidden = rows.length > 0;
  if (listed[kind].length) table.nextElementSibling.textContent = `No ${kind.slice(0, -1)} matches.`;
  table.hidden = rows.length === 0;
  return rows.length;
}

// A row that changes keeps its checkbox, so that a click is not lost.
function refill(row, fresh) {
  while (row.children.length > 1) row.lastElementChild.remove();
  row.append(...[...fresh.children].slice(1));
  row.dataset.state = fresh.dataset.state;
  return row;
}

// A row that has moved or changed keeps the focus.
function refocus(focused, id, body) {
  if (focused === null || document.activeElement === focused) return;
  const row = [...body.rows].find((each) => each.dataset.id === id);
  if (row) find(focused.tagName.toLowerCase(), row)?.focus({ preventScroll: true });
}

function showTables() {
  const runs = showTable("runs");
  showTable("comparisons");
  find("#comparisons").closest("section").hidden = listed.comparisons.length === 0;
  find(".hint").hidden = listed.runs.length === 0;
  const all = listed.runs.length;
  find("#runs-count").textContent = `${all} ${all === 1 ? "run" : "runs"}`;
  if (filter.value.trim()) find("#runs").closest("details").open = true;
  find("#shown").textContent = filter.value.trim() ? `${runs} of ${all} runs` : "";
  find("#note").hidden = !listed.note;
  find("#note").textContent = listed.note;
}

function sortable(kind) {
  for (const head of document.querySelectorAll(`#${kind} thead [data-column]`)) {
    const name = head.textContent.trim();
    head.dataset.name = name;
    const button = make("button", { type: "button" }, name);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const column = Number(head.dataset.column);
      const now = sorting[kind];
      sorting[kind] = { column, descending: now?.column === column ? !now.descending : false };
      for (const other of document.querySelectorAll(`#${kind} thead [aria-sort]`)) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sorting[kind].descending ? "descending" : "ascending");
      showTables();
    });
  }
}

// ---- Comparison of two runs

function toggle(id, on) {
  if (on) ticked.add(id);
  else ticked.delete(id);
  while (ticked.size > 2) ticked.delete(ticked.values().next().value); // the third replaces the first
  for (const box of document.querySelectorAll("#runs .tick input")) {
    box.checked = ticked.has(box.closest("tr").dataset.id);
  }
  history.replaceState(null, "", ticked.size ? `#runs=${[...ticked].join(",")}` : location.pathname);
  showSide();
}

async function showSide() {
  const ids = [...ticked];
  await Promise.all(ids.map(fetchDetails));
  if (ids.join() !== [...ticked].join()) return; // the selection has changed
  const runs = ids.map((id) => details.get(id)).filter(Boolean);
  find("#side").hidden = find("#ticked").hidden = runs.length === 0;
  document.body.classList.toggle("ticking", runs.length > 0);
  if (runs.length === 0) return;
  const title = runs.map((run) => run.name).join(" and ");
  find("#side-title").textContent = find("#ticked a").textContent = title;
  const differ = runs.length === 2 && ["source", "imbalance"].find((key) => runs[0][key] !== runs[1][key]);
  find("#side-warning").hidden = !differ;
  find("#side-warning").textContent = differ ? `They differ in ${differ}: differences mean little.` : "";
  renew("#curves", runs.map((run) => [run.name, run.curves, run.epochs]), () => curvesOf(runs));
  renew("#metrics", runs.map((run) => [run.metrics, run.cells]), () => metricsOf(runs));
  renew("#classes", runs.map((run) => [run.classes, run.name]), () => classesOf(runs));
}

async function fetchDetails(id) {
  const row = listed.runs.find((each) => each.id === id);
  const known = details.get(id);
  if (!row) return void details.delete(id);
  if (known && known.stamp === row.stamp && known.state === row.state) return;
  const answer = await fetch(`/runs/${id}.json`).catch(() => null);
  if (answer?.ok) details.set(id, await answer.json());
}

// Redraws a part only if its content has changed, so that it keeps scroll position and focus.
function renew(selector, content, parts) {
  const place = find(selector);
  const text = JSON.stringify(content);
  if (place.content === text) return;
  place.content = text;
  place.replaceChildren(...parts());
}


function signed(number, digits) {
  const size = Math.abs(number).toFixed(digits);
  return Number(size) === 0 ? size : (number < 0 ? "\u2212" : "+") + size;
}

function head(runs, ...before) {
  const cells = before.map((text) => make("th", { scope: "col" }, text));
  runs.forEach((run, place) => cells.push(make("th", { scope: "col", class: `line${place}` }, labels(runs)[place])));
  if (runs.length === 2) cells.push(make("th", { scope: "col" }, "difference"));
  return make("thead", {}, make("tr", {}, ...cells));
}

function metricsOf(runs) {
  const first = runs.find((run) => run.metrics.length);
  if (!first) return [make("p", { class: "quiet" }, "Metrics on the test set appear when a run is finished.")];
  const body = make("tbody");
  first.metrics.forEach(({ title, kind }) => {
    const found = runs.map((run) => run.metrics.find((metric) => metric.title === title));
    if (found.every((metric) => !metric || metric.value === null)) return;
    const row = make("tr", {}, make("th", { scope: "row" }, title));
    for (const metric of found) {
      const cell = make("td", {}, metric?.text ?? "");
      if (metric?.note) cell.append(make("small", {}, metric.note));
      row.append(cell);
    }
    if (runs.length === 2) row.append(make("td", {}, differenceOf(found, kind)));
    body.append(row);
  });
  const against = runs.length === 2 ? "; differences are second minus first, in points for percentages" : "";
  const caption = make("caption", {}, `On the test set, with 95% intervals${against}.`);
  return [make("div", { class: "scroll" }, make("table", {}, caption, head(runs, ""), body))];
}

function differenceOf([one, other], kind) {
  if (!one || !other || one.value === null || other.value === null || kind === "count") return "";
  const difference = other.value - one.value;
  return kind === "share" ? signed(100 * difference, 1) : signed(difference, 3);
}

function classesOf(runs) {
  if (!runs.every((run) => run.classes.length)) return [];
  const tables = runs.map((run) => new Map(run.classes.map((row) => [row.name, row])));
  const names = [...tables[0].keys()].filter((name) => tables.every((table) => table.has(name)));
  const parts = [];
  const missing = Math.max(...tables.map((table) => table.size)) - names.length;
  if (missing) parts.push(make("p", { class: "quiet" }, `${missing} classes are in only one of the two and are left out.`));
  if (!names.length) return parts;
  const body = make("tbody");
  const pairs = names.map((name) => tables.map((table) => table.get(name)));
  const largest = Math.max(0.1, ...pairs.map((rows) => Math.abs(recallGained(rows) ?? 0)));
  for (const rows of pairs) {
    const name = rows[0].name;
    const row = make("tr", {}, make("th", { scope: "row" }, name));
    row.append(make("td", { class: rows[0].group ?? "" }, String(rows[0].train_count ?? "")));
    for (const each of rows) row.append(make("td", {}, percent(each.recall)));
    if (rows.length === 2) {
      const difference = recallGained(rows);
      const text = difference === null ? "" : signed(100 * difference, 1);
      row.append(make("td", { class: "bar" }, text, barOf((difference ?? 0) / largest)));
    }
    body.append(row);
  }
  const caption = make("caption", {}, "Recall of each class, the largest first.");
  const box = make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Recall of each class" });
  box.append(make("table", {}, caption, head(runs, "class", "training images"), body));
  return [...parts, box];
}

function recallGained([one, other]) {
  return !other || one.recall === null || other.recall === null ? null : other.recall - one.recall;
}

// A bar to the left or right of the middle; share: -1 to 1.
function barOf(share) {
  const width = 40 * Math.abs(share);
  const bar = draw("rect", { x: share < 0 ? 40 - width : 40, y: 2, width, height: 8, class: share < 0 ? "lost" : "won" });
  const middle = draw("line", { x1: 40, x2: 40, y1: 0, y2: 12 });
  return draw("svg", { viewBox: "0 0 80 12", width: 80, height: 12, "aria-hidden": "true" }, bar, middle);
}

// ---- News

async function update() {
  const answer = await fetch("/runs.json").catch(() => null);
  const news = find("#news");
  const gone = "The server does not answer; this is the last that was heard.";
  if (!answer?.ok) {
    if (news.textContent !== gone) news.textContent = gone;
    return;
  }
  listed = await answer.json();
  const training = listed.runs.filter((run) => run.state === "training").length;
  const text = `${listed.runs.length} ${listed.runs.length === 1 ? "run" : "runs"}, ${training} training now.`;
  if (news.textContent !== text) news.textContent = text;
  showTables();
  await showSide();
}

async function keepUpdating() {
  if (!document.hidden) await update();
  setTimeout(keepUpdating, POLL);
}

document.documentElement.classList.add("live");
for (const kind of Object.keys(sorting)) sortable(kind);
filter.form.hidden = false;
filter.addEventListener("input", showTables);
filter.form.addEventListener("submit", (event) => event.preventDefault());
find("#ticked a").addEventListener("click", (event) => {
  event.preventDefault(); // the address keeps which runs are ticked
  find("#side").scrollIntoView();
  find("#side").focus({ preventScroll: true });
});
find("#ticked button").addEventListener("click", () => {
  for (const id of [...ticked]) toggle(id, false);
  filter.focus({ preventScroll: true });
});
keepUpdating();
