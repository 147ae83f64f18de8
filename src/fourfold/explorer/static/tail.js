// The live tail of a stream: rows arrive as events of the server, and can be paused.

const ROWS_MAX = 200;
const table = document.getElementById("tail-rows");
const pause = document.getElementById("pause");
const news = document.getElementById("news");
const body = table.tBodies[0];
const isNewestFirst = table.dataset.order === "newest";
const waiting = [];
let arrived = 0;
let isPaused = false;

function insert({ rows, count }) {
  const template = document.createElement("template");
  template.innerHTML = rows;
  const added = [...template.content.querySelectorAll("tr")];
  // The column of keys is shown with the first key.
  if (template.content.querySelector("td.key:not(:empty)")) table.classList.remove("no-keys");
  if (!isNewestFirst) added.reverse();
  for (const row of added) row.classList.add("arrived");
  if (isNewestFirst) body.prepend(...added);
  else body.append(...added);
  while (body.rows.length > ROWS_MAX) body.deleteRow(isNewestFirst ? -1 : 0);
  const empty = table.parentElement.nextElementSibling;
  if (empty?.matches("p")) empty.remove();
  arrived += count;
}

function report() {
  const held = waiting.reduce((sum, event) => sum + event.count, 0);
  if (isPaused) news.textContent = `${held} waiting`;
  else if (arrived) news.textContent = `${arrived} new`;
}

const source = new EventSource(table.dataset.feed);
source.addEventListener("records", (event) => {
  const data = JSON.parse(event.data);
  if (isPaused) waiting.push(data);
  else insert(data);
  report();
});
source.addEventListener("open", report);
source.addEventListener("gap", (event) => {
  const { lost } = JSON.parse(event.data);
  news.textContent = `${lost.toLocaleString("en")} records were removed before they were read.`;
});
source.addEventListener("busy", (event) => {
  news.textContent = `${JSON.parse(event.data).message}. Connecting again.`;
});
source.addEventListener("error", () => {
  // Without a response the browser connects again; a refusal is final.
  if (source.readyState === EventSource.CLOSED) end("The tail is refused: load the page again.");
});
source.addEventListener("end", (event) => end(JSON.parse(event.data).message));

function end(message) {
  source.close();
  pause.hidden = true;
  news.textContent = message;
}

function setLabel() {
  const state = document.createElement("span");
  state.className = isPaused ? "state none" : "state run";
  state.textContent = isPaused ? "paused" : "live";
  pause.replaceChildren(state, isPaused ? " Continue" : " Pause");
  pause.setAttribute("aria-pressed", String(isPaused));
}

pause.hidden = false;
pause.dataset.key = " ";
pause.addEventListener("click", () => {
  isPaused = !isPaused;
  if (!isPaused) waiting.splice(0).forEach(insert);
  setLabel();
  report();
});
addEventListener("pagehide", () => source.close());
