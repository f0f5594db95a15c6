// What is cached, by directory, and what can be done with it.

import { confirmed, follow, give, tell } from "../actions.js";
import { Refusal, ask } from "../api.js";
import { card, h, pill, reconcile, say, table } from "../dom.js";
import { count, counted, moment, size } from "../format.js";
import { draw } from "../treemap.js";

const PAGE = 200;
const AGAIN_MS = 15000;
const TONES = { cached: "good", remote: "calm", fetching: "warn", unsent: "warn", uploading: "warn", local: "calm", unknown: "warn" };

/** The address of the view at the path of `names` below the mount. */
function addressOf(names) {
  return `#cache/${names.map(encodeURIComponent).join("/")}`;
}

export const cache = {
  name: "cache",
  title: "Cache",
  isForGroup: true,
  open(state) {
    let names = [];
    let usage = null;
    let asked = 0;
    let next = null;
    let entries = [];
    let visit = 0;
    const path = () => [state.status.mountpoint, ...names].join("/");
    const go = (below) => { location.hash = addressOf([...names, ...below]); };

    const trail = h("ol", { class: "trail" });
    const sum = h("p", { class: "note" }, "Adding up …");
    const frame = h("div", { class: "treemap", role: "group", "aria-label": "Cached bytes by directory" });
    const nothing = h("p", { class: "empty", hidden: true }, "Nothing below this is cached on this node.");
    const filter = h("input", { type: "search", placeholder: "name", "aria-label": "Filter the names", on: { input: () => list() } });
    const more = h("button", { type: "button", hidden: true, on: { click: () => page() } }, "More");
    const problem = h("p", { class: "refused", hidden: true });
    const rows = table("Files and directories", [["name", "name"], ["state", ""], ["size", "number"], ["modified", "when"], ["last used", "when"]],
      (entry) => entry.path, (entry) => {
        const name = entry.path.slice(path().length + 1) || entry.path;
        const isDirectory = entry.type === "directory";
        return [
          h("a", { class: "entry", href: addressOf(entry.path === path() ? names : [...names, name]) }, isDirectory ? `${name}/` : name),
          [isDirectory && entry.state === "local" ? "" : pill(entry.state, TONES[entry.state]), entry.open ? [" ", pill("open", "calm")] : "", entry.pinned ? [" ", pill("pinned", "good")] : ""],
          isDirectory ? "" : size(entry.size_bytes),
          moment(entry.modified),
          moment(entry.used),
        ];
      }, "There is nothing here.");

    async function guarded(action) {
      const ours = visit;
      try {
        await action(() => ours === visit);
      } catch (failure) {
        if (!(failure instanceof Refusal)) throw failure;
        if (ours === visit && !failure.isAway) [problem.hidden, problem.textContent] = [false, failure.message];
      }
    }

    const addUp = () => guarded(async (isCurrent) => {
      asked = performance.now();
      const found = await ask("usage", { path: path() });
      if (!isCurrent()) return;
      usage = found;
      paint();
    });

    const page = () => guarded(async (isCurrent) => {
      const found = await ask("entries", { path: path(), after: next ?? "", limit: PAGE });
      if (!isCurrent()) return;
      entries = [...entries, ...found.entries];
      next = found.next;
      more.hidden = next === null;
      list();
    });

    function list() {
      const words = filter.value.toLowerCase();
      rows.fill(entries.filter((entry) => entry.path.slice(path().length).toLowerCase().includes(words)));
    }

    function paint() {
      if (usage === null) return;
      const unsent = usage.unsent_bytes ? `, ${size(usage.unsent_bytes)} of them unsent` : "";
      say(sum, `${size(usage.size_bytes)} in ${counted(usage.files, "file")}${unsent}`);
      frame.hidden = usage.parts.length === 0;
      nothing.hidden = usage.parts.length > 0 || usage.files > 0;
      draw(frame, usage, go);
    }

    async function again() {
      visit += 1;
      [entries, next, problem.hidden] = [[], null, true];
      await Promise.all([addUp(), page()]);
    }

    const acting = (action) => async () => {
      await action(path());
      await again();
    };
    const doing = (title, verb, did, route) => h("button", { type: "button", on: { click: acting((at) =>
      follow(`${title} ${at}`, did, route, { path: at })) } }, verb);
    const evict = h("button", { type: "button", on: { click: acting(async (at) => {
      const sentence = `Copies at or below ${at} are dropped from this node. The store keeps them; the next open fetches them again.`;
      if (await confirmed("Evict?", sentence, "Evict")) await follow(`Evicting ${at}`, "Evicted", "evict", { path: at });
    }) } }, "Evict");
    const pin = h("button", { type: "button", on: { click: acting((at) => give("Pin", `${at} is pinned: nothing there is evicted.`, "pin", { path: at })) } }, "Pin");
    const unpin = h("button", { type: "button", on: { click: acting((at) => give("Unpin", `${at} is no longer pinned.`, "unpin", { path: at })) } }, "Unpin");
    const why = h("button", { type: "button", on: { click: () => guarded(async () => {
      const found = await ask("why", { path: path() });
      tell("Why", h("p", { class: "name" }, found.path), h("ul", null, found.reasons.map((each) => h("li", null, each))));
    }) } }, "Why");
    const tools = h("div", { class: "bar tools", role: "group", "aria-label": "Actions on this directory" },
      doing("Fetching", "Prefetch", "Fetched", "prefetch"), pin, unpin, doing("Verifying", "Verify", "Verified", "verify"), evict, why);

    const observer = new ResizeObserver(() => paint());
    observer.observe(frame);
    const root = h("div", { class: "grid" },
      h("div", { class: "bar" }, h("nav", { "aria-label": "Path" }, trail), tools), problem,
      card("Cached here, by size", null, sum, frame, nothing),
      card("What is there, here or in the store", null, h("div", { class: "bar" }, filter), rows.root, more));
    let isOpen = false;
    return {
      root,
      closed: () => observer.disconnect(),
      went(rest) {
        names = rest;
        isOpen = false;
        usage = null;
        filter.value = "";
        frame.replaceChildren();
        rows.fill([]);
        say(sum, "Adding up …");
      },
      update() {
        if (!isOpen) {
          isOpen = true;
          const places = [[state.status.mountpoint, []], ...names.map((name, at) => [name, names.slice(0, at + 1)])];
          reconcile(trail, places, ([, to]) => to.join("/"), ([name, to]) => h("li", null, h("a", { href: addressOf(to) }, name)));
          again();
        } else if (state.problem === null && performance.now() - asked > AGAIN_MS) {
          addUp();
        }
      },
    };
  },
};
