// The last hour.

import { Refusal, ask } from "../api.js";
import { between, chart, rates } from "../chart.js";
import { h, say } from "../dom.js";
import { count, latency, size } from "../format.js";

const AGAIN_MS = 9000;


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
  title: "Last hour",
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
    const charts = [opens, hitRate, calls, slow, moved, asked, held, gone];
    const root = h("div", { class: "grid" }, charts.map((one) => {
      one.root.classList.add("half");
      return one.root;
    }), note);
    let isAsking = false;
    let askedAt = -Infinity;
    return {
      root,
      async update() {
        if (isAsking || performance.now() - askedAt < AGAIN_MS) return;
        isAsking = true;
        try {
          const samples = await ask("history");
          askedAt = performance.now();
          calls.update(rates(samples, "operations"));
          slow.update(between(samples, (before, after) => [quantile(before, after, 0.99), quantile(before, after, 0.5)]));
          opens.update(rates(samples, "hits", "misses"));
          hitRate.update(between(samples, (before, after) => {
            const [hits, misses] = [after.hits - before.hits, after.misses - before.misses];
            return [hits + misses > 0 ? hits / (hits + misses) : null];
          }));
          moved.update(rates(samples, "bytes_fetched", "bytes_uploaded"));
          asked.update(rates(samples, "requests"));
          held.update(samples.map((one) => [one.time, one.cached_bytes]));
          gone.update(rates(samples, "files_evicted"));
          say(note, "One sample every ten seconds, since the daemon started, for an hour at most.");
        } catch (problem) {
          if (!(problem instanceof Refusal)) throw problem;
        } finally {
          isAsking = false;
        }
      },
    };
  },
};
