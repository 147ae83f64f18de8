// Keys, copy buttons, and pages that are reached by a key. Pages are readable without any script.

const root = document.body.dataset.root;
const at = document.body.dataset.at;
const goals = { h: "/", d: "/documents", s: "/streams", g: "/graphs", a: "/sessions", p: "/pipeline", j: "/jobs" };
let going = false;

function go(path) {
  const keepsTime = at && !/^[0-9]+$/.test(at);
  location.assign(root + path + (keepsTime ? `?at=${encodeURIComponent(at)}` : ""));
}

function rows() {
  return [...document.querySelectorAll("table[data-rows] tbody tr, #turns .turn[open] .entry")];
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const now = all.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const next = Math.max(0, Math.min(all.length - 1, now + step));
  if (now >= 0) all[now].removeAttribute("aria-selected");
  all[next].setAttribute("aria-selected", "true");
  (all[next].querySelector("a, summary") ?? all[next]).focus({ preventScroll: true });
  all[next].scrollIntoView({ block: "nearest" });
  document.dispatchEvent(new Event("fourfold-move"));
}

function press(key) {
  const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (target) target.click();
  return target !== null;
}

function isTyping(event) {
  const tag = event.target.tagName;
  const typed = tag === "INPUT" && !["radio", "checkbox", "range"].includes(event.target.type);
  return typed || tag === "TEXTAREA" || tag === "SELECT" || event.target.isContentEditable;
}

function areKeysOff() {
  try {
    return localStorage.getItem("fourfold.keys") === "off";
  } catch {
    return false;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || areKeysOff()) return;
  const help = document.getElementById("help");
  if (help.open) return;
  if (going) {
    going = false;
    if (goals[event.key]) go(goals[event.key]);
    return;
  }
  if (event.key === "/") {
    const search = document.querySelector(".search input");
    if (search.offsetParent === null) go("/search");
    else search.focus();
  } else if (event.key === "?") help.showModal();
  else if (event.key === "g") going = true;
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (!press(event.key)) {
    // Scripts of pages have keys of their own; they take one by preventing the default.
    document.dispatchEvent(new CustomEvent("fourfold-key", { detail: event }));
    return;
  }
  event.preventDefault();
});

const off = document.getElementById("keys-off");
off.checked = areKeysOff();
off.addEventListener("change", () => {
  try {
    localStorage.setItem("fourfold.keys", off.checked ? "off" : "on");
  } catch {
    // The browser stores nothing: the keys stay as they are.
  }
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}

for (const menu of document.querySelectorAll("details.menu")) {
  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
}

for (const select of document.querySelectorAll("form.inline select")) {
  select.addEventListener("change", () => select.form.submit());
}

// A page without entries asks for its data now and then, and is loaded again with the first entry.
const LISTEN_MS = 2000;
const listener = document.querySelector("[data-listens]");

async function listen() {
  if (document.hidden) return;
  try {
    const response = await fetch(listener.dataset.listens);
    if (response.ok && (await response.json())[listener.dataset.list]?.length) location.reload();
  } catch {
    // The server does not respond: the next time it may.
  }
}

if (listener) {
  listener.hidden = false;
  setInterval(listen, LISTEN_MS);
  document.addEventListener("visibilitychange", listen);
}

// A narrow window shows a part of the navigation: the one with the current page.
const here = document.querySelector(".nav [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 14;

for (const graph of document.querySelectorAll(".branches-graph")) graph.scrollLeft = graph.scrollWidth;
for (const node of document.querySelectorAll(".neighbourhood .chosen")) {
  const box = node.closest(".scroll");
  const place = node.getBoundingClientRect();
  box.scrollLeft += place.left + place.width / 2 - box.getBoundingClientRect().left - box.clientWidth / 2;
}
