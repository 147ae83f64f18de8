// A live session: new events refresh the transcript, and transient tokens are shown as they arrive.

const turns = document.getElementById("turns");
const live = document.getElementById("live");
const tokens = document.getElementById("tokens");
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
    const before = new Set([...turns.querySelectorAll(".entry")].map((entry) => entry.id));
    turns.innerHTML = await response.text();
    for (const entry of turns.querySelectorAll(".entry")) {
      if (!before.has(entry.id)) entry.classList.add("arrived");
    }
  }
  isLoading = false;
}

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
