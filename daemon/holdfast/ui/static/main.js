// The frame of the page: views, keys, theme, and whether the daemon answers.

import { h, reconcile, say } from "./dom.js";
import { duration } from "./format.js";
import { State } from "./state.js";
import { overview } from "./views/overview.js";
import { batches } from "./views/batches.js";
import { cache } from "./views/cache.js";
import { checkpoints } from "./views/checkpoints.js";
import { events } from "./views/events.js";
import { history } from "./views/history.js";
import { nodes } from "./views/nodes.js";
import { unsent } from "./views/unsent.js";
import { workdirs } from "./views/workdirs.js";

const VIEWS = [overview, cache, history, batches, checkpoints, workdirs, events, unsent, nodes];
const THEMES = ["system", "light", "dark"];
const place = (id) => document.getElementById(id);

let shown = null;
const links = new Map();
const state = new State(update);

function wanted() {
  const [name, ...parts] = location.hash.slice(1).split("/");
  const rest = parts.map(decoded).filter((part) => part !== "");
  const view = VIEWS.find((each) => each.name === name) ?? VIEWS[0];
  return { view, rest };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function show() {
  const { view, rest } = wanted();
  if (shown?.view !== view) {
    shown?.view.closed?.();
    shown = { view, ...view.open(state) };
    place("content").replaceChildren(shown.root);
    say(place("title"), view.title);
    nameWindow();
    for (const [each, link] of links) {
      if (each === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
  shown.went?.(rest);
  refreshView();
}

/** The title of the window: with the pages of several nodes open, the node's name comes first. */
function nameWindow() {
  const node = state.status?.node ? `${state.status.node}: ` : "";
  document.title = `${node}${shown.view.title} – Holdfast`;
}

/** What is wrong, on each view. */
function tellProblems(problems) {
  place("wrong").hidden = problems.length === 0;
  reconcile(place("wrong"), problems, (problem) => problem, (problem) => h("li", null, sentence(problem)));
}

function refreshView() {
  if (state.status === null || shown === null) return;
  const isWithheld = state.isPublic && shown.view.isForGroup;
  shown.root.hidden = isWithheld;
  place("withheld").hidden = !isWithheld;
  if (!isWithheld) shown.update();
}

function update() {
  const { status, problem } = state;
  const pill = place("state");
  pill.className = problem ? "bad" : status.draining ? "warn" : "good";
  say(pill, problem ? "not connected" : status.draining ? "draining" : "connected");
  tellProblems(problem ? [] : status.problems);
  const banner = place("banner");
  banner.hidden = problem === null;
  if (problem) {
    const since = state.lastSeen ? ` What you see is ${duration(Date.now() / 1000 - state.lastSeen)} old.` : "";
    say(banner, `${sentence(problem.message)} Trying again every two seconds.${since}`);
  }
  if (status === null) return;
  nameWindow();
  say(place("subtitle"), `${status.node} · ${status.mountpoint} · version ${status.version} · daemon ${status.pid}`);
  for (const [view, link] of links) {
    const badge = problem ? "" : view.badge?.(state) ?? "";
    say(link.lastElementChild, badge);
    link.lastElementChild.hidden = badge === "";
  }
  refreshView();
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}

function makeLinks() {
  for (const [at, view] of VIEWS.entries()) {
    const link = h("a", { href: `#${view.name}` }, h("kbd", { "aria-hidden": "true" }, at + 1), h("span", null, view.title),
      h("span", { class: "badge", hidden: true }));
    links.set(view, link);
    document.querySelector("#views ul").append(h("li", null, link));
  }
}

function theme(step) {
  const now = THEMES.indexOf(localStorage.getItem("holdfast-theme") ?? "system");
  const next = THEMES[(Math.max(0, now) + step) % THEMES.length];
  localStorage.setItem("holdfast-theme", next);
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  say(place("theme"), `Theme: ${next}`);
}

const KEYS = [
  ["1 – 9", "a view"],
  ["/", "the filter of this view"],
  ["r", "ask the daemon now"],
  ["t", "theme: system, light, dark"],
  ["?", "these keys"],
  ["Tab, Enter, Esc", "to the next thing, use it, close it"],
];

function help() {
  const rows = KEYS.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]);
  const dialog = h("dialog", { "aria-label": "Keys" }, h("h2", null, "Keys"), h("dl", { class: "keys" }, rows),
    h("form", { method: "dialog" }, h("button", null, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function keyed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, select, textarea")) return;
  const filter = document.querySelector("input[type=search]");
  const view = VIEWS[Number(event.key) - 1];
  if (view) location.hash = view.name;
  else if (event.key === "/" && filter) filter.focus();
  else if (event.key === "r") state.refresh();
  else if (event.key === "t") theme(1);
  else if (event.key === "?") help();
  else return;
  event.preventDefault();
}

makeLinks();
theme(0);
place("theme").addEventListener("click", () => theme(1));
place("help").addEventListener("click", help);
addEventListener("hashchange", show);
addEventListener("keydown", keyed);
show();
state.run();
