// The chain as cards: a card for each step, with a control for each parameter.

import { element } from "./web/elements.js";
import { countText, numberText, visible } from "./web/format.js";
import { setProblem } from "./fields.js";
import { afterPause, isRounded, parseJson } from "./server.js";

const READ_MILLISECONDS = 250;

/** The upper ends of sliders for parameters without an upper limit. The number field takes larger values. */
const SLIDER_ENDS = { k: 200, t: 2, temperature: 2, repeat: 2, penalty: 2, frequency: 2, presence: 2, multiplier: 4, base: 4, last_n: 512, tau: 10, range: 2, exponent: 4, a: 1, n: 5, epsilon: 0.1, factor: 1, curve: 4, min_keep: 20, allowed_length: 20, top_n: 200, m: 200, slope: 10 };

/** The built-in samplers and their parameters, as the server describes them. */
export class Catalogue {
  constructor(samplers) {
    this.byName = new Map(samplers.map((sampler) => [sampler.name, sampler]));
  }

  get names() {
    return Array.from(this.byName.keys());
  }

  sampler(name) {
    return this.byName.get(name) ?? { name, summary: "", parameters: [], is_selector: false, off_values: {} };
  }

  /** Return a step with default parameters, or with a usual value if the default switches the sampler off. */
  newStep(name) {
    const sampler = this.sampler(name);
    const parameters = Object.fromEntries(sampler.parameters.map((parameter) => [parameter.name, parameter.default]));
    if (sampler.example !== null && sampler.main_parameter) parameters[sampler.main_parameter] = sampler.example;
    return { name, parameters, isOn: true };
  }

  /** Return steps in the notation of `--chain`. Parameters with their default values and steps that are off are left out. */
  notation(steps) {
    return steps.filter((step) => step.isOn).map((step) => this.stepNotation(step)).join(" > ");
  }

  stepNotation({ name, parameters }) {
    const sampler = this.sampler(name);
    const changed = sampler.parameters.filter((parameter) => parameters[parameter.name] !== undefined && !isSame(parameters[parameter.name], parameter.default));
    if (!changed.length) return name;
    const [only] = changed;
    const main = changed.length === 1 && only.name === sampler.main_parameter ? parameters[only.name] : undefined;
    const mainText = main === undefined ? "" : valueText(main, only);
    if (typeof main === "number" || isRounded(mainText)) return `${name}=${mainText}`;
    // The server has quoted keys of tables that are neither ids nor words. A key that is the name of a parameter would be
    // read as the parameter.
    const isSpread = isTable(main) && !sampler.parameters.some((parameter) => parameter.name in main);
    const pairs = isSpread
      ? Object.entries(main).map(([key, value]) => `${key}=${JSON.stringify(value)}`)
      : changed.map((parameter) => `${parameter.name}=${notationText(parameters[parameter.name], parameter)}`);
    return `${name}(${pairs.join(", ")})`;
  }
}

function isTable(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Return whether a parameter is an integer, or a list of integers. */
function takesIntegers(parameter) {
  return [parameter, ...(parameter.anyOf ?? [])].some(({ type, items }) => type === "integer" || items?.type === "integer");
}

/** Return a value as JSON. Integers that are kept as texts of their digits become integers again. */
function valueText(value, parameter) {
  const text = JSON.stringify(value);
  return takesIntegers(parameter) ? text.replace(/"(-?\d+)"/g, (quoted, digits) => (isRounded(digits) ? digits : quoted)) : text;
}

/** Return a value as the notation has it. Keys of tables that the server has quoted are not quoted twice. */
function notationText(value, parameter) {
  if (!isTable(value)) return valueText(value, parameter);
  const items = Object.entries(value).map(([key, item]) => `${key.startsWith('"') ? key : JSON.stringify(key)}: ${JSON.stringify(item)}`);
  return `{${items.join(", ")}}`;
}

function isSame(first, second) {
  return JSON.stringify(first) === JSON.stringify(second) || (Array.isArray(first) && !first.length && second === undefined);
}

/**
 * An editor of a chain. `changed` is called when a person has changed it. `titles` has the names of the list, the choice
 * of a sampler and the notation. `parse` returns the steps of a notation, or raises an error.
 */
export class ChainEditor {
  constructor(container, catalogue, titles, { changed, parse }) {
    this.catalogue = catalogue;
    this.titles = titles;
    this.changed = changed;
    this.parse = parse;
    this.steps = [];
    this.dragged = null;
    this.list = element("ol", { class: "cards", "aria-label": titles.list });
    this.chooser = element("select", { "aria-label": titles.add, onchange: () => this.add(this.chooser.value) },
      element("option", { value: "" }, "Add a step\u2026"),
      catalogue.names.map((name) => element("option", { value: name }, name)));
    this.field = element("textarea", { class: "code", rows: "2", spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-label": titles.notation, oninput: () => this.readSoon() });
    this.problem = element("p", { class: "problem", role: "alert" });
    this.readSoon = afterPause(READ_MILLISECONDS, () => this.readNotation());
    container.replaceChildren(this.list, element("div", { class: "add" }, this.chooser), element("label", { class: "field" }, element("span", {}, titles.notation), this.field), this.problem);
    this.list.addEventListener("dragover", (event) => this.dragOver(event));
    this.list.addEventListener("drop", (event) => this.drop(event));
  }

  get notation() {
    return this.catalogue.notation(this.steps);
  }

  /** Show steps: `{name, parameters, isOn}`. */
  show(steps) {
    this.steps = steps.map((step) => ({ isOn: true, ...step, parameters: { ...step.parameters } }));
    this.render();
    this.writeNotation();
  }

  render() {
    this.list.replaceChildren(...this.steps.map((step, index) => this.card(step, index)));
  }

  writeNotation() {
    if (document.activeElement !== this.field) this.field.value = this.notation;
    this.problem.textContent = "";
    this.field.removeAttribute("aria-invalid");
  }

  /** Tell the others about a change of the cards. */
  update() {
    this.writeNotation();
    this.changed();
  }

  /** Read a notation that was just typed. Raises an error if it is wrong, or a parameter. */
  async settle() {
    await this.readSoon.settled();
    if (this.problem.textContent) throw new Error(this.problem.textContent);
    const wrong = this.list.querySelector("input:invalid");
    if (wrong) throw new Error(`${wrong.closest("li").getAttribute("aria-label")}: ${wrong.validationMessage}`);
  }

  async readNotation() {
    const text = this.field.value;
    try {
      const steps = await this.parse(text);
      if (this.field.value !== text) return;
      this.problem.textContent = "";
      this.field.removeAttribute("aria-invalid");
      this.steps = this.withStepsThatAreOff(steps.map((step) => ({ ...step, isOn: true })));
      this.render();
      this.changed();
    } catch (error) {
      this.reject(error.message);
    }
  }

  /** Steps that are off are not part of the notation. They keep their places when the notation is read. */
  withStepsThatAreOff(steps) {
    this.steps.forEach((step, index) => {
      if (!step.isOn) steps.splice(Math.min(index, steps.length), 0, step);
    });
    return steps;
  }

  /** Show why the server does not accept the chain. */
  reject(message) {
    this.problem.textContent = visible(message);
    this.field.setAttribute("aria-invalid", "true");
  }

  add(name) {
    this.chooser.value = "";
    if (!name) return;
    const step = this.catalogue.newStep(name);
    const selector = this.steps.findIndex((other) => this.catalogue.sampler(other.name).is_selector);
    if (this.catalogue.sampler(name).is_selector && selector >= 0) this.steps.splice(selector, 1, step);
    else this.steps.splice(selector < 0 ? this.steps.length : selector, 0, step);
    this.render();
    this.update();
    this.list.children[this.steps.indexOf(step)].querySelector("input:not([type=checkbox]), button")?.focus();
  }

  remove(step) {
    const index = this.steps.indexOf(step);
    this.steps.splice(index, 1);
    this.render();
    this.update();
    (this.list.children[Math.min(index, this.steps.length - 1)]?.querySelector("button:not(:disabled)") ?? this.chooser).focus();
  }

  move(step, offset, buttonName) {
    const index = this.steps.indexOf(step);
    const target = Math.max(0, Math.min(index + offset, this.steps.length - 1));
    if (target === index) return;
    this.steps.splice(index, 1);
    this.steps.splice(target, 0, step);
    this.render();
    this.update();
    const card = this.list.children[target];
    const button = card.querySelector(`[aria-label="${buttonName}"]`);
    (button && !button.disabled ? button : card.querySelector(".moves button:not(:disabled)"))?.focus();
  }

  card(step, index) {
    const sampler = this.catalogue.sampler(step.name);
    const idle = sampler.summary;
    const hint = element("p", { class: "hint-line" }, idle);
    const button = (name, sign, action, isDisabled = false) => element("button", { type: "button", class: "small", "aria-label": name, title: name, disabled: isDisabled, onclick: action }, sign);
    const box = element("input", { type: "checkbox", "aria-label": "on", checked: step.isOn });
    box.checked = step.isOn;
    box.addEventListener("change", () => {
      step.isOn = box.checked;
      card.classList.toggle("is-off", !step.isOn);
      this.update();
    });
    const handle = element("span", { class: "handle", draggable: "true", "aria-hidden": "true", title: "Drag to move" }, "\u283f");
    handle.addEventListener("dragstart", (event) => {
      this.dragged = step;
      event.dataTransfer.setData("text/plain", step.name);
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setDragImage(card, 10, 10);
      card.classList.add("dragged");
    });
    handle.addEventListener("dragend", () => {
      this.dragged = null;
      for (const other of this.list.children) other.classList.remove("dragged", "drop-before", "drop-after");
    });
    const card = element("li", { class: step.isOn ? "card" : "card is-off", "aria-label": step.name, tabindex: "-1" },
      element("div", { class: "card-head" }, handle, box, element("b", {}, step.name), element("output", { class: "effect" }),
        element("span", { class: "moves" },
          button("Move up", "\u2191", () => this.move(step, -1, "Move up"), index === 0),
          button("Move down", "\u2193", () => this.move(step, 1, "Move down"), index === this.steps.length - 1),
          button("Remove", "\u00d7", () => this.remove(step)))),
      sampler.parameters.map((parameter) => this.parameter(step, parameter, (text) => { hint.textContent = text ?? idle; })),
      hint);
    card.addEventListener("keydown", (event) => {
      const offset = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!event.altKey || !offset) return;
      event.preventDefault();
      this.move(step, offset, offset < 0 ? "Move up" : "Move down");
    });
    return card;
  }

  /** Return the controls of a parameter. `explain` shows its explanation, or none, below the card. */
  parameter(step, parameter, explain) {
    const set = (value) => {
      step.parameters[parameter.name] = value;
      this.update();
    };
    const text = explanation(parameter);
    const description = element("span", { class: "hidden", id: `about-${nextId()}` }, text);
    const controls = makeControls(parameter, step.parameters[parameter.name], set, description.id);
    const row = element("div", { class: "parameter", title: text }, element("span", { class: "parameter-name", "aria-hidden": "true" }, parameter.name), controls, description);
    row.addEventListener("pointerenter", () => explain(text));
    row.addEventListener("pointerleave", () => explain(row.contains(document.activeElement) ? text : null));
    row.addEventListener("focusin", () => explain(text));
    row.addEventListener("focusout", () => explain(null));
    return row;
  }

  /** Show on each card what its step did to the next token: the stages of the answer. */
  showEffects(stages) {
    const byStep = new Map(stages.filter((stage) => stage.step !== null).map((stage) => [stage.step, stage]));
    const first = stages.findIndex((stage) => stage.step === 0);
    let number = 0;
    this.steps.forEach((step, index) => {
      const output = this.list.children[index].querySelector(".effect");
      const stage = step.isOn && this.isActive(step) ? byStep.get(number) : undefined;
      if (!stage || stage.name !== step.name) {
        output.replaceChildren(step.isOn ? "" : "off");
        output.title = "";
        return;
      }
      const before = number === 0 ? stages[first - 1] : byStep.get(number - 1);
      number += 1;
      const dropped = before.kept - stage.kept;
      output.replaceChildren(element("span", {}, countText(stage.kept)), dropped > 0 ? element("span", { class: "fewer" }, `\u2212${countText(dropped)}`) : "");
      output.title = `${countText(stage.kept)} tokens kept, ${numberText(stage.entropy)} nats${stage.note ? `; ${stage.note}` : ""}`;
    });
  }

  /** Return whether a step has an effect: the server leaves out steps whose parameters switch them off. */
  isActive(step) {
    const entries = Object.entries(this.catalogue.sampler(step.name).off_values);
    return !entries.length || entries.some(([name, value]) => !isSame(step.parameters[name], value));
  }

  dragOver(event) {
    if (!this.dragged) return;
    event.preventDefault();
    const { card, isBefore } = this.dropPlace(event);
    for (const other of this.list.children) other.classList.remove("drop-before", "drop-after");
    card?.classList.add(isBefore ? "drop-before" : "drop-after");
  }

  dropPlace(event) {
    const card = Array.from(this.list.children).find((other) => event.clientY < other.getBoundingClientRect().bottom) ?? this.list.lastElementChild;
    const box = card.getBoundingClientRect();
    return { card, isBefore: event.clientY < box.top + box.height / 2 };
  }

  drop(event) {
    if (!this.dragged) return;
    event.preventDefault();
    const { card, isBefore } = this.dropPlace(event);
    const from = this.steps.indexOf(this.dragged);
    let target = Array.prototype.indexOf.call(this.list.children, card) + (isBefore ? 0 : 1);
    if (target > from) target -= 1;
    this.move(this.dragged, target - from, "Move up");
  }
}

let idCount = 0;

function nextId() {
  idCount += 1;
  return idCount;
}

/** Return a sentence on a parameter: what it means, its range and its default. */
function explanation(parameter) {
  const initial = parameter.default === undefined ? null : `default ${JSON.stringify(parameter.default)}`;
  return `${parameter.name}: ${[parameter.description, rangeText(parameter), initial].filter(Boolean).join("; ")}`;
}

/** Return the values that a parameter may have; null if there is no limit. */
function rangeText(parameter) {
  const low = parameter.minimum ?? parameter.exclusiveMinimum;
  if (parameter.enum) return parameter.enum.map((value) => String(value)).join(", ");
  if (low !== undefined && parameter.maximum !== undefined) return `${low} to ${parameter.maximum}`;
  if (parameter.exclusiveMinimum !== undefined) return `above ${parameter.exclusiveMinimum}`;
  return low === undefined ? null : `at least ${low}`;
}

/** Return the controls of a parameter: a slider and a number, a choice, a checkbox, or a text in JSON. */
function makeControls(parameter, value, set, describedBy) {
  const name = parameter.name;
  if (parameter.enum) {
    const choice = element("select", { "aria-label": name, "aria-describedby": describedBy },
      parameter.enum.map((option) => element("option", { value: JSON.stringify(option) }, String(option))));
    choice.value = JSON.stringify(value);
    choice.addEventListener("change", () => set(JSON.parse(choice.value)));
    return choice;
  }
  if (parameter.type === "boolean") {
    const box = element("input", { type: "checkbox", "aria-label": name, "aria-describedby": describedBy });
    box.checked = Boolean(value);
    box.addEventListener("change", () => set(box.checked));
    return box;
  }
  if (parameter.type === "number" || parameter.type === "integer") return numberControls(parameter, value, set, describedBy);
  const field = element("input", { type: "text", class: "code", spellcheck: "false", autocomplete: "off", "aria-label": name, "aria-describedby": describedBy, placeholder: placeholder(parameter) });
  field.value = value === undefined || value === null ? "" : valueText(value, parameter);
  field.addEventListener("change", () => {
    let read;
    try {
      read = field.value.trim() ? parseJson(field.value) : undefined;
    } catch {
      setProblem(field, `${parameter.name} must be JSON, such as ${field.placeholder}`);
      return;
    }
    setProblem(field, null);
    set(read);
  });
  return field;
}

/** Return an example of a parameter that is written as JSON: a table, a list, or a number that may be absent. */
function placeholder(parameter) {
  if (parameter.type === "object") return "{}";
  return parameter.anyOf?.some(({ type }) => type === "number") ? "0.8" : "[]";
}

function numberControls(parameter, value, set, describedBy) {
  const isInteger = parameter.type === "integer";
  const low = parameter.minimum ?? parameter.exclusiveMinimum ?? -(SLIDER_ENDS[parameter.name] ?? 2);
  const high = parameter.maximum ?? SLIDER_ENDS[parameter.name] ?? Math.max(4 * (parameter.default || 1), isInteger ? 20 : 4);
  const step = isInteger ? 1 : high - low <= 1 ? 0.005 : high - low <= 5 ? 0.01 : 0.05;
  const number = element("input", { type: "number", "aria-label": parameter.name, "aria-describedby": describedBy, min: parameter.minimum ?? null, max: parameter.maximum ?? null, step: isInteger ? 1 : "any" });
  const slider = element("input", { type: "range", "aria-label": parameter.name, "aria-describedby": describedBy, min: parameter.exclusiveMinimum === undefined ? low : low + step, max: high, step });
  number.value = String(value);
  slider.value = String(value);
  slider.addEventListener("input", () => {
    const moved = Number(slider.value);
    number.value = String(moved);
    setProblem(number, null);
    set(moved);
  });
  number.addEventListener("input", () => {
    const typed = Number(number.value);
    const isWrong = number.value.trim() === "" || !Number.isFinite(typed) || (isInteger && !Number.isInteger(typed)) ||
      typed < (parameter.minimum ?? -Infinity) || typed > (parameter.maximum ?? Infinity) || typed <= (parameter.exclusiveMinimum ?? -Infinity);
    setProblem(number, isWrong ? [`${parameter.name} must be ${isInteger ? "an integer" : "a number"}`, rangeText(parameter)].filter(Boolean).join(", ") : null);
    if (isWrong) return;
    slider.value = String(typed);
    set(isRounded(number.value) ? number.value : typed);
  });
  return [slider, number];
}
