// A session: keys choose an event, open it and fork there; a live one shows events and tokens.

const turns = document.getElementById("turns");
const live = document.getElementById("live");
const tokens = document.getElementById("tokens");
const fork = document.getElementById("fork");
let isStale = false;
let isLoading = false;

async function refresh() {
  isStale = true;
  if (isLoading) return;
  isLoading = true;
  while (isStale) {
    isStale = false;
    const response = await fetch(turns.dataset.part);
    if (!response.ok) break;
    const template = document.createElement("template");
    template.innerHTML = await response.text();
    const part = template.content.getElementById("turns");
    for (const id of ["session-state", "session-head", "session-side"]) {
      document.getElementById(id).replaceWith(template.content.getElementById(id));
    }
    const before = new Set([...turns.querySelectorAll(".entry")].map((entry) => entry.id));
    const states = new Map([...turns.querySelectorAll(".turn")].map((turn) => [turn.id, turn.open]));
    const chosen = turns.querySelector("[aria-selected=true]")?.id;
    turns.replaceChildren(...part.childNodes);
    turns.dataset.newest = part.dataset.newest;
    for (const turn of turns.querySelectorAll(".turn")) turn.open = states.get(turn.id) ?? true;
    for (const entry of turns.querySelectorAll(".entry")) {
      if (!before.has(entry.id)) entry.classList.add("arrived");
    }
    if (chosen) document.getElementById(chosen)?.setAttribute("aria-selected", "true");
    setFork();
  }
  isLoading = false;
}

function setFork() {
  const event = turns.querySelector("[aria-selected=true]")?.dataset.event ?? turns.dataset.newest;
  if (!fork || !Number(event)) return;
  fork.href = `${fork.dataset.fork}&event=${event}`;
  fork.textContent = `Fork at event ${Number(event).toLocaleString("en")}`;
}

function nextTurn() {
  const all = [...turns.querySelectorAll(".turn > summary")];
  const next = all.indexOf(document.activeElement) + 1;
  all[next % all.length]?.focus();
}

document.addEventListener("fourfold-move", setFork);
document.addEventListener("fourfold-key", ({ detail: { key } }) => {
  if (key === "t") nextTurn();
  else if (key === "o") {
    const record = turns.querySelector("[aria-selected=true] details.record");
    if (record) record.open = !record.open;
  } else if (key === "f") fork?.click();
});

if (turns.dataset.live) {
  const source = new EventSource(turns.dataset.live);
  source.addEventListener("event", () => {
    live.hidden = true;
    tokens.textContent = "";
    refresh();
  });
  source.addEventListener("transient", (event) => {
    const { item } = JSON.parse(event.data);
    live.hidden = false;
    tokens.textContent += typeof item === "string" ? item : (item?.text ?? JSON.stringify(item));
  });
  source.addEventListener("end", () => source.close());
  addEventListener("pagehide", () => source.close());
}
