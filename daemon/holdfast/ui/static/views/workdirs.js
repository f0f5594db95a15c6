// Working directories, and who holds them.

import { card, h, pill, table } from "../dom.js";
import { count, moment, size } from "../format.js";

const SHOWN = 500;

export const workdirs = {
  name: "workdirs",
  title: "Working directories",
  badge: (state) => (state.workdirs.length ? count(state.workdirs.length) : ""),
  open(state) {
    const note = h("p", { class: "note", hidden: true });
    const filter = h("input", { type: "search", placeholder: "role, id or holder", "aria-label": "Filter",
      on: { input: () => update() } });
    const list = table("Working directories",
      [["path", "name"], ["held by", ""], ["since", "when"], ["kept until", "when"], ["times", "number"], ["takes", "number"]],
      (each) => each.path,
      (each) => [
        each.path,
        each.holder ? pill(each.holder, "good") : pill("free", "calm"),
        moment(each.acquired),
        moment(each.expires),
        count(each.acquisitions),
        [each.used_bytes === null ? "?" : size(each.used_bytes), each.max_bytes ? ` of ${size(each.max_bytes)}` : ""],
      ], "No process has a working directory, or none that matches.");
    const update = () => {
      const words = filter.value.toLowerCase();
      const found = state.workdirs.filter((each) => `${each.path} ${each.holder ?? ""}`.toLowerCase().includes(words));
      note.hidden = found.length <= SHOWN;
      note.textContent = `The first ${SHOWN} of ${count(found.length)}: filter for others.`;
      list.fill(found.slice(0, SHOWN));
    };
    return { root: h("div", { class: "grid" }, h("div", { class: "bar" }, filter), card("Processes", null, note, list.root)), update };
  },
};
