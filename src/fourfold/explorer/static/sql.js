// The form of a query: Ctrl+Enter runs it, and Cancel ends it with its request.

const form = document.querySelector("form.sql");
const cancel = form.querySelector("[data-cancel]");

form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit();
  }
});
form.addEventListener("submit", () => { cancel.hidden = false; });
cancel.addEventListener("click", () => {
  window.stop();
  cancel.hidden = true;
});
window.addEventListener("pageshow", () => { cancel.hidden = true; });
