// What the page knows of the daemon: asked for again and again, also while it is gone.

import { Refusal, ask } from "./api.js";

const PAUSE_MS = 2000;
const EVENTS_KEPT = 1000;

export class State {
  /** `told` is called after each round, whether the daemon answered or not. */
  constructor(told) {
    this.told = told;
    this.status = null;
    this.former = null;
    this.events = [];
    this.workdirs = [];
    this.problem = null;
    this.lastSeen = 0;
    this.rates = null;
  }

  get isPublic() {
    return this.status?.is_public ?? false;
  }

  async run() {
    for (;;) {
      await this.refresh();
      await new Promise((resume) => setTimeout(resume, PAUSE_MS));
    }
  }

  async refresh() {
    try {
      const status = await ask("status");
      const isAnother = this.status !== null && status.pid !== this.status.pid;
      if (isAnother) this.events = [];
      this.former = isAnother ? null : this.status;
      this.status = status;
      this.rates = ratesBetween(this.former, status);
      this.workdirs = await allWorkdirs();
      if (!status.is_public) await this.newEvents();
      this.problem = null;
      this.lastSeen = Date.now() / 1000;
    } catch (problem) {
      if (!(problem instanceof Refusal)) throw problem;
      this.problem = problem;
      this.rates = null;
    }
    this.told();
  }

  async newEvents() {
    for (;;) {
      const since = this.events.at(-1)?.number ?? 0;
      const page = await ask("events", { since, limit: 1000 });
      this.events = [...this.events, ...page].slice(-EVENTS_KEPT);
      if (page.length < 1000) return;
    }
  }
}

async function allWorkdirs() {
  const found = [];
  for (;;) {
    const page = await ask("workdirs", { after: found.at(-1)?.path, limit: 1000 });
    found.push(...page);
    if (page.length < 1000) return found;
  }
}

function ratesBetween(former, status) {
  if (former === null || status.is_public) return null;
  const seconds = status.uptime_seconds - former.uptime_seconds;
  if (seconds <= 0) return null;
  const rate = (name) => (status.counters[name] - former.counters[name]) / seconds;
  return { fetched: rate("bytes_fetched"), sent: rate("bytes_uploaded"), hits: rate("hits"), misses: rate("misses") };
}
