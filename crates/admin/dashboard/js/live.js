// Reads the server's event stream and reconnects when the connection is lost.

import { request } from "/dashboard/js/api.js";

const QUIET_MS = 6000;
const PAUSES_MS = [500, 1000, 2000, 4000];

/** Calls `onEvent(name, data)` for each event, and `onState(state, why)` when the connection
 * is established or lost. */
export async function listen(onEvent, onState) {
  for (let failures = 0; ; failures += 1) {
    try {
      await once((name, data) => {
        failures = 0;
        onState("live");
        onEvent(name, data);
      });
      onState("lost", "The server closed the connection.");
    } catch (error) {
      onState("lost", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]));
  }
}

async function once(onEvent) {
  const stop = new AbortController();
  let quiet;
  const alive = () => {
    clearTimeout(quiet);
    quiet = setTimeout(() => stop.abort(), QUIET_MS);
  };
  try {
    const response = await request("/v1/live", { signal: stop.signal });
    if (!response.ok) throw new Error(await refusal(response));
    alive();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      text = events(text + value, onEvent);
    }
  } catch (error) {
    if (stop.signal.aborted) throw new Error("No data received for several seconds.");
    throw error;
  } finally {
    clearTimeout(quiet);
    stop.abort();
  }
}

async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  return problem.detail ?? `The server answered ${response.status}.`;
}

/** Dispatches all complete events and returns the incomplete rest. */
function events(text, onEvent) {
  const parts = text.split("\n\n");
  const rest = parts.pop();
  for (const part of parts) {
    const name = part.match(/^event: (.*)$/m)?.[1];
    const data = part.match(/^data: (.*)$/m)?.[1];
    if (name && data) onEvent(name, JSON.parse(data));
  }
  return rest;
}
