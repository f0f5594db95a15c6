// Elements, made without ever taking text for HTML: names of files are whatever somebody chose.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/gu;

/** Text with control characters, and what reorders or hides text, written out. */
export function printable(text) {
  return String(text).replace(HIDDEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === "place") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true ? "" : printable(value));
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false)
    .map((each) => (each instanceof Node ? each : document.createTextNode(printable(each)))));
  return element;
}

/** An HTML element. `on` has event handlers, `place` properties of its style; null and false children are left out. */
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function svg(tag, properties, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

/** Set the text of an element, if it differs: a live region tells of each change. */
export function say(element, text) {
  const wanted = printable(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Make the children of `parent` those of `items`, keeping the elements, and with them focus, of items that stay. */
export function reconcile(parent, items, keyOf, make) {
  const former = parent.children_by_key ?? new Map();
  const present = new Map();
  let before = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const text = JSON.stringify(item);
    let found = former.get(key);
    if (present.has(key)) continue;
    if (found === undefined || found.text !== text) {
      const element = make(item);
      if (found !== undefined) {
        if (before === found.element) before = element;
        found.element.replaceWith(element);
      }
      found = { element, text };
    }
    present.set(key, found);
    if (found.element !== before) parent.insertBefore(found.element, before);
    before = found.element.nextElementSibling;
  }
  while (before !== null) {
    const next = before.nextElementSibling;
    before.remove();
    before = next;
  }
  parent.children_by_key = present;
}

/** A table: `columns` are [title, class], and `make` gives a row's cells. `fill` shows rows, or the sentence `empty`. */
export function table(caption, columns, keyOf, cells, empty) {
  const body = h("tbody");
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const heads = columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title));
  const grid = h("table", null, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, heads)), body);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, grid);
  const row = (item) => h("tr", null, cells(item).map((cell, at) => h("td", { class: columns[at][1] }, cell)));
  return {
    root: h("div", { class: "table" }, frame, nothing),
    fill(items) {
      frame.hidden = items.length === 0;
      nothing.hidden = items.length > 0;
      reconcile(body, items, keyOf, row);
    },
  };
}

/** A card with a title. */
export function card(title, properties, ...children) {
  return h("section", { ...properties, class: `card ${properties?.class ?? ""}`.trim(), "aria-label": title },
    h("h2", null, title), ...children);
}

/** A small label; `tone` is good, warn, bad or calm. */
export function pill(text, tone = "calm") {
  return h("span", { class: `pill ${tone}` }, text);
}
