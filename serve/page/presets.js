// Presets: chosen, read from files of other tools, and saved.

import { element } from "./web/elements.js";
import { visible } from "./web/format.js";
import { download } from "./files.js";

const FILE = "file:"; // the choice that stands for the file that was read; no preset has a colon in its name

/**
 * The controls of presets. `apply(steps, settings)` shows a chain and its settings; `attempt` runs an action of a person,
 * and shows its error.
 */
export class PresetControls {
  constructor({ choice, notes }, server, { apply, attempt }) {
    Object.assign(this, { choice, notes, server, apply, attempt });
    this.base = null; // the text of the preset, whose other keys are kept when it is saved
    this.name = "";
    this.fileName = ""; // the name of the file that it was read from
    choice.addEventListener("change", () => attempt(() => this.choose(choice.value)));
  }

  /** What a reload of the page must not lose. */
  get state() {
    return { preset: this.name, base: this.base, fileName: this.fileName };
  }

  showList(presets) {
    this.choice.replaceChildren(element("option", { value: "" }, "the server\u2019s chain"),
      ...presets.filter((preset) => !preset.error).map(({ name, description }) => element("option", { value: name, title: description }, name)));
    this.showChoice();
  }

  /** Show which preset is chosen, also if it came from a file. */
  showChoice() {
    this.choice.querySelector(`[value="${FILE}"]`)?.remove();
    if (this.fileName) this.choice.append(element("option", { value: FILE }, visible(`${this.fileName} (file)`)));
    this.choice.value = this.name || (this.fileName && FILE);
  }

  restore({ preset, base, fileName }) {
    this.name = preset ?? "";
    this.base = base ?? null;
    this.fileName = fileName ?? "";
    this.showChoice();
  }

  async choose(name) {
    let answer;
    try {
      answer = await this.server.json("/gen/chain", name ? { preset: name } : {});
      const response = name ? await this.server.send(`/gen/presets/${encodeURIComponent(name)}`) : null;
      this.restore({ preset: name, base: response && (await response.text()) });
    } catch (error) {
      this.showChoice();
      throw error;
    }
    this.notes.hidden = true;
    this.apply(answer.steps, answer.settings);
  }

  /** Read a preset of any format. If the file holds several, a person chooses one. */
  async read(name, text, section = null) {
    let answer;
    try {
      answer = await this.server.json("/gen/presets/import", { name, text, ...(section === null ? {} : { section }) });
    } catch (error) {
      const sections = error.body?.sections;
      if (!sections) return this.report(error.message, []);
      return this.askForSection(name, text, sections);
    }
    const { steps } = await this.server.json("/gen/chain", { chain: answer.chain });
    this.restore({ base: answer.preset, fileName: answer.name });
    this.apply(steps, answer.settings);
    const left = answer.unsupported;
    this.report(`${answer.name}, a preset of ${answer.format}${left.length ? ". Not carried over as it is:" : ": all of it was carried over."}`, left);
    return undefined;
  }

  askForSection(name, text, sections) {
    const choice = element("select", { "aria-label": "Section" }, element("option", { value: "" }, "choose\u2026"), sections.map((section) => element("option", { value: section }, section)));
    choice.addEventListener("change", () => choice.value && this.attempt(() => this.read(name, text, choice.value)));
    this.notes.replaceChildren(element("p", {}, `${visible(name)} holds ${sections.length} presets: `, choice));
    this.notes.hidden = false;
  }

  report(sentence, items) {
    this.notes.replaceChildren(element("p", {}, visible(sentence)), items.length ? element("ul", {}, items.map((item) => element("li", {}, visible(item)))) : "");
    this.notes.hidden = false;
  }

  /**
   * Save the chain with the settings that a person has changed. The server writes the YAML. Presets have no steps that are
   * off: `stepsThatAreOff` names those that the file does not have.
   */
  async save(notation, settings, stepsThatAreOff) {
    const { preset } = await this.server.json("/gen/presets/text", { base: this.base, chain: notation, settings });
    if (stepsThatAreOff.length) this.report("Saved without the steps that are off:", stepsThatAreOff);
    download(preset, `${(this.name || this.fileName || "preset").replace(/[^\w.-]+/g, "-")}.yaml`, "application/yaml");
  }
}
