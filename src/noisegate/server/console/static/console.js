// Live prices, completion of names, and the search among tables. Everything else works without it.
"use strict";

// --- a form whose outcome is shown while one types: data-live is asked, data-into is filled

function live(form) {
  const into = document.getElementById(form.dataset.into);
  let timer, asked = 0;
  async function ask() {
    const number = ++asked;
    into.setAttribute("aria-busy", "true");
    try {
      const body = new URLSearchParams(new FormData(form));
      const reply = await fetch(form.dataset.live, { method: "POST", body, headers: { Accept: "application/json" } });
      if (number !== asked) return; // a later one is under way
      if (reply.status === 401) return location.reload();
      const said = await reply.json();
      into.innerHTML = said.html; // written and escaped by the server
      document.getElementById(`${into.id}-told`).textContent = said.words; // for those who listen
      form.dispatchEvent(new CustomEvent("said", { detail: said }));
    } catch {
      if (number === asked) into.textContent = "The service does not answer. Try again.";
    } finally {
      if (number === asked) into.removeAttribute("aria-busy");
    }
  }
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 350); });
}

// --- sliders on a logarithmic scale beside their fields; ε and accuracy move each other

function sliders(form) {
  const radio = (name) => form.querySelector(`input[type=radio][value=${name}]`);
  const pairs = [...form.querySelectorAll("input[type=range]")].map((slider) => {
    const name = slider.id.replace("-slider", "");
    return { name, slider, field: form.elements[name] };
  });
  const place = ({ field, slider }) => { if (parseFloat(field.value) > 0) slider.value = Math.log10(parseFloat(field.value)); };
  const choose = (name) => { if (radio(name)) radio(name).checked = true; };
  for (const pair of pairs) {
    pair.slider.closest("[hidden]")?.removeAttribute("hidden");
    place(pair);
    pair.field.addEventListener("input", () => { choose(pair.name); place(pair); });
    pair.slider.addEventListener("input", () => {
      const value = 10 ** pair.slider.value;
      pair.field.value = "whole" in pair.slider.dataset ? Math.round(value) : Number(value.toPrecision(2));
      choose(pair.name);
    });
  }
  form.addEventListener("said", ({ detail }) => {
    for (const pair of pairs) {
      const value = detail[pair.name];
      if (value && radio(pair.name) && !radio(pair.name).checked) { pair.field.value = value; place(pair); }
    }
  });
}

// --- names are completed in the editor: arrows choose, Enter or Tab takes, Escape closes

function completion(area) {
  const list = document.getElementById("names");
  const names = [...document.querySelectorAll("[data-name]")].map((each) => [each.dataset.name, each.dataset.of || ""]);
  let chosen = -1;
  const word = () => area.value.slice(0, area.selectionStart).match(/[\p{L}_][\p{L}\p{N}_]*$/u)?.[0] ?? "";
  const close = () => { list.hidden = true; chosen = -1; area.removeAttribute("aria-activedescendant"); };
  function mark(place) {
    chosen = (place + list.children.length) % list.children.length;
    [...list.children].forEach((each, i) => each.setAttribute("aria-selected", String(i === chosen)));
    area.setAttribute("aria-activedescendant", list.children[chosen].id);
  }
  function take(name) {
    const start = area.selectionStart - word().length;
    area.setRangeText(name, start, area.selectionStart, "end");
    close();
    area.focus();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }
  function below() { // where the caret's line ends: the popup opens under it
    const line = area.value.slice(0, area.selectionStart).split("\n").length;
    const height = parseFloat(getComputedStyle(area).lineHeight);
    return Math.min(area.clientHeight, 14 + line * height - area.scrollTop) + area.offsetTop;
  }
  function open() {
    const typed = word().toLowerCase();
    const begins = (name) => name.toLowerCase().startsWith(typed) && name.toLowerCase() !== typed;
    const found = [...new Map(names.filter(([name]) => typed.length > 1 && begins(name))).entries()].slice(0, 8);
    list.replaceChildren(...found.map(([name, of], i) => {
      const item = document.createElement("li");
      const home = document.createElement("small");
      item.id = `name-${i}`;
      item.setAttribute("role", "option");
      home.textContent = of;
      item.append(name, home);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(name); });
      return item;
    }));
    if (!found.length) return close();
    list.hidden = false;
    list.style.top = `${below()}px`;
    chosen = -1;
  }
  area.addEventListener("input", open);
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return document.getElementById("practise").click();
    if (list.hidden) return;
    if (event.key === "ArrowDown") mark(chosen + 1);
    else if (event.key === "ArrowUp") mark(chosen < 0 ? list.children.length - 1 : chosen - 1);
    else if (event.key === "Escape") close();
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) take(list.children[chosen].firstChild.data);
    else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("button[data-name]")) {
    button.addEventListener("click", () => {
      area.setRangeText(button.dataset.name, area.selectionStart, area.selectionEnd, "end");
      area.focus();
      area.dispatchEvent(new Event("input", { bubbles: true }));
      close();
    });
  }
}

// --- the search among tables and columns

function search(box) {
  box.closest("[hidden]")?.removeAttribute("hidden");
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase();
    for (const table of document.querySelectorAll(".shelf details")) {
      const any = table.dataset.table.toLowerCase().includes(wanted);
      for (const column of table.querySelectorAll("[data-column]")) {
        const found = any || column.dataset.column.toLowerCase().includes(wanted);
        column.hidden = !found;
      }
      const some = any || table.querySelector("[data-column]:not([hidden])");
      table.hidden = !some;
      if (wanted && some) table.open = true;
    }
  });
}

for (const form of document.querySelectorAll("form[data-live]")) { sliders(form); live(form); }
const editor = document.querySelector("textarea[name=sql]");
if (editor && document.getElementById("names")) completion(editor);
const box = document.getElementById("search");
if (box) search(box);
