// The last minutes, hour or day.

import { Refusal, ask } from "../api.js";
import { between, chart, rates } from "../chart.js";
import { h, say } from "../dom.js";
import { count, latency, size } from "../format.js";

const AGAIN_MS = 9000;
const RANGES = [["last 10 minutes", 600], ["last hour", 3600], ["last 24 hours", 86400]];

const each = (value) => (value >= 100 || Number.isInteger(value) ? count(Math.round(value)) : value.toFixed(1));
const perSecond = (value) => `${each(value)}/s`;
const bytesPerSecond = (value) => `${size(Math.round(value))}/s`;
const share = (value) => `${Math.round(100 * value)} %`;

/** The time within which `share` of the operations between two samples ended: the upper bound of their bucket. */
function quantile(before, after, share) {
  const total = after.operations - before.operations;
  if (total <= 0) return null;
  const found = after.latencies.find(([, number], at) => number - (before.latencies[at]?.[1] ?? 0) >= share * total);
  return found ? found[0] : after.latencies.at(-1)[0];
}

export const history = {
  name: "history",
  title: "History",
  isForGroup: true,
  open() {
    const opens = chart("Opens of objects", [["found here", "first"], ["fetched", "second"]], perSecond);
    const hitRate = chart("Hit rate", [["of all opens", "first"]], share, 1);
    const moved = chart("Transfers", [["fetched", "second"], ["sent", "third"]], bytesPerSecond);
    const asked = chart("Requests to the stores", [["requests", "third"]], perSecond);
    const calls = chart("Operations of the kernel", [["operations", "first"]], perSecond);
    const slow = chart("Latency of operations", [["99 % within", "third"], ["half within", "first"]], latency);
    const held = chart("Cache", [["cached", "first"]], (value) => size(Math.round(value)));
    const gone = chart("Evictions", [["files", "second"]], perSecond);
    const note = h("p", { class: "note" });
    const range = h("select", { "aria-label": "Range", on: { change: () => { askedAt = -Infinity; show(); } } },
      RANGES.map(([name, seconds]) => h("option", { value: seconds, selected: seconds === 3600 }, name)));
    const charts = [opens, hitRate, calls, slow, moved, asked, held, gone];
    const root = h("div", { class: "grid" }, h("div", { class: "bar" }, range), charts.map((one) => {
      one.root.classList.add("half");
      return one.root;
    }), note);
    let isAsking = false;
    let askedAt = -Infinity;
    async function show() {
      if (isAsking || performance.now() - askedAt < AGAIN_MS) return;
      isAsking = true;
      try {
        const longest = Number(range.value);
        const samples = await ask("history", { since: Math.floor(Date.now() / 1000 - longest) });
        const fill = (one, rows) => one.update(rows, longest);
        askedAt = performance.now();
        fill(calls, rates(samples, "operations"));
        fill(slow, between(samples, (before, after) => [quantile(before, after, 0.99), quantile(before, after, 0.5)]));
        fill(opens, rates(samples, "hits", "misses"));
        fill(hitRate, between(samples, (before, after) => {
          const [hits, misses] = [after.hits - before.hits, after.misses - before.misses];
          return [hits + misses > 0 ? hits / (hits + misses) : null];
        }));
        fill(moved, rates(samples, "bytes_fetched", "bytes_uploaded"));
        fill(asked, rates(samples, "requests"));
        fill(held, samples.map((one) => [one.time, one.cached_bytes]));
        fill(gone, rates(samples, "files_evicted"));
        say(note, "One sample every ten seconds for an hour, and every five minutes for a day, since the daemon started.");
      } catch (problem) {
        if (!(problem instanceof Refusal)) throw problem;
      } finally {
        isAsking = false;
      }
    }
    return { root, update: show };
  },
};
