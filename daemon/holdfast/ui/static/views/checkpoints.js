// Checkpoints by job: what each has of its own and what they share, and what a sweep would take.

import { confirmed, follow } from "../actions.js";
import { Refusal, ask, order } from "../api.js";
import { card, h, pill, reconcile, say, table } from "../dom.js";
import { count, counted, moment, size } from "../format.js";

const ITEMS = 200;
const LATEST = 10;
const PART = /\/(commits\/\d+|chk-\d+|state|shared|taskowned)$/;
const isShared = (each) => each.what === "state" || each.what === "shared";

function byJob(found) {
  const jobs = new Map();
  for (const each of found) {
    const job = PART.test(each.path) ? each.path.replace(PART, "") : each.path.replace(/\/[^/]*$/, "");
    if (!jobs.has(job)) jobs.set(job, { job, own: [], shared: [] });
    jobs.get(job)[isShared(each) ? "shared" : "own"].push(each);
  }
  return [...jobs.values()];
}

function total(list) {
  return list.reduce((sum, each) => sum + each.size_bytes, 0);
}

function jobCard({ job, own, shared }, root) {
  const [sharedBytes, ownBytes] = [total(shared), total(own)];
  const rows = table(`Checkpoints of ${job}`, [["", "name"], ["what", ""], ["files", "number"], ["size", "number"], ["modified", "when"]],
    (each) => each.path, (each) => [
      each.path.slice(job.length + 1) || each.path,
      [each.what, " ", each.complete ? "" : pill("incomplete", "warn")],
      count(each.files),
      size(each.size_bytes),
      moment(each.modified),
    ], "It has no checkpoint that is complete.");
  const latest = own.slice(-LATEST).reverse();
  rows.fill([...shared, ...latest]);
  const left = own.length - latest.length;
  const all = left > 0 && h("button", { type: "button", on: { click: (event) => {
    event.target.remove();
    rows.fill([...shared, ...own.slice().reverse()]);
  } } }, `${count(left)} earlier ones`);
  const bar = h("div", { class: "split", role: "img", "aria-label": `${size(sharedBytes)} shared, ${size(ownBytes)} of single checkpoints` },
    h("span", { class: "shared", place: { "flex-grow": sharedBytes } }), h("span", { class: "own", place: { "flex-grow": ownBytes } }));
  return card(job.startsWith(`${root}/`) ? job.slice(root.length + 1) : job, { class: "job" },
    h("p", { class: "lead" }, `${own.length === 1 ? "1 checkpoint" : `${count(own.length)} checkpoints`}, ${size(sharedBytes)} shared by them, ${size(ownBytes)} of their own`),
    bar, rows.root, all);
}

function planned(plan, done) {
  const reasons = Object.entries(plan.by_reason).map(([reason, number]) => `${count(number)} ${reason.replaceAll("_", " ")}`);
  const rows = table("What would be removed", [["what", "name"], ["why", ""], ["size", "number"], ["modified", "when"]], (item) => item.path,
    (item) => [item.path.slice(plan.path.length + 1), item.why, size(item.size_bytes), moment(item.modified)], "");
  rows.fill(plan.items);
  const carryOut = h("button", { type: "button", class: "danger", on: { click: async () => {
    const sentence = `This removes ${count(plan.count)} of what is in the store below ${plan.path}, ${size(plan.size_bytes)}. It can't be undone.`;
    if (!(await confirmed("Carry out the plan?", sentence, "Remove"))) return;
    await follow(`Removing below ${plan.path}`, "Removed", "checkpoints/execute", { plan: plan.id });
    done();
  } } }, "Carry out");
  const kept = plan.kept.length > 0 && h("details", null, h("summary", null, `${count(plan.kept.length)} kept, because they can't be judged`),
    h("ul", null, plan.kept.map((each) => h("li", null, h("span", { class: "name" }, each.path), `: ${each.why}`))));
  if (plan.count === 0) return card("Plan of a sweep", null, h("p", { class: "empty" }, `Nothing is to be removed below ${plan.path}.`), kept);
  const more = plan.count > plan.items.length && h("p", { class: "note" }, `The first ${plan.items.length} of ${count(plan.count)}: 'holdfast checkpoint show ${plan.id} --all' has all.`);
  return card("Plan of a sweep", null,
    h("div", { class: "bar" }, h("p", { class: "lead" }, h("b", null, `${count(plan.count)} to remove, ${size(plan.size_bytes)}`), `: ${reasons.join(", ")}. Nothing is touched yet.`), carryOut),
    rows.root, more, kept);
}

export const checkpoints = {
  name: "checkpoints",
  title: "Checkpoints",
  isForGroup: true,
  open(state) {
    const choices = h("datalist", { id: "roots" });
    const root = h("input", { type: "text", class: "path", list: "roots", "aria-label": "A directory in the mount", spellcheck: "false" });
    const jobs = h("div", { class: "grid" });
    const plan = h("div");
    const note = h("p", { class: "note", role: "status" }, "Both list the store below this directory. Planning changes nothing.");
    const places = h("button", { class: "main" }, "List");
    const sweep = h("button", { type: "button", on: { click: () => asking("Making a plan …", makePlan) } }, "Plan a sweep");
    const form = h("form", { class: "bar", on: { submit: (event) => {
      event.preventDefault();
      asking("Listing the store …", list);
    } } }, root, choices, places, sweep);

    async function asking(sentence, question) {
      say(note, sentence);
      note.className = "note";
      for (const button of [places, sweep]) button.disabled = true;
      try {
        say(note, await question(root.value.replace(/\/+$/, "")));
      } catch (problem) {
        if (!(problem instanceof Refusal)) throw problem;
        note.className = "refused";
        say(note, problem.message);
      }
      for (const button of [places, sweep]) button.disabled = false;
    }

    async function list(path) {
      const found = byJob(await ask("checkpoints", { path }));
      plan.replaceChildren();
      reconcile(jobs, found.slice(0, ITEMS), ({ job }) => job, (job) => jobCard(job, path));
      if (found.length === 0) return `There is no checkpoint below ${path}.`;
      return found.length > ITEMS ? `The first ${ITEMS} of ${count(found.length)} jobs: name a directory below.` : counted(found.length, "job");
    }

    async function makePlan(path) {
      const found = await order("checkpoints/sweep", { path, items: ITEMS });
      plan.replaceChildren(planned(found, () => asking("Listing the store …", list)));
      return "";
    }

    let isListed = false;
    return {
      root: h("div", { class: "grid" }, form, note, plan, jobs),
      update() {
        const zones = Object.keys(state.status.remotes).map((name) => `${state.status.mountpoint}/${name}`);
        reconcile(choices, zones, (zone) => zone, (zone) => h("option", { value: zone }));
        if (root.value === "" && document.activeElement !== root) root.value = zones[0] ?? "";
        if (!isListed && root.value !== "") {
          isListed = true;
          asking("Listing the store …", list);
        }
      },
    };
  },
};
