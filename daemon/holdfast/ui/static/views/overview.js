// How the node is, on one screen.

import { card, h, pill, reconcile, say, table } from "../dom.js";
import { count, counted, duration, moment, percent, size } from "../format.js";
import { eventCells, tone } from "./events.js";

function figure(title) {
  const value = h("p", { class: "value" }, "–");
  const note = h("p", { class: "note" }, "");
  const meter = h("div", { class: "meter", hidden: true }, h("div"));
  return {
    root: card(title, { class: "figure" }, value, meter, note),
    set(text, below, share) {
      say(value, text);
      say(note, below);
      meter.hidden = share === undefined;
      if (share !== undefined) meter.firstElementChild.style.setProperty("inline-size", `${Math.min(100, 100 * share)}%`);
      meter.firstElementChild.className = share > 0.95 ? "bad" : share > 0.85 ? "warn" : "";
    },
    mark(kind) {
      value.className = `value ${kind}`;
    },
  };
}

function stores() {
  return table("Stores", [["store", ""], ["", ""], ["address", "name"], ["", "note"]], ([name]) => name,
    ([name, store]) => [
      name,
      pill(store.up ? "up" : "down", store.up ? "good" : "bad"),
      store.url,
      [store.up ? "" : `since ${moment(store.since)}: ${store.problem} `,
        store.pending_deletions ? `${counted(store.pending_deletions, "deletion")} to send` : ""],
    ], "No store is configured.");
}

export const overview = {
  name: "overview",
  title: "Overview",
  open(state) {
    const hitRate = figure("Hit rate");
    const cache = figure("Cache");
    const disk = figure("Disk");
    const moved = figure("Transfers");
    const unsent = figure("Unsent");
    const up = figure("Up for");
    const storeTable = stores();
    const latest = h("ol", { class: "events" });
    const requests = h("dl", { class: "facts" });
    const events = card("Latest events", null, latest, h("a", { href: "#events" }, "All events"));
    const root = h("div", { class: "grid" },
      h("div", { class: "figures" }, hitRate.root, cache.root, disk.root, moved.root, unsent.root, up.root),
      card("Stores", null, storeTable.root),
      card("The mount", { class: "half" }, requests),
      h("div", { class: "half" }, events));
    return {
      root,
      update() {
        const { status, rates } = state;
        up.set(duration(status.uptime_seconds), `data: ${status.data_mode.split(":")[0]}`);
        disk.set(`${size(status.free_bytes)} free`, `${size(status.min_free_bytes)} are kept free`);
        storeTable.fill(Object.entries(status.remotes));
        reconcile(requests, mountFacts(status), ([name]) => name, ([name, value]) =>
          h("div", null, h("dt", null, name), h("dd", null, value)));
        for (const each of [hitRate, cache, moved, unsent]) each.root.hidden = status.is_public;
        events.hidden = status.is_public;
        if (status.is_public) return;
        const { hits, misses } = status.counters;
        hitRate.set(percent(hits, hits + misses), `${count(hits)} found here, ${count(misses)} fetched`);
        const most = status.max_bytes * (1 + status.other_disks.length);
        cache.set(size(status.cached_bytes), `${most ? `of ${size(most)} ` : ""}in ${
          counted(status.cached_files, "file")}`, most ? status.cached_bytes / most : undefined);
        moved.set(rates ? `${size(Math.round(rates.fetched))}/s` : "–",
          `${size(status.counters.bytes_fetched)} fetched, ${size(status.counters.bytes_uploaded)} sent in all`);
        unsent.set(status.unsent_files ? counted(status.unsent_files, "file") : "nothing",
          status.unsent_files ? "only this node has them" : "the stores have everything");
        unsent.mark(status.unsent_files ? "warn" : "good");
        const lately = state.events.slice(-6).reverse();
        reconcile(latest, lately, (event) => event.number, (event) =>
          h("li", { class: tone(event.kind) }, h("time", null, moment(event.time)), h("strong", null, event.kind),
            h("span", { class: "name" }, eventCells(event))));
      },
    };
  },
};

function mountFacts(status) {
  const facts = [
    ["data", status.data_mode === "passthrough" ? "the kernel reads and writes files by itself (passthrough)" : status.data_mode],
    ["end", status.takeover === "takeover" ? "the mount outlives the daemon" : `the mount ends with the daemon, and what is open in it fails from then on (${status.takeover})`],
  ];
  if (status.is_public) return [...facts, ["rights", "you see what everybody may: members of the control group see the rest"]];
  const asked = Object.entries(status.counters.requests).map(([kind, number]) => `${count(number)} ${kind}`);
  return [
    ...facts,
    ["directory", status.store],
    ["requests", asked.join(", ") || "none yet"],
    ["fetching", counted(status.fetching, "object")],
    ["corrupt", `${count(status.counters.corrupt_dropped)} dropped, ${count(status.quarantined)} in quarantine`],
    ["evicted", `${counted(status.counters.files_evicted, "file")}, ${size(status.counters.bytes_evicted)}`],
  ];
}
