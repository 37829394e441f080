// Curves of one or two runs by epoch, as SVG, and what the rest of the page draws with.

const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const percent = (share) => (share === null || share === undefined ? "" : `${(100 * share).toFixed(1)}%`);

// Short names where they differ: the objective and the seed say more than a long folder name.
export function labels(runs) {
  const short = runs.map((run) => (run.objective === null ? run.name : `${run.objective}, seed ${run.seed}`));
  return new Set(short).size === runs.length ? short : runs.map((run) => run.name);
}

const CHARTS = [
  ["train_loss", "training loss", (value) => value.toPrecision(3)],
  ["val_balanced_accuracy", "validation balanced accuracy", percent],
  ["test_balanced_accuracy", "test balanced accuracy, which selection never sees", percent],
];

export function curvesOf(runs) {
  const names = labels(runs);
  const alike = new Set(runs.map((run) => run.objective)).size === 1;
  const charts = CHARTS.map(([key, name, tell]) => {
    const title = key === "train_loss" && !alike ? `${name}, each of its own objective and so not on one scale` : name;
    const lines = runs.map((run, place) => ({ name: names[place], place, points: pointsOf(run.curves, key) }));
    const last = Math.max(1, ...runs.map((run) => run.epochs ?? 0), ...runs.map((run) => run.curves.epoch?.length ?? 0));
    return lines.some((line) => line.points.length) ? chartOf(title, lines, last, tell) : null;
  }).filter(Boolean);
  return charts.length ? charts : [make("p", { class: "quiet" }, "The curves begin with the first finished epoch.")];
}

function pointsOf(curves, key) {
  const values = curves[key] ?? [];
  return values.map((value, place) => [curves.epoch?.[place] ?? place + 1, value]).filter((point) => point[1] !== null);
}

// Round steps, at most five of them.
function ticksOf(low, high) {
  const rough = (high - low || Math.abs(high) || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((lead) => lead * power).find((each) => each >= rough);
  const ticks = [];
  for (let tick = Math.floor(low / step); tick <= Math.ceil(high / step - 1e-9); tick++) ticks.push(tick * step);
  return ticks.length > 1 ? ticks : [low, low + step];
}

// The first, the last, and round ones between them that leave both room.
function epochTicks(last) {
  if (last <= 10) return Array.from({ length: last }, (_, place) => place + 1);
  const room = last / 12;
  return [1, ...ticksOf(1, last).filter((tick) => Number.isInteger(tick) && tick > 1 + room && tick < last - room), last];
}

function chartOf(title, lines, last, tell) {
  const [width, height, left, right, top, bottom] = [480, 240, 46, 14, 10, 26];
  const values = lines.flatMap((line) => line.points.map((point) => point[1]));
  const ticks = ticksOf(Math.min(...values), Math.max(...values));
  const [low, high] = [ticks[0], ticks.at(-1)];
  const x = (epoch) => left + ((width - left - right) * (epoch - 1)) / Math.max(last - 1, 1);
  const y = (value) => height - bottom - ((height - top - bottom) * (value - low)) / (high - low);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const tick of ticks) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    const text = tell === percent ? `${Number((100 * tick).toPrecision(6))}%` : String(Number(tick.toPrecision(6)));
    svg.append(draw("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, text));
  }
  for (const epoch of epochTicks(last)) {
    svg.append(draw("text", { x: x(epoch), y: height - 8, "text-anchor": "middle" }, String(epoch)));
  }
  for (const { points, place } of lines) {
    if (!points.length) continue;
    const path = points.map(([epoch, value]) => `${x(epoch).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    svg.append(draw("polyline", { class: `curve line${place}`, points: path }));
    const [epoch, value] = points.at(-1);
    svg.append(draw("circle", { class: `line${place}`, cx: x(epoch), cy: y(value), r: 3.5 }));
  }
  const legend = make("p", { class: "legend" });
  const tellAt = (epoch) => legend.replaceChildren(...lines.map((line) => legendOf(line, epoch, tell)));
  tellAt(last);
  svg.setAttribute("aria-label", `${title} by epoch: ${legend.textContent}`);
  const guide = draw("line", { class: "guide", y1: top, y2: height - bottom, visibility: "hidden" });
  svg.append(guide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * width - left) / (width - left - right);
    const epoch = Math.round(1 + Math.min(Math.max(share, 0), 1) * (last - 1));
    for (const end of ["x1", "x2"]) guide.setAttribute(end, x(epoch));
    guide.setAttribute("visibility", "visible");
    tellAt(epoch);
  });
  svg.addEventListener("pointerleave", () => {
    guide.setAttribute("visibility", "hidden");
    tellAt(last);
  });
  return make("figure", { class: "chart" }, make("figcaption", {}, title), svg, legend);
}

// The value at an epoch, or the last one before it.
function legendOf({ name, place, points }, epoch, tell) {
  const point = points.findLast((each) => each[0] <= epoch) ?? points[0];
  const text = point ? `${name}: ${tell(point[1])} (epoch ${point[0]})` : `${name}: nothing yet`;
  const mark = draw("svg", { class: "mark", viewBox: "0 0 24 8", width: 24, height: 8, "aria-hidden": "true" });
  mark.append(draw("line", { class: `curve line${place}`, x1: 0, x2: 24, y1: 4, y2: 4 }));
  return make("span", {}, mark, ` ${text} `);
}
