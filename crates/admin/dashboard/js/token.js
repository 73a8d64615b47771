// The access token: asked for when the server requires one, kept for this tab alone.

const KEY = "tidegate-token";
const dialog = document.getElementById("token");
const form = document.getElementById("token-form");
const input = document.getElementById("token-input");
const wrong = document.getElementById("token-wrong");
const why = document.getElementById("token-why");

let waiting = null;

/** What is sent with each request, if there is something. */
export function bearer() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Asks for a token; says whether one was given. Those who ask meanwhile wait for the same answer. */
export function ask(reason) {
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

function answer(given) {
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
    wrong.textContent = "A token has only letters, digits and signs, without spaces.";
    return;
  }
  sessionStorage.setItem(KEY, token);
  answer(true);
});
document.getElementById("token-cancel").addEventListener("click", () => answer(false));
dialog.addEventListener("cancel", (event) => {
  event.preventDefault();
  answer(false);
});
