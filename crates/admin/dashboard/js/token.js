// The access token: the user enters it when the server requires one, and only this tab keeps it.

const KEY = "tidegate-token";
const dialog = document.getElementById("token");
const form = document.getElementById("token-form");
const input = document.getElementById("token-input");
const wrong = document.getElementById("token-wrong");
const why = document.getElementById("token-why");

let waiting = null;

/** The authorization header, if there is a token. */
export function bearer() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Asks the user for a token. Resolves to whether one was entered. Concurrent calls share one
 * dialog. */
export function askForToken(reason) {
  if (waiting) return waiting.promise;
  const had = sessionStorage.getItem(KEY) !== null;
  why.textContent = reason;
  wrong.textContent = had ? "The server does not accept this token. Check that it is complete and has no spaces around it." : "";
  input.value = "";
  waiting = Promise.withResolvers ? Promise.withResolvers() : resolvers();
  dialog.showModal();
  input.focus();
  return waiting.promise;
}

function resolvers() {
  const made = {};
  made.promise = new Promise((resolve) => { made.resolve = resolve; });
  return made;
}

function finish(given) {
  dialog.close();
  waiting?.resolve(given);
  waiting = null;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const token = input.value.trim();
  if (!token) {
    wrong.textContent = "Enter the token first.";
    return;
  }
  if (/[^\x21-\x7e]/.test(token)) {
    wrong.textContent = "A token has only ASCII letters, digits and symbols, without spaces.";
    return;
  }
  sessionStorage.setItem(KEY, token);
  finish(true);
});
document.getElementById("token-cancel").addEventListener("click", () => finish(false));
dialog.addEventListener("cancel", (event) => {
  event.preventDefault();
  finish(false);
});
