// Conflicts of a merge: keys choose a side, and the badge counts what is decided.

const form = document.getElementById("merge");
const badge = document.getElementById("decided");
const conflicts = [...document.querySelectorAll("tr.conflict")];
let chosen = -1;

const request = document.getElementById("request");
const merge = JSON.parse(request.textContent);

function resolution(row) {
  const field = (name) => row.querySelector(`input[name^="${name}."]`).value;
  const choice = row.querySelector("input[type=radio]:checked")?.value;
  if (!choice) return null;
  const base = { id: field("id"), ...(field("path") && { path: field("path") }) };
  if (choice !== "value") return { ...base, choice };
  try {
    return { ...base, value: JSON.parse(field("value")) };
  } catch {
    return null; // Not JSON yet.
  }
}

function describe() {
  const resolutions = conflicts.map(resolution).filter(Boolean);
  const body = resolutions.length ? { ...merge, resolutions } : merge;
  request.textContent = JSON.stringify(body, null, 1).replace(/\n */g, " ");
}

function report() {
  describe();
  if (!badge) return;
  const total = Number(badge.dataset.total);
  const decided = conflicts.filter((row) => row.querySelector("input[type=radio]:checked")).length;
  badge.textContent = `${decided} of ${total} conflict${total === 1 ? "" : "s"} decided`;
  badge.className = decided === total ? "badge ok" : "badge warn";
}

function select(index) {
  if (!conflicts.length) return;
  chosen = (index + conflicts.length) % conflicts.length;
  conflicts[chosen].scrollIntoView({ block: "nearest" });
  conflicts[chosen].querySelector("input[type=radio]").focus();
}

form?.addEventListener("change", report);
for (const row of conflicts) {
  const text = row.querySelector("input[name^=value]");
  text.addEventListener("input", () => {
    row.querySelector("input[value=value]").checked = true;
    report();
  });
}
document.addEventListener("fourfold-key", ({ detail: { key } }) => {
  if (key === "n") select(chosen + 1);
  else if (["1", "2", "3"].includes(key)) {
    if (chosen < 0) select(0);
    const radio = conflicts[chosen]?.querySelectorAll("input[type=radio]")[Number(key) - 1];
    if (radio) radio.click();
  }
});
report();
