// Batches of Spark's streaming queries, as their drivers report them, with what this node did meanwhile.

import { Refusal, ask } from "../api.js";
import { card, h, reconcile, say, table } from "../dom.js";
import { count, latency, moment, size } from "../format.js";

const KEPT = 500;
const BARS = 120;
const PARTS = 3;

function longest(batch) {
  const parts = Object.entries(batch.parts).filter(([name]) => name !== "triggerExecution").sort((one, other) => other[1] - one[1]);
  return parts.slice(0, PARTS).map(([name, seconds]) => `${name} ${latency(seconds)}`).join(", ");
}

function bar(batch, most) {
  const title = `${batch.query}, batch ${batch.batch}: ${latency(batch.seconds)}, ${count(batch.misses)} misses, ${size(batch.fetched_bytes)} fetched`;
  return h("div", { class: batch.misses ? "slow" : "", title, place: { "block-size": `${Math.max(2, (100 * batch.seconds) / most)}%` } });
}

export const batches = {
  name: "batches",
  title: "Spark batches",
  isForGroup: true,
  open(state) {
    let found = [];
    let daemon = null;
    let isAsking = false;
    const query = h("select", { "aria-label": "Query", on: { change: () => show() } });
    const bars = h("div", { class: "bars", role: "img", "aria-label": "How long each of the last batches took; the table below has the figures" });
    const [upper, middle] = [h("span", { class: "upper" }), h("span", { class: "middle" })];
    const [from, to] = [h("span"), h("span")];
    const axis = h("div", { class: "axis" }, from, to);
    const chart = h("div", { class: "plot" }, upper, middle, bars);
    const note = h("p", { class: "note" });
    const rows = table("Batches", [["when", "when"], ["query", ""], ["user", ""], ["batch", "number"], ["took", "number"], ["longest parts", "note"], ["rows", "number"],
      ["hits", "number"], ["misses", "number"], ["fetched", "number"], ["sent", "number"], ["state: load, commit", "number"]],
    (each) => each.number, (each) => [moment(each.time), each.query, each.user || each.uid, each.batch, latency(each.seconds), longest(each), count(each.rows),
      count(each.hits), h("span", { class: each.misses ? "kind warn" : "" }, count(each.misses)), size(each.fetched_bytes), size(each.uploaded_bytes),
      `${latency(each.load_seconds)}, ${latency(each.commit_seconds)}`],
    "No driver on this node has reported a batch. Jobs that are set up with holdfast_spark.configure do.");

    function show() {
      const names = ["", ...new Set(found.map((each) => each.query))];
      reconcile(query, names, (name) => name, (name) => h("option", { value: name }, name || "all queries"));
      const chosen = found.filter((each) => query.value === "" || each.query === query.value);
      const last = chosen.slice(-BARS);
      const most = Math.max(0.001, ...last.map((each) => each.seconds));
      chart.hidden = axis.hidden = last.length === 0;
      say(upper, latency(most));
      say(middle, latency(most / 2));
      if (last.length) {
        say(from, `batch ${last[0].batch}, ${moment(last[0].time)}`);
        say(to, `batch ${last.at(-1).batch}, ${moment(last.at(-1).time)}`);
      }
      bars.replaceChildren(...last.map((each) => bar(each, most)));
      say(note, last.length ? `The last ${last.length}, the longest ${latency(most)}. Orange: with misses. What was fetched was so for all of this node.` : "");
      rows.fill(chosen.slice(-BARS).reverse());
    }

    return {
      root: h("div", { class: "grid" }, h("div", { class: "bar" }, query), card("How long they took", null, chart, axis, note), card("Batches, newest first", null, rows.root)),
      async update() {
        if (isAsking) return;
        isAsking = true;
        if (daemon !== state.status.pid) [daemon, found] = [state.status.pid, []];
        try {
          const more = await ask("spark/batches", { since: found.at(-1)?.number ?? 0, limit: KEPT });
          found = [...found, ...more].slice(-KEPT);
          show();
        } catch (problem) {
          if (!(problem instanceof Refusal)) throw problem;
          if (problem.status !== 404) return; // a daemon that takes no reports
          show();
        } finally {
          isAsking = false;
        }
      },
    };
  },
};
