// Calls the admin API, and asks the user for a token when the server requires one.

import { askForToken, bearer } from "/dashboard/js/token.js";

/** An error response: `message` for people, the HTTP `status`, and the fields of `problem`. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `The server answered ${status}.`);
    Object.assign(this, { status, problem });
  }
}

const WHY = {
  401: "This server requires an access token.",
  403: "This token is read-only. To change something, use the write token.",
};

/** Fetches with the token, and asks for a new one while the server refuses it. Other errors are
 * left to the caller. */
export async function request(path, options = {}) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, { ...options, headers: { ...options.headers, ...bearer() }, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, { detail: "The server does not respond. Is it running?" });
    }
    const refused = response.status === 401 || (response.status === 403 && "authorization" in bearer());
    if (!refused || !(await askForToken(WHY[response.status]))) return response;
  }
}

/** Calls the API and returns `{ body, version, status }`. A 429 is a decision, not an error. */
export async function call(method, path, { body, headers = {}, text = false } = {}) {
  const response = await request(path, {
    method,
    headers: { ...(body === undefined ? {} : { "content-type": text ? "application/yaml" : "application/json" }), ...headers },
    body: body === undefined ? undefined : text ? body : JSON.stringify(body),
  });
  const raw = await response.text();
  const parsed = response.headers.get("content-type")?.includes("json") ? JSON.parse(raw) : raw;
  if (!response.ok && response.status !== 429) throw new ApiError(response.status, typeof parsed === "object" ? parsed : { detail: parsed });
  return { body: parsed, version: response.headers.get("etag"), status: response.status };
}

/** Why the rules are read-only; null if they can be changed. */
export async function readOnlyReason() {
  const { body } = await call("GET", "/v1/status");
  return body.rules?.read_only_reason ?? null;
}

/** The headers with the author of a change and the reason. */
export function signed(author, reason) {
  // `fetch` accepts only Latin-1 headers, so send UTF-8 with one character for each byte.
  const bytes = (text) => String.fromCharCode(...new TextEncoder().encode(text.trim()));
  return { "x-tidegate-author": bytes(author), "x-tidegate-reason": bytes(reason) };
}
