// What happened since the daemon started.

import { card, h, table } from "../dom.js";
import { moment } from "../format.js";

const SHOWN = 300;
const BAD = /^(remote-down|fetch-failed|corrupt-arrival|quarantined|replaced-while-read|takeover-failed|hidden-files|mountpoint-unprotected|sweep-failed|disk-takes-no-writes|bytes-lost|disk-failed|disk-lost|workdir-lost|unsent-lost|not-deleted)$/;
const WARN = /^(unsent|send-delayed|delete-delayed|kept-unsent|served-unchecked|workdir-refused|limit-reached|quota-reached|disk-full|connections-refused|access-refused|configuration-refused|zone-not-configured|index-renewed|draining|summed-up)$/;

export function tone(kind) {
  return BAD.test(kind) ? "bad" : WARN.test(kind) ? "warn" : "calm";
}

export function eventCells(event) {
  const shown = (name, value) => (name === "uid" && event.user ? [h("em", null, "user "), event.user] : [h("em", null, `${name} `), value]);
  return Object.entries(event.fields).map(([name, value]) => h("span", { class: "field" }, shown(name, value), " "));
}

export const events = {
  name: "events",
  title: "Events",
  badge: (state) => {
    const number = state.events.filter((each) => tone(each.kind) === "bad").length;
    return number ? String(number) : "";
  },
  isForGroup: true,
  open(state) {
    const filter = h("input", { type: "search", placeholder: "kind or text", "aria-label": "Filter", on: { input: () => update() } });
    const onlyBad = h("input", { type: "checkbox", on: { change: () => update() } });
    const list = table("Events", [["#", "number"], ["when", "when"], ["what", ""], ["", "name"]], (event) => event.number,
      (event) => [event.number, moment(event.time), h("strong", { class: `kind ${tone(event.kind)}` }, event.kind), eventCells(event)],
      "Nothing has happened, or nothing that matches.");
    const update = () => {
      const words = filter.value.toLowerCase();
      const found = state.events.filter((each) => (!onlyBad.checked || tone(each.kind) !== "calm")
        && `${each.kind} ${each.user} ${Object.values(each.fields).join(" ")}`.toLowerCase().includes(words));
      list.fill(found.slice(-SHOWN).reverse());
    };
    const bar = h("div", { class: "bar" }, filter, h("label", null, onlyBad, " only what needs a look"));
    return { root: h("div", { class: "grid" }, bar, card("Events, newest first", null, list.root)), update };
  },
};
