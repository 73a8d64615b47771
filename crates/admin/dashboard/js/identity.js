// Clients under one name on every page. `/v1/top` names a client by the facts that a rule counts by (`ip=192.0.2.7`); a
// violation has hashes, and the key of the same counter, by which the two are brought together.

import { h, theirs } from "/dashboard/js/dom.js";

/** The facts by which violations can be searched. */
const SEARCHABLE = ["ip", "user_id", "api_key"];

/** What the rules count for all clients together is not a client. */
const NOBODY = ["", "everyone"];

/** The parts of a name such as `ip=192.0.2.7, path=/a`: pairs of a fact and a value. */
export function parts(client) {
  return client.split(/, (?=[\w.-]+=)/).map((part) => {
    const [fact, ...value] = part.split("=");
    return [fact, value.join("=")];
  });
}

/** The part by which violations of a client are searched, as a query of the API; null where there is none. */
export function searched(client) {
  return parts(client).find(([fact]) => SEARCHABLE.includes(fact)) ?? null;
}

/** Names of clients by the key of their counter, as far as `/v1/top` and `/v1/bursts` tell them. */
export function namesByKey(...lists) {
  return new Map(lists.flat().filter((one) => one.who).map((one) => [one.key, one.who]));
}

/** The name of the client of a violation: the one of its counter where that is known, or its hash. */
export function nameOf(violation, names) {
  const hash = violation.user_id ?? violation.ip;
  const named = names?.get(violation.bucket_key) ?? [...(names?.values() ?? [])].find((name) => name.endsWith(`=${hash}`));
  if (named && !NOBODY.includes(named)) return named;
  if (violation.user_id) return `user_id=${violation.user_id}`;
  return violation.ip ? `ip=${violation.ip}` : null;
}

/** Where a client is shown. */
export const address = (client) => `#/clients?client=${encodeURIComponent(client)}`;

/** A client as a link to everything about it. What is no client is plain text. */
export function clientLink(client, otherwise = "–") {
  if (!client || NOBODY.includes(client)) return theirs(client || otherwise);
  return h("a", { class: "client", href: address(client) }, theirs(client));
}
