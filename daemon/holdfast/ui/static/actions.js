// What one can do from here: an action, its progress, and what came of it.

import { Refusal, order, steps } from "./api.js";
import { h, say } from "./dom.js";
import { counted, duration, size } from "./format.js";

const PROBLEMS_SHOWN = 50;

/** A dialog that is shown until it is closed. Returns it with its body. */
function dialog(title, ...children) {
  const root = h("dialog", { "aria-label": title }, h("h2", null, title), ...children);
  root.addEventListener("close", () => root.remove());
  document.body.append(root);
  root.showModal();
  return root;
}

/** Ask before something that can't be undone, or that takes something from others; true if it may go on. */
export function confirmed(title, sentence, verb) {
  return new Promise((decide) => {
    const close = () => root.close();
    const yes = h("button", { type: "button", class: "danger", on: { click: () => { root.returnValue = "yes"; close(); } } }, verb);
    const root = dialog(title, h("p", null, sentence),
      h("div", { class: "bar" }, h("button", { type: "button", autofocus: true, on: { click: close } }, "Cancel"), yes));
    root.addEventListener("close", () => decide(root.returnValue === "yes"));
  });
}

/** Show `sentence`, or what went wrong, until it is closed. */
export function tell(title, ...children) {
  const root = dialog(title, ...children, h("form", { method: "dialog" }, h("button", { autofocus: true }, "Close")));
  return root;
}

function pace(began, done, total) {
  const seconds = (performance.now() - began) / 1000;
  if (seconds < 2 || done === 0 || total <= done) return "";
  return `, about ${duration((seconds * (total - done)) / done)} left`;
}

/** Carry out an action with steps, in a dialog. Closing it before the end cancels the action. */
export async function follow(title, did, route, message) {
  const bar = h("progress", { "aria-label": title });
  const now = h("p", { class: "name now" });
  const line = h("p", { role: "status" }, "…");
  const problems = h("ul", { class: "problems", hidden: true });
  const button = h("button", { autofocus: true }, "Cancel");
  const root = dialog(title, bar, line, now, problems, h("form", { method: "dialog" }, button));
  const stop = new AbortController();
  root.addEventListener("close", () => stop.abort());
  const began = performance.now();
  let failed = 0;
  try {
    let last = { done: 0, total: 0, bytes_done: 0, removed_bytes: 0 };
    for await (last of steps(route, message, stop.signal)) {
      if (last.total) [bar.max, bar.value] = [last.total, last.done];
      const bytes = last.bytes_done ?? last.removed_bytes;
      const rate = bytes / Math.max(0.001, (performance.now() - began) / 1000);
      say(line, `${last.done} of ${counted(last.total, "file")}, ${size(bytes)} (${size(Math.round(rate))}/s)${pace(began, last.done, last.total)}`);
      say(now, last.path ?? "");
      if (last.problem) {
        failed += 1;
        problems.hidden = false;
        if (failed <= PROBLEMS_SHOWN) problems.append(h("li", null, h("span", { class: "name" }, last.path), `: ${last.problem}`));
      }
    }
    say(line, `${did} ${last.removed ?? last.done} of ${counted(last.total, "file")}, ${size(last.bytes_done ?? last.removed_bytes)}; ${counted(failed, "problem")}.`);
    if (bar.max && !last.total) bar.max = 1;
    bar.value = bar.max;
  } catch (problem) {
    if (stop.signal.aborted) return;
    if (!(problem instanceof Refusal)) throw problem;
    bar.remove();
    line.className = "refused";
    say(line, `It failed: ${problem.message}.`);
  }
  say(now, "");
  say(button, "Close");
  await new Promise((resume) => root.addEventListener("close", resume));
}

/** Give an order that is carried out at once, and tell what came of it. */
export async function give(title, did, route, message) {
  try {
    await order(route, message);
    tell(title, h("p", { role: "status" }, did));
  } catch (problem) {
    if (!(problem instanceof Refusal)) throw problem;
    tell(title, h("p", { class: "refused", role: "status" }, `It failed: ${problem.message}.`));
  }
}
