// Asking the daemon. Addresses are relative: the page's own has the secret that admits its requests.

const BASE = "../v1/";

/** The daemon, or what stands before it, said no. `status` 0 and 503: it does not answer. */
export class Refusal extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }

  get isAway() {
    return this.status === 0 || this.status === 503;
  }
}

async function answered(request) {
  let reply;
  try {
    reply = await request;
  } catch (problem) {
    throw new Refusal(0, "nothing answers at the address of this page: 'holdfast ui' may have ended");
  }
  if (reply.ok) return reply;
  const failure = await reply.json().catch(() => ({}));
  throw new Refusal(reply.status, failure.message ?? `the daemon answered ${reply.status}`, failure.code);
}

function address(route, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  return BASE + route + (given.length ? `?${new URLSearchParams(given)}` : "");
}

/** The answer to a question. */
export async function ask(route, query) {
  const reply = await answered(fetch(address(route, query), { headers: { accept: "application/json" } }));
  return await reply.json().catch(() => {
    throw new Refusal(0, "the daemon ended while it answered");
  });
}

function posted(route, message, signal) {
  const headers = { "content-type": "application/json" };
  return answered(fetch(address(route), { method: "POST", headers, body: JSON.stringify(message), signal }));
}

/** The answer to an order. */
export async function order(route, message) {
  return await (await posted(route, message)).json();
}

/** The steps of a long action, as they come. Ends with an error if the last one does not come. */
export async function* steps(route, message, signal) {
  const reader = (await posted(route, message, signal)).body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let last = null;
  for (;;) {
    const { done, value } = await reader.read().catch((problem) => {
      if (signal?.aborted) throw problem;
      return { done: true };
    });
    if (done) break;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((each) => each !== "")) {
      last = JSON.parse(line);
      if (last.failure) throw new Refusal(409, last.failure.message, last.failure.code);
      yield last;
    }
  }
  if (!last?.finished) throw new Refusal(0, "the daemon ended in the middle of it");
}
