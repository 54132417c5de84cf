// The grammar: its field, and the check by the server while it is typed.

import { element } from "./web/elements.js";
import { visible } from "./web/format.js";
import { afterPause } from "./server.js";

const CHECK_MILLISECONDS = 250;

/**
 * The field of the grammar. `typed` is called when a person changes it, and `changed` when there is another grammar that
 * can be used.
 */
export class GrammarField {
  constructor({ field, kind, names, note }, server, { typed, changed }) {
    Object.assign(this, { field, kind, names, note, server, changed });
    this.value = null; // the grammar of requests; null without one, or while it is wrong
    this.problem = null;
    this.checkSoon = afterPause(CHECK_MILLISECONDS, () => this.check());
    const checkTyped = () => {
      typed();
      this.checkSoon();
    };
    field.addEventListener("input", checkTyped);
    kind.addEventListener("change", checkTyped);
    names.addEventListener("change", () => {
      if (names.value) typed();
      if (names.value) this.set(names.value, "auto");
      names.value = "";
    });
  }

  /** Fill the list of the grammars that have a name. */
  showNames(grammars) {
    this.names.replaceChildren(element("option", { value: "" }, "\u2026"), ...grammars.map(({ name, description }) => element("option", { value: name, title: description }, name)));
  }

  get text() {
    return this.field.value;
  }

  /** Show a grammar, and check it. */
  async set(text, kind = "auto") {
    this.field.value = text;
    this.kind.value = kind;
    this.checkSoon();
    await this.checkSoon.settled();
  }

  /** Show the grammar of a preset: a text, or a table with the kind. */
  async setPreset(grammar) {
    if (grammar === null || typeof grammar === "string") return this.set(grammar ?? "");
    const [kind] = ["gbnf", "json_schema", "regex", "lark", "name"].filter((name) => grammar[name] !== undefined);
    if (!kind) return this.set("");
    const value = grammar[kind];
    return this.set(typeof value === "string" ? value : JSON.stringify(value, null, 2), kind === "name" ? "auto" : kind);
  }

  async check() {
    const text = this.field.value;
    const kind = this.kind.value;
    try {
      const grammar = grammarOf(text, kind);
      const answer = grammar === null ? { ok: true } : await this.server.json("/gen/grammars/check", { grammar });
      if (this.field.value !== text || this.kind.value !== kind) return;
      if (answer.ok) this.accept(grammar, answer);
      else this.reject(answer.line === null ? answer.message : `line ${answer.line}, column ${answer.column}: ${answer.message}`);
    } catch (error) {
      this.reject(error.message);
    }
  }

  /** The grammar as a preset has it. */
  get presetValue() {
    const schema = this.value?.json_schema;
    return schema === undefined ? this.value : { json_schema: JSON.parse(schema) };
  }

  accept(grammar, answer) {
    this.problem = null;
    this.field.removeAttribute("aria-invalid");
    const ignored = answer.ignored_schema_paths ?? [];
    this.note.textContent = grammar === null ? "" : visible(`${answer.kind}${ignored.length ? `; without effect: ${ignored.join(", ")}` : ""}`);
    this.note.classList.remove("problem");
    if (JSON.stringify(grammar) === JSON.stringify(this.value)) return;
    this.value = grammar;
    this.changed();
  }

  reject(message) {
    this.problem = message;
    this.field.setAttribute("aria-invalid", "true");
    this.note.textContent = visible(message);
    this.note.classList.add("problem");
    if (this.value !== null) {
      this.value = null;
      this.changed();
    }
  }
}

/** Return a grammar as requests have it; null without one. */
function grammarOf(text, kind) {
  if (!text.trim()) return null;
  if (kind === "auto" && text.trim().startsWith("{")) return { json_schema: text };
  return kind === "auto" ? text : { [kind]: text };
}
