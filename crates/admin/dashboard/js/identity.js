// Shows a client under the same name on every page. `/v1/top` names a client by the facts that a
// rule counts by (`ip=192.0.2.7`). A violation has only hashes, but the same counter key, which
// joins the two.

import { h, untrusted } from "/dashboard/js/dom.js";

/** The facts by which violations can be searched. */
const SEARCHABLE = ["ip", "user_id", "api_key"];

/** Names that stand for all clients together. */
const NOT_A_CLIENT = ["", "everyone"];

/** The parts of a name such as `ip=192.0.2.7, path=/a`: pairs of a fact and a value. */
export function parts(client) {
  return client.split(/, (?=[\w.-]+=)/).map((part) => {
    const [fact, ...value] = part.split("=");
    return [fact, value.join("=")];
  });
}

/** The part by which the API can search a client's violations; null if there is none. */
export function searched(client) {
  return parts(client).find(([fact]) => SEARCHABLE.includes(fact)) ?? null;
}

/** Client names by counter key, from `/v1/top` and `/v1/bursts`. */
export function namesByKey(...lists) {
  return new Map(lists.flat().filter((one) => one.client).map((one) => [one.key, one.client]));
}

/** The client's name for a violation: that of its counter if known, otherwise its hash. */
export function nameOf(violation, names) {
  const hash = violation.user_id ?? violation.ip;
  const named = names?.get(violation.bucket_key) ?? [...(names?.values() ?? [])].find((name) => name.endsWith(`=${hash}`));
  if (named && !NOT_A_CLIENT.includes(named)) return named;
  if (violation.user_id) return `user_id=${violation.user_id}`;
  return violation.ip ? `ip=${violation.ip}` : null;
}

/** The address of a client's page. */
export const address = (client) => `#/clients?client=${encodeURIComponent(client)}`;

/** A link to the client's page; plain text if the name does not stand for one client. */
export function clientLink(client, otherwise = "–") {
  if (!client || NOT_A_CLIENT.includes(client)) return untrusted(client || otherwise);
  return h("a", { class: "client", href: address(client) }, untrusted(client));
}
