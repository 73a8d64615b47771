// A dialog before a change takes effect: it states the effect and asks for author and reason.
// Escape cancels, Enter confirms.

import { call, signed } from "/dashboard/js/api.js";
import { authorField, reasonField } from "/dashboard/js/author.js";
import { h, say } from "/dashboard/js/dom.js";

/** Asks for confirmation. Resolves to `{ author, reason }`, or null when the user cancels. */
export function confirm({ title, text, action, isReasonRequired }) {
  const author = authorField();
  const reason = reasonField(isReasonRequired ? "Reason" : "Reason (optional)");
  const wrong = h("p", { class: "wrong", id: "confirm-wrong", role: "alert" });
  reason.input.setAttribute("aria-describedby", "confirm-wrong");
  let given = null;
  const submit = (event) => {
    event.preventDefault();
    const answer = { author: author.input.value.trim(), reason: reason.input.value.trim() };
    if (isReasonRequired && !answer.reason) {
      say(wrong, "Write a reason: it is saved with the new version.");
      reason.input.focus();
      return;
    }
    given = answer;
    dialog.close();
  };
  const form = h("form", { on: { submit } }, h("h2", { id: "confirm-title" }, title), h("p", { id: "confirm-text" }, text),
    h("div", { class: "fields" }, author, reason), wrong,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, action),
      h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel")));
  const dialog = h("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" }, form);
  document.body.append(dialog);
  dialog.showModal();
  reason.input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
  });
}

/** Calls the API to change rules. If no rule would be left, asks the user to confirm first. */
export async function changeRules(method, path, options) {
  try {
    return await call(method, path, options);
  } catch (error) {
    if (error.problem?.field !== "x-tidegate-confirm") throw error;
    const given = await confirm({
      title: "Remove all rules?",
      text: "No rule would be left, so every request would be allowed.",
      action: "Remove all rules",
      isReasonRequired: true,
    });
    if (!given) throw error;
    const headers = { ...options.headers, ...signed(given.author || "dashboard", given.reason), "x-tidegate-confirm": "empty" };
    return call(method, path, { ...options, headers });
  }
}
