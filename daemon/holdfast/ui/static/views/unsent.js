// Files whose bytes only this node has.

import { card, h, say, table } from "../dom.js";
import { count, counted } from "../format.js";

export const unsent = {
  name: "unsent",
  title: "Unsent",
  badge: (state) => (state.status.unsent_files ? count(state.status.unsent_files) : ""),
  isForGroup: true,
  open(state) {
    const summary = h("p", { class: "lead" });
    const list = table("Files that no store has yet", [["path", "name"]], (path) => path, (path) => [path],
      "The stores have everything: this node could go.");
    return {
      root: h("div", { class: "grid" }, card("Only on this node", null, summary, list.root)),
      update() {
        const { status } = state;
        const more = status.unsent_files > (status.unsent ?? []).length ? `, the first ${status.unsent.length} of them here` : "";
        say(summary, status.unsent_files ? `${counted(status.unsent_files, "file")}${more}. They are sent by themselves, or wait for a writer.` : "");
        list.fill(status.unsent ?? []);
      },
    };
  },
};
