// What the model reads besides the text: memory, author's note and world info; and a view of all that it reads.

import { byId, element } from "./web/elements.js";
import { countText, visible } from "./web/format.js";
import { afterPause } from "./server.js";

const LOOK_MILLISECONDS = 600;
const NAMES = { memory: "Memory", world_info: "World info", authors_note: "Author's note", text: "Text" };
const listText = (values) => (values ?? []).join(", ");
const listOf = (text) => text.split(",").map((value) => value.trim()).filter(Boolean);
const numberOf = (text) => (text.trim() === "" ? null : Number(text));

/** The fields of a story besides its text. The server knows what they mean. */
export class StoryContext {
  constructor(page) {
    this.page = page;
    this.entries = []; // of the world info
    this.others = { authors_note: {}, world_info: {} }; // parts without controls, such as a template
    this.ofServer = {}; // what applies on the server to requests without these fields
    this.lookSoon = afterPause(LOOK_MILLISECONDS, () => this.look());
    const fieldOf = { memory: "memory", "authors-note": "authors_note", "note-depth": "authors_note", "scan-depth": "world_info", "world-budget": "world_info" };
    for (const [id, field] of Object.entries(fieldOf)) byId(id).addEventListener("input", () => this.changed(field));
    page.click("add-entry", () => this.addEntry());
    page.click("show-context", () => this.showAll());
  }

  /** React to a change by a person of one of the fields of requests. */
  changed(field) {
    this.page.settings.changed.add(field);
    this.page.settings.chainChanged();
    if (byId("uses-template").checked) this.page.chat.renderTemplateSoon();
    this.lookSoon();
  }

  /** The fields of a request for the text. The chat template has them in the text. */
  get requestFields() {
    const fields = byId("uses-template").checked ? {} : this.fields;
    const empty = { memory: "", authors_note: "", world_info: [] };
    const cleared = Object.keys(empty).filter((name) => (this.ofServer[name] ?? null) !== null && !(name in fields));
    return { ...fields, ...Object.fromEntries(cleared.map((name) => [name, empty[name]])) };
  }

  /** The fields that have something; those that are empty are left out. */
  get fields() {
    const memory = byId("memory").value;
    const note = byId("authors-note").value;
    const { entries } = this;
    return {
      ...(memory ? { memory } : {}),
      ...(note ? { authors_note: { ...this.others.authors_note, text: note, depth: numberOf(byId("note-depth").value) } } : {}),
      ...(entries.length ? { world_info: { ...this.others.world_info, entries, scan_depth: numberOf(byId("scan-depth").value) ?? 0, token_budget: numberOf(byId("world-budget").value) } } : {}),
    };
  }

  /** The values of a preset; null for those that are empty. */
  get presetValues() {
    return { memory: null, authors_note: null, world_info: null, ...this.fields };
  }

  /** Show those fields that a preset has. */
  showPreset(settings) {
    const given = Object.entries(settings).filter(([name, value]) => ["memory", "authors_note", "world_info"].includes(name) && value !== null);
    if (given.length) this.show({ ...this.fields, ...Object.fromEntries(given) });
  }

  /** Show the fields of another story. */
  show({ memory, authors_note: note, world_info: world }) {
    const { text = "", depth = null, ...others } = typeof note === "string" ? { text: note } : (note ?? {});
    const { entries, scan_depth: scanDepth = 0, token_budget: budget = null, ...more } = Array.isArray(world) ? { entries: world } : (world ?? {});
    this.others = { authors_note: others, world_info: more };
    this.entries = (Array.isArray(entries) ? entries : []).filter((entry) => entry !== null && typeof entry === "object").map((entry) => ({ ...entry }));
    const values = { memory, "authors-note": text, "note-depth": depth, "scan-depth": scanDepth, "world-budget": budget };
    for (const [id, value] of Object.entries(values)) byId(id).value = String(value ?? "");
    byId("world-entries").replaceChildren(...this.entries.map((entry) => this.item(entry)));
    if (Object.keys(this.fields).length) byId("story-fields").open = true;
    this.lookSoon();
  }

  addEntry() {
    const entry = { keys: [], content: "" };
    this.entries.push(entry);
    const item = this.item(entry);
    byId("world-entries").append(item);
    item.firstChild.open = true;
    item.querySelector("input").focus();
    this.changed("world_info");
  }

  /** Return the controls of an entry of the world info. */
  item(entry) {
    const summary = element("summary");
    const name = () => { summary.textContent = visible(entry.name || listText(entry.keys) || "New entry"); };
    const change = (field, value) => {
      entry[field] = value;
      name();
      this.changed("world_info");
    };
    const text = (label, field, value, read, attributes = {}) => element("label", { class: "field" }, label,
      element("input", { type: "text", autocomplete: "off", value, oninput: (event) => change(field, read(event.target.value)), ...attributes }));
    const check = (label, field, isOn) => element("label", { class: "check" }, element("input", { type: "checkbox", checked: isOn, onchange: (event) => change(field, event.target.checked) }), ` ${label}`);
    const content = element("textarea", { rows: "3", oninput: (event) => change("content", event.target.value) });
    content.value = entry.content ?? "";
    name();
    const item = element("li", {}, element("details", {}, summary,
      text("Keys, with commas", "keys", listText(entry.keys), listOf),
      text("One of these must be there, too", "secondary_keys", listText(entry.secondary_keys), (value) => {
        entry.selective = listOf(value).length > 0;
        return listOf(value);
      }),
      element("label", { class: "field" }, "Content", content),
      text("Order; higher ones stand later, and stay longest", "insertion_order", String(entry.insertion_order ?? 100), Number, { type: "number", step: "1" }),
      text("Lines that are searched; empty: those of the book", "scan_depth", String(entry.scan_depth ?? ""), numberOf, { type: "number", min: "0" }),
      element("div", { class: "checks" }, check("On", "enabled", entry.enabled ?? true), check("Always", "constant", entry.constant ?? false), check("Case matters", "case_sensitive", entry.case_sensitive ?? false)),
      element("button", { type: "button", class: "small", onclick: () => {
        this.entries.splice(this.entries.indexOf(entry), 1);
        item.remove();
        this.changed("world_info");
      } }, "Remove entry")));
    return item;
  }

  /** Ask the server what it reads of the whole text. */
  async read() {
    await this.page.writer.tokenize();
    const { prompt, ...fields } = this.page.writer.fields(this.page.writer.tokens);
    return this.page.server.json("/gen/context", { prompt, ...fields, memory: fields.memory ?? "" });
  }

  /** Say below the text what of it the model does not read. */
  async look() {
    const { writer, server } = this.page;
    let words = "";
    if (server.state === "ready" && !writer.isWriting && writer.isLong(writer.tokens, { ...this.requestFields, max_tokens: this.page.settings.numbers().length ?? 0 })) {
      try {
        words = (await this.read()).left_out.filter(({ kind }) => kind === "text").map(({ message }) => `Left out: ${message}.`).join(" ");
      } catch {
        return; // Generate tells it
      }
    }
    byId("left-out").textContent = visible(words);
  }

  /** Show all that the model reads, in parts, and what is left out. */
  async showAll() {
    const answer = await this.read();
    const { parts, left_out: left } = answer;
    byId("context-note").textContent = `${countText(answer.token_count)} of at most ${countText(answer.max_prompt_tokens)} tokens; the context has ${countText(answer.context_length)}.`;
    const title = ({ kind, name, token_count: count }) => `${NAMES[kind] ?? kind}${name ? `: ${name}` : ""}, ${countText(count)} tokens`;
    byId("context-parts").replaceChildren(...parts.map((part) => element("li", {}, element("h3", {}, visible(title(part))), element("p", { dir: "auto" }, visible(part.text)))));
    byId("context-left").replaceChildren(...left.map((part) => element("li", {}, visible(`${title(part)}: ${part.message}.`))));
    byId("context-left-title").hidden = left.length === 0;
    byId("context-dialog").showModal();
  }
}
