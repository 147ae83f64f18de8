// Jobs that run: each event of the server loads the changed part of the page.

async function replaceParts(address) {
  const response = await fetch(address);
  if (!response.ok) return;
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  for (const part of template.content.querySelectorAll("[id]")) {
    const shown = document.getElementById(part.id);
    if (shown) shown.replaceWith(part);
  }
}

function follow(element) {
  const source = new EventSource(element.dataset.events);
  let isStale = false;
  let isLoading = false;

  async function refresh() {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    while (isStale) {
      isStale = false;
      await replaceParts(element.dataset.part);
    }
    isLoading = false;
  }

  source.addEventListener("progress", refresh);
  source.addEventListener("end", async () => {
    source.close();
    for (const button of element.querySelectorAll("[data-while-live]")) button.remove();
    await refresh();
    if (!element.dataset.after) return;
    element.remove();
    await replaceParts(element.dataset.after);
  });
  addEventListener("pagehide", () => source.close());
}

for (const element of document.querySelectorAll("[data-events]")) follow(element);
