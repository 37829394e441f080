"use strict";

/* Everything can be read without this script; it sorts, filters, switches and enlarges. */

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/* Panels of several objectives: show one, with a button for each. */
for (const group of document.querySelectorAll(".switch")) {
  const panels = [...group.querySelectorAll(":scope > .panel")];
  if (panels.length < 2) continue;
  const buttons = panels.map((panel) => make("button", { type: "button", textContent: panel.dataset.name }));
  const show = (chosen) => {
    panels.forEach((panel, place) => panel.classList.toggle("away", place !== chosen));
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === chosen)));
  };
  buttons.forEach((button, place) => button.addEventListener("click", () => show(place)));
  const choices = make("div", { className: "choices" }, ...buttons);
  choices.setAttribute("role", "group");
  choices.setAttribute("aria-label", "show which objective");
  group.prepend(choices);
  group.classList.add("switched"); // the buttons name the panels
  show(Math.max(0, panels.findIndex((panel) => "open" in panel.dataset)));
}

/* Sortable tables: the head of a column becomes a button. Cells without a value stay at the end. */
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("th[data-column]")];
  for (const head of heads) {
    const button = make("button", { type: "button" }, ...head.childNodes);
    if (head.title) button.setAttribute("aria-label", head.title);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      sortRows(table.tBodies[0], Number(head.dataset.column), falling);
    });
  }
}

function sortRows(body, column, falling) {
  const keyed = [...body.rows].map((row) => {
    const value = row.cells[column].dataset.value;
    return { row, value, number: value === undefined || value === "" ? NaN : Number(value) };
  });
  const numeric = keyed.every(({ value, number }) => value === undefined || value === "" || !Number.isNaN(number));
  keyed.sort((a, b) => {
    if (!a.value || !b.value) return Number(!a.value) - Number(!b.value);
    const order = numeric ? a.number - b.number : a.value.localeCompare(b.value, undefined, { numeric: true });
    return falling ? -order : order;
  });
  body.append(...keyed.map(({ row }) => row));
}

/* The filter of the table of classes. */
for (const filter of document.querySelectorAll(".filters[data-rows]")) {
  const rows = [...document.getElementById(filter.dataset.rows).tBodies[0].rows];
  const input = filter.querySelector("input");
  const count = filter.querySelector("output");
  const apply = () => {
    const query = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = row.cells[0].dataset.value.toLowerCase().includes(query);
      row.classList.toggle("away", !fits);
      shown += fits;
    }
    count.textContent = query ? `${shown} of ${rows.length}` : "";
  };
  input.addEventListener("input", apply);
  filter.hidden = false;
  apply();
}

/* Filters of galleries, by true and predicted class. */
for (const gallery of document.querySelectorAll(".gallery")) {
  const items = [...gallery.children];
  const count = make("output", {});
  const chooser = (label, key) => {
    const names = [...new Set(items.map((item) => item.dataset[key]))];
    names.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    const select = make("select", {}, new Option("any class", ""), ...names.map((name, k) => new Option(name, String(k))));
    const fits = (item) => select.value === "" || item.dataset[key] === names[Number(select.value)];
    return { select, fits, label: make("label", { textContent: label }, select) };
  };
  const choosers = [chooser("true class ", "actual"), chooser("predicted as ", "predicted")];
  const apply = () => {
    let shown = 0;
    for (const item of items) {
      const fits = choosers.every((each) => each.fits(item));
      item.classList.toggle("away", !fits);
      shown += fits;
    }
    count.textContent = `${shown} of ${items.length} images`;
  };
  choosers.forEach((each) => each.select.addEventListener("change", apply));
  gallery.before(make("div", { className: "filters" }, ...choosers.map((each) => each.label), count));
  apply();
}

/* One picture, large. Escape closes a dialog by itself, and the focus goes back to where it was. */
const dialog = document.getElementById("picture");
if (dialog) {
  const image = dialog.querySelector("img");
  const text = dialog.querySelector("p");
  for (const button of document.querySelectorAll(".gallery button")) {
    button.addEventListener("click", () => {
      const small = button.querySelector("img");
      image.src = small.src;
      image.alt = small.alt;
      image.className = small.className;
      text.replaceChildren();
      for (const line of button.closest("li").dataset.text.split("\n")) text.append(line, make("br", {}));
      dialog.showModal();
    });
  }
  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

/* A button that copies a command, or selects it where the browser does not allow that. */
for (const block of document.querySelectorAll(".command")) {
  const code = block.querySelector("code");
  const button = make("button", { type: "button", textContent: "Copy" });
  button.setAttribute("aria-label", `copy: ${code.textContent}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.append(button);
}
