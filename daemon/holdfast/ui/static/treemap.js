// A treemap: rectangles as large as what they stand for, nearly square (Bruls, Huizing, van Wijk: Squarified Treemaps).

import { h } from "./dom.js";
import { counted, size } from "./format.js";

const HUES = 9;
const HEAD = 22;
const INNER_HEAD = 18;
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

/** Part and names of what is at the end of a chain of directories that have next to nothing beside each other. */
function joined(part) {
  const names = [part.name];
  let end = part;
  while (end.parts.length > 0 && end.parts[0].parts.length > 0 && end.parts[0].size_bytes >= 0.98 * part.size_bytes) {
    end = end.parts[0];
    names.push(end.name);
  }
  return [end, names];
}

function cellOf(part, names, above, depth, at, go) {
  const isGroup = depth === 0;
  const cell = h(isGroup && part.name ? "button" : "div", { type: isGroup && part.name ? "button" : null, title: said(part),
    "aria-label": isGroup ? said(part) : null, "aria-hidden": isGroup ? null : "true",
    class: `cell ${part.name ? `hue${hue([...above, ...names][0])}` : "hue-none"}${part.unsent_bytes ? " unsent" : ""}`,
    on: { click: () => go([...above, ...(part.name ? names : [])]) } });
  cell.style.setProperty("--share", `${Math.max(20, 22 + 9 * depth - at)}%`);
  return cell;
}

function cellsIn(parts, space, above, depth, go) {
  const shown = parts.filter((part) => part.size_bytes > 0);
  return squarified(shown.map((part) => part.size_bytes), space.w, space.h).flatMap((place, at) => {
    if (place.w < SMALLEST || place.h < SMALLEST) return [];
    const [end, names] = joined(shown[at]);
    const cell = cellOf(shown[at], names, above, depth, at, go);
    if (place.w > 38 && place.h > 16) {
      const label = shown[at].name ? names.join("/") : counted(shown[at].files, "other file");
      cell.append(h("span", { class: "label" }, depth ? label : h("b", null, label), depth ? "" : ` ${size(shown[at].size_bytes)}`));
    }
    placed(cell, { x: space.x + place.x, y: space.y + place.y, w: place.w, h: place.h });
    const head = depth ? INNER_HEAD : HEAD;
    const inner = { x: space.x + place.x + 3, y: space.y + place.y + head, w: place.w - 6, h: place.h - head - 3 };
    const hasRoom = end.parts.length > 0 && inner.w > 24 && inner.h > 14;
    return [cell, ...(hasRoom ? cellsIn(end.parts, inner, [...above, ...names], depth + 1, go) : [])];
  });
}

/** Fill `frame` with the parts of `usage`; `go(names)` is called with the names of what is chosen, from the top. */
export function draw(frame, usage, go) {
  const { width, height } = frame.getBoundingClientRect();
  frame.replaceChildren(...cellsIn(usage.parts, { x: 0, y: 0, w: width, h: height }, [], 0, go));
}
