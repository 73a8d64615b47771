// The admin API: one call, its answer, or what went wrong in words. A token is asked for where one is wanted.

import { ask, bearer } from "/dashboard/js/token.js";

/** What went wrong: `message` for people, `status`, and the problem's own fields. */
export class Wrong extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `The server answered ${status}.`);
    Object.assign(this, { status, problem });
  }
}

const WHY = {
  401: "This server requires an access token.",
  403: "This token is read-only. To change something, use the write token.",
};

/** Fetches with the token, and asks for one as often as it is refused. Anything else is the caller's business. */
export async function request(path, options = {}) {
  for (;;) {
    let answer;
    try {
      answer = await fetch(path, { ...options, headers: { ...options.headers, ...bearer() }, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Wrong(0, { detail: "The server does not answer. Is it running?" });
    }
    const refused = answer.status === 401 || (answer.status === 403 && "authorization" in bearer());
    if (!refused || !(await ask(WHY[answer.status]))) return answer;
  }
}

/** Calls the API and gives `{ body, version, status }`. Decisions of 429 are answers like others. */
export async function call(method, path, { body, headers = {}, text = false } = {}) {
  const answer = await request(path, {
    method,
    headers: { ...(body === undefined ? {} : { "content-type": text ? "application/yaml" : "application/json" }), ...headers },
    body: body === undefined ? undefined : text ? body : JSON.stringify(body),
  });
  const said = await answer.text();
  const told = answer.headers.get("content-type")?.includes("json") ? JSON.parse(said) : said;
  if (!answer.ok && answer.status !== 429) throw new Wrong(answer.status, typeof told === "object" ? told : { detail: told });
  return { body: told, version: answer.headers.get("etag"), status: answer.status };
}

/** Why the rules cannot be changed here; null where they can be. */
export async function readOnlyReason() {
  const { body } = await call("GET", "/v1/status");
  return body.rules?.read_only_reason ?? null;
}

/** Who changes something and why, as headers can hold it. */
export function signed(author, reason) {
  // Headers are bytes: text beyond ASCII goes as UTF-8, a byte a character.
  const bytes = (text) => String.fromCharCode(...new TextEncoder().encode(text.trim()));
  return { "x-tidegate-author": bytes(author), "x-tidegate-reason": bytes(reason) };
}
