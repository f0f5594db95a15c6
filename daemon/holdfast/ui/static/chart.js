// Lines over time, with what they were at any moment of it for pointer and arrow keys, and as a table.

import { h, reconcile, say, svg, table } from "./dom.js";
import { clock, duration } from "./format.js";

const WIDTH = 1000;
const HEIGHT = 100;
const SHORTEST_SECONDS = 300;
const ROWS = 30;

function path(points, top, closed) {
  const parts = [];
  let pen = false;
  let first = 0;
  let last = 0;
  for (const [x, value] of points) {
    if (value === null) {
      if (pen && closed) parts.push(`L${last.toFixed(1)} ${HEIGHT}L${first.toFixed(1)} ${HEIGHT}Z`);
      pen = false;
      continue;
    }
    const y = HEIGHT - (HEIGHT * 0.94 * value) / top;
    if (!pen) first = x;
    parts.push(`${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`);
    [pen, last] = [true, x];
  }
  if (pen && closed) parts.push(`L${last.toFixed(1)} ${HEIGHT}L${first.toFixed(1)} ${HEIGHT}Z`);
  return parts.join("");
}

/** A chart of `series`, each [name, tone], with `format` for values; `top` fixes the upper end of the scale. */
export function chart(title, series, format, top) {
  const lines = series.map(([, tone], at) => [
    svg("path", { class: `area ${tone}`, hidden: at > 0 }), svg("path", { class: `line ${tone}`, "vector-effect": "non-scaling-stroke" })]);
  const rule = svg("line", { class: "rule", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  const grid = [0.03, 0.5].map((part) => svg("line", { class: "grid-line", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part, "vector-effect": "non-scaling-stroke" }));
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, grid, lines.flat(), rule);
  const upper = h("span", { class: "upper" }, "");
  const middle = h("span", { class: "middle" }, "");
  const now = h("span", { class: "now-values" });
  const tip = h("p", { class: "tip", role: "status" }, "");
  const legend = h("ul", { class: "legend" }, series.map(([name, tone]) => h("li", { class: tone }, name)));
  const plot = h("div", { class: "plot", tabindex: "0", role: "img", "aria-label": title }, upper, middle, drawing);
  const numbers = table(title, [["when", "when"], ...series.map(([name]) => [name, "number"])], (row) => row[0],
    ([when, ...values]) => [clock(when), ...values.map((value) => (value === null ? "–" : format(value)))], "No samples yet.");
  const start = h("span", null, "");
  const details = h("details", null, h("summary", null, "As a table"), numbers.root);
  let points = [];
  let at = null;
  let span = SHORTEST_SECONDS;

  function point(index) {
    at = points.length === 0 ? null : Math.max(0, Math.min(points.length - 1, index));
    rule.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) return say(tip, "");
    const x = where(points[at][0]);
    rule.setAttribute("x1", x);
    rule.setAttribute("x2", x);
    const values = series.map(([name], of) => `${name} ${points[at][of + 1] === null ? "–" : format(points[at][of + 1])}`);
    say(tip, `${clock(points[at][0])}  ${values.join(", ")}`);
  }
  const where = (time) => WIDTH - ((points.at(-1)[0] - time) / span) * WIDTH;
  plot.addEventListener("pointermove", (event) => {
    if (points.length === 0) return;
    const box = drawing.getBoundingClientRect();
    const time = points.at(-1)[0] - (1 - (event.clientX - box.left) / box.width) * span;
    point(points.findIndex((each, index) => index === points.length - 1 || (each[0] + points[index + 1][0]) / 2 > time));
  });
  const leave = () => { at = null; rule.setAttribute("visibility", "hidden"); say(tip, ""); };
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    point((at ?? points.length) + step);
  });
  details.addEventListener("toggle", () => fillTable());
  const fillTable = () => details.open && numbers.fill(points.slice(-ROWS).reverse());
  const root = h("section", { class: "card chart", "aria-label": title }, h("header", null, h("h2", null, title), now), plot,
    h("div", { class: "axis" }, start, h("span", null, "now")), h("div", { class: "under" }, legend, tip), details);
  return {
    root,
    /** Show `rows`, each [time, value of each series, or null], of the last `longest` seconds. */
    update(rows, longest) {
      points = rows;
      const known = rows.length ? rows.at(-1)[0] - rows[0][0] : 0;
      span = Math.min(longest, Math.max(SHORTEST_SECONDS, known));
      say(start, `${duration(span)} ago`);
      const most = Math.max(0, ...rows.flatMap((row) => row.slice(1)).filter((value) => value !== null));
      const scale = top ?? (most > 0 ? most : 1);
      series.forEach((_, index) => {
        const line = rows.map((row) => [where(row[0]), row[index + 1]]);
        lines[index][0].setAttribute("d", path(line, scale, true));
        lines[index][1].setAttribute("d", path(line, scale, false));
      });
      say(upper, format(scale));
      say(middle, format(scale / 2));
      const latest = rows.at(-1);
      reconcile(now, latest ? series.map(([name, tone], index) => [name, tone, latest[index + 1]]) : [], (each) => each[0],
        ([, tone, value]) => h("b", { class: tone }, value === null ? "–" : format(value)));
      if (at !== null) point(at);
      fillTable();
    },
  };
}

/** Rows for a chart of the rates, per second, of counters in `samples`. */
export function rates(samples, ...names) {
  return between(samples, (before, after) => names.map((name) => (after[name] - before[name]) / (after.time - before.time)));
}

/** Rows for a chart: what `values` makes of each two neighbours among `samples`. */
export function between(samples, values) {
  const rows = [];
  for (let at = 1; at < samples.length; at += 1) {
    if (samples[at].time - samples[at - 1].time > 0.5) rows.push([samples[at].time, ...values(samples[at - 1], samples[at])]);
  }
  return rows;
}
