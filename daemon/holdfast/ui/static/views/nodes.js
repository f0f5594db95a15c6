// All nodes of the cluster, as each has told the stores: how it is, and which state it holds.

import { Refusal, ask } from "../api.js";
import { card, h, pill, say, table } from "../dom.js";
import { count, counted, duration, size } from "../format.js";

const AGAIN_MS = 30000;
const SILENT_SECONDS = 900;

/** One entry a node: it tells each store of its own, and is as it said last. */
function byNode(reports) {
  const nodes = new Map();
  for (const each of reports) {
    const key = JSON.stringify([each.node, each.hosts]);
    const node = nodes.get(key) ?? { key, node: each.node, hosts: each.hosts, told: 0, here: each.this_node, queries: new Set(), partitions: 0, bytes: 0 };
    if (each.told >= node.told) Object.assign(node, { told: each.told, health: each.health, draining: each.draining });
    for (const query of each.queries) {
      node.queries.add(query.path);
      node.partitions += new Set(query.stores.map((store) => `${store.operator}/${store.partition}`)).size;
      node.bytes += query.stores.reduce((sum, store) => sum + store.size_bytes, 0);
    }
    nodes.set(key, node);
  }
  return [...nodes.values()].sort((one, other) => one.node.localeCompare(other.node));
}

function condition(node, now) {
  if (now - node.told > SILENT_SECONDS) return pill(`silent for ${duration(now - node.told)}`, "bad");
  const problems = node.health?.problems ?? [];
  if (problems.length > (node.draining ? 1 : 0)) return pill(counted(problems.length, "problem"), "bad");
  return node.draining ? pill("draining", "warn") : pill("ok", "good");
}

export const nodes = {
  name: "nodes",
  title: "Nodes",
  isForGroup: true,
  open() {
    const note = h("p", { class: "note", role: "status" }, "Asking the stores …");
    let now = 0;
    const list = table("Nodes", [["node", ""], ["", ""], ["what is wrong", "note"], ["version", ""], ["data", ""], ["cached", "number"], ["free", "number"],
      ["queries", "number"], ["partitions", "number"], ["state", "number"], ["told", "when"]], (node) => node.key, (node) => [
      [h("strong", { title: node.hosts.join(", ") }, node.node), node.here ? " (this one)" : ""],
      condition(node, now),
      node.health?.problems.join("; ") ?? "",
      node.health?.version ?? "?",
      node.health?.data_mode ?? "?",
      node.health ? size(node.health.cached_bytes) : "?",
      node.health ? size(node.health.free_bytes) : "?",
      count(node.queries.size),
      count(node.partitions),
      size(node.bytes),
      node.here ? "now" : `${duration(Math.max(0, now - node.told))} ago`,
    ], "No node has told the stores anything.");
    let isAsking = false;
    let askedAt = -Infinity;
    return {
      root: h("div", { class: "grid" }, card("Nodes", null, list.root), note),
      async update() {
        if (isAsking || performance.now() - askedAt < AGAIN_MS) return;
        isAsking = true;
        try {
          const found = await ask("holdings", { all_nodes: 1 });
          now = Date.now() / 1000;
          list.fill(byNode(found.nodes));
          say(note, [...found.problems, "A node appears here once it holds state of a query. It reports within seconds that state has come or gone, within a minute what is wrong, and versions every ten minutes."].join(" "));
        } catch (problem) {
          if (!(problem instanceof Refusal)) throw problem;
          say(note, problem.message);
        } finally {
          [isAsking, askedAt] = [false, performance.now()];
        }
      },
    };
  },
};
