// Events of the server, read as they come. When the connection is lost it comes back by itself.

import { request } from "/dashboard/js/api.js";

const QUIET_MS = 6000;
const PAUSES_MS = [500, 1000, 2000, 4000];

/** Calls `hear(name, data)` for each event and `tell(state, why)` when the connection is there or lost. */
export async function listen(hear, tell) {
  for (let failures = 0; ; failures += 1) {
    try {
      await once((name, data) => {
        failures = 0;
        tell("live");
        hear(name, data);
      });
      tell("lost", "The server ended the connection.");
    } catch (error) {
      tell("lost", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]));
  }
}

async function once(hear) {
  const stop = new AbortController();
  let quiet;
  const alive = () => {
    clearTimeout(quiet);
    quiet = setTimeout(() => stop.abort(), QUIET_MS);
  };
  try {
    const answer = await request("/v1/live", { signal: stop.signal });
    if (!answer.ok) throw new Error(await refusal(answer));
    alive();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      text = events(text + value, hear);
    }
  } catch (error) {
    if (stop.signal.aborted) throw new Error("Nothing came for some seconds.");
    throw error;
  } finally {
    clearTimeout(quiet);
    stop.abort();
  }
}

async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  return problem.detail ?? `The server answered ${answer.status}.`;
}

/** Hears all events that are whole; gives back what is left. */
function events(text, hear) {
  const parts = text.split("\n\n");
  const rest = parts.pop();
  for (const part of parts) {
    const name = part.match(/^event: (.*)$/m)?.[1];
    const data = part.match(/^data: (.*)$/m)?.[1];
    if (name && data) hear(name, JSON.parse(data));
  }
  return rest;
}
