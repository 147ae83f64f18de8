// The time bar of a document or an object: sliders and keys step through its seqs without a new page.

const bar = document.querySelector(".timebar");
const part = document.getElementById("part");
const seqs = bar.dataset.seqs ? bar.dataset.seqs.split(",").map(Number) : [];
const from = document.getElementById("from");
const show = document.getElementById("show");
const span = bar.querySelector("svg .span");
const width = bar.querySelector("svg")?.viewBox.baseVal.width ?? 0;
let wanted = null;
let isLoading = false;

function indexOf(seq) {
  let index = 0;
  while (index + 1 < seqs.length && seqs[index + 1] <= seq) index += 1;
  return index;
}

function isNow() {
  return Number(show.value) === seqs.length - 1 && !bar.dataset.page.includes("end=");
}

function addressOf(base) {
  const at = isNow() ? "" : `&at=${seqs[show.value]}`;
  return `${base}${at}&from=${seqs[from.value]}`;
}

function setTime() {
  const label = isNow() ? "now" : `seq ${seqs[show.value]}`;
  document.body.dataset.at = isNow() ? "" : String(seqs[show.value]);
  document.getElementById("past").hidden = isNow();
  for (const element of document.querySelectorAll(".at-label")) element.textContent = label;
  document.querySelector(".time summary").classList.toggle("pill-past", !isNow());
  const branch = document.getElementById("branch-seq");
  if (branch) {
    branch.value = seqs[show.value];
    document.getElementById("branch-at").textContent = seqs[show.value];
  }
}

function draw() {
  const [low, high] = [Number(from.value), Number(show.value)].sort((a, b) => a - b);
  const step = width / seqs.length;
  span.setAttribute("x", (low + 0.5) * step);
  span.setAttribute("width", (high - low) * step);
  for (const slider of [from, show]) slider.setAttribute("aria-valuetext", `seq ${seqs[slider.value]}`);
}

async function load() {
  if (isLoading) return;
  isLoading = true;
  while (wanted !== null) {
    const [fragment, page] = [addressOf(bar.dataset.part), addressOf(bar.dataset.page)];
    wanted = null;
    const response = await fetch(fragment);
    if (!response.ok) {
      location.assign(page);
      return;
    }
    part.innerHTML = await response.text();
    history.replaceState(null, "", page);
    setTime();
    performance.mark("fourfold-step");
  }
  isLoading = false;
}

function step() {
  draw();
  wanted = true;
  load();
}

function move(slider, by) {
  const before = slider.value;
  slider.value = Number(slider.value) + by;
  if (slider.value !== before) step();
}

if (seqs.length) {
  for (const hidden of document.querySelectorAll(".with-script")) hidden.hidden = false;
  const edge = 50 / seqs.length;
  for (const slider of [from, show]) {
    slider.style.marginLeft = `calc(${edge}% - 8px)`;
    slider.style.width = `calc(${100 - 2 * edge}% + 16px)`;
  }
  show.value = indexOf(Number(bar.dataset.shown));
  from.value = indexOf(Number(bar.dataset.start));
  draw();
  from.addEventListener("input", step);
  show.addEventListener("input", step);
  document.addEventListener("fourfold-key", ({ detail: event }) => {
    // A slider that has the focus moves by itself.
    if (event.target.type === "range" && event.key.startsWith("Arrow")) return;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      move(event.shiftKey ? from : show, event.key === "ArrowLeft" ? -1 : 1);
      event.preventDefault();
    } else if (event.key === "[") move(show, -1);
    else if (event.key === "]") move(show, 1);
  });
}
