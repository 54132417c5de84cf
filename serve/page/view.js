// What the browser keeps for all stories: how the text looks, and the writer's name.

import { byId } from "./web/elements.js";

const NAME = "gen-view";
const DEFAULTS = { font: "serif", size: "17", width: "46", spelling: true, calm: false, "user-name": "" };

/** The controls for it. `changed` is called when the panels appear again. */
export class View {
  constructor(area, changed) {
    this.area = area;
    this.changed = changed;
    this.values = { ...DEFAULTS, ...storedValues() };
    for (const name of ["font", "size", "width", "user-name"]) {
      byId(name).value = this.values[name];
      byId(name).addEventListener("input", () => this.set(name, byId(name).value));
    }
    byId("spelling").checked = this.values.spelling;
    byId("spelling").addEventListener("change", () => this.set("spelling", byId("spelling").checked));
    byId("calm").addEventListener("click", () => this.toggleCalm());
    this.show();
  }

  /** The name that replaces `{{user}}` in the files of other programs; empty without one. */
  get userName() {
    return this.values["user-name"].trim();
  }

  get isCalm() {
    return this.values.calm;
  }

  toggleCalm() {
    this.set("calm", !this.isCalm);
    this.changed();
  }

  set(name, value) {
    this.values[name] = value;
    localStorage.setItem(NAME, JSON.stringify(this.values));
    this.show();
  }

  show() {
    const { font, size, width, spelling, calm } = this.values;
    const root = document.documentElement;
    Object.assign(root.dataset, { font, calm: String(calm) });
    root.style.setProperty("--text-size", `${size}px`);
    root.style.setProperty("--text-width", `${width}rem`);
    this.area.spellcheck = spelling;
    byId("calm").setAttribute("aria-pressed", String(calm));
  }
}

/** Return the values that the browser has kept. */
function storedValues() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) ?? {};
  } catch {
    return {};
  }
}
