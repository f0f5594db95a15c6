// A treemap: rectangles as large as what they stand for, nearly square (Bruls, Huizing, van Wijk: Squarified Treemaps).

import { h, printable } from "./dom.js";
import { counted, size } from "./format.js";

const HUES = 9;
const HEAD = 22;
const SMALLEST = 3;

function worst(row, side, sum) {
  const most = row[0];
  const least = row[row.length - 1];
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}

/** Rectangles {x, y, w, h} for `weights`, which are in falling order, in a space of w by h. */
export function squarified(weights, w, h) {
  const total = weights.reduce((sum, each) => sum + each, 0);
  const places = [];
  if (total <= 0 || w <= 0 || h <= 0) return weights.map(() => ({ x: 0, y: 0, w: 0, h: 0 }));
  const scale = (w * h) / total;
  const areas = weights.map((each) => Math.max(each * scale, 1e-9));
  let [x, y, at] = [0, 0, 0];
  while (at < areas.length) {
    const side = Math.max(1e-6, Math.min(w, h));
    const row = [areas[at]];
    let sum = areas[at];
    while (at + row.length < areas.length) {
      const next = areas[at + row.length];
      if (worst([...row, next], side, sum + next) > worst(row, side, sum)) break;
      row.push(next);
      sum += next;
    }
    const depth = sum / side;
    let along = 0;
    for (const area of row) {
      const length = area / depth;
      places.push(w >= h ? { x, y: y + along, w: depth, h: length } : { x: x + along, y, w: length, h: depth });
      along += length;
    }
    if (w >= h) [x, w] = [x + depth, w - depth];
    else [y, h] = [y + depth, h - depth];
    at += row.length;
  }
  return places;
}

function hue(name) {
  let sum = 0;
  for (const each of name) sum = (sum * 31 + each.codePointAt(0)) % 997;
  return sum % HUES;
}

function placed(element, { x, y, w, h: height }) {
  for (const [name, value] of [["left", x], ["top", y], ["width", w], ["height", height]]) {
    element.style.setProperty(name, `${value.toFixed(1)}px`);
  }
}

function said(part) {
  return `${part.name || "others"}, ${size(part.size_bytes)} in ${counted(part.files, "file")}${
    part.unsent_bytes ? `, ${size(part.unsent_bytes)} unsent` : ""}`;
}

/** Fill `frame` with the parts of `usage`; `go(names)` is called with the names of what is chosen, from the top. */
export function draw(frame, usage, go) {
  const { width, height } = frame.getBoundingClientRect();
  const parts = usage.parts.filter((part) => part.size_bytes > 0);
  const places = squarified(parts.map((part) => part.size_bytes), width, height);
  const cells = [];
  parts.forEach((part, at) => {
    const place = places[at];
    if (place.w < SMALLEST || place.h < SMALLEST) return;
    const inner = { w: place.w - 6, h: place.h - HEAD - 3 };
    const hasRoom = part.parts.length > 0 && inner.w > 24 && inner.h > 14;
    const cell = h(part.name ? "button" : "div", { type: part.name ? "button" : null, title: said(part), "aria-label": said(part),
      class: `cell hue${part.name ? hue(part.name) : "-none"}${part.unsent_bytes ? " unsent" : ""}${hasRoom ? " group" : ""}`,
      on: { click: () => part.name && go([part.name]) } });
    if (place.w > 44 && place.h > 18) {
      cell.append(h("span", { class: "label" }, h("b", null, part.name || `${counted(part.files, "other file")}`), " ", size(part.size_bytes)));
    }
    placed(cell, place);
    cells.push(cell);
    if (hasRoom) cells.push(...within(part, { x: place.x + 3, y: place.y + HEAD, ...inner }, go));
  });
  frame.replaceChildren(...cells);
}

function within(part, space, go) {
  const parts = part.parts.filter((each) => each.size_bytes > 0);
  return squarified(parts.map((each) => each.size_bytes), space.w, space.h).flatMap((place, at) => {
    const each = parts[at];
    if (place.w < SMALLEST || place.h < SMALLEST) return [];
    const cell = h("div", { title: `${printable(part.name)}/${said(each)}`, "aria-hidden": "true",
      class: `cell leaf hue${part.name ? hue(part.name) : "-none"}${each.unsent_bytes ? " unsent" : ""}`,
      on: { click: () => go(each.name ? [part.name, each.name] : [part.name]) } });
    if (place.w > 38 && place.h > 16) cell.append(h("span", { class: "label" }, each.name || "others"));
    cell.style.setProperty("--share", `${Math.max(26, 52 - 4 * at)}%`);
    placed(cell, { x: space.x + place.x, y: space.y + place.y, w: place.w, h: place.h });
    return [cell];
  });
}
