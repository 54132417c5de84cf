// The alternatives of one place: the texts that the model has written there, and how much of one is accepted.

import { byId, element } from "./web/elements.js";
import { countText } from "./web/format.js";
import { shortText } from "./branches.js";
import { editTokens, textOf } from "./texts.js";

const WORD = /^\s*\S+/;
const LINE = /^\n*[^\n]+/;

/** Return the seed of a text; none for one of another program. */
function seedText({ run: { place } }) {
  return place.seed === null ? "" : `seed ${place.seed}`;
}

/** The row of alternatives below the text, and their comparison. `writing` has the actions on the text. */
export class Alternatives {
  constructor(page, writing) {
    this.page = page;
    this.writing = writing;
    this.row = byId("alternatives");
    this.options = new WeakMap(); // the elements of the texts, and what they show
    this.row.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.goTo(option.node);
    });
    this.row.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || event.altKey) return;
      event.preventDefault();
      this.turn(step);
    });
    page.click("side-by-side", () => this.compare());
    page.click("accept-word", () => this.acceptWord());
    page.click("accept-line", () => this.acceptLine());
    page.click("accept-rest", () => this.acceptRest());
  }

  get tree() {
    return this.page.writer.tree;
  }

  /** Show the alternatives of the last place where the model has written. */
  show(tree) {
    const { generation } = tree;
    byId("alternatives-area").hidden = !generation;
    if (!generation) return;
    const texts = tree.alternatives(generation);
    const shown = this.sourceOf(generation);
    const hadFocus = this.row.contains(document.activeElement);
    const options = texts.map((node, number) => this.option(node, number, node === shown));
    if (options.length === this.row.children.length && options.every((option, number) => option === this.row.children[number])) return;
    this.row.replaceChildren(...options);
    const current = this.row.querySelector("[aria-selected=true]") ?? this.row.firstChild;
    if (current) {
      current.tabIndex = 0;
      if (hadFocus) current.focus();
      requestAnimationFrame(() => { this.row.scrollLeft = current.offsetLeft - this.row.clientWidth / 2; }); // the layout is not computed twice
    }
  }

  /** Show which buttons have an effect. */
  showControls(isBusy) {
    byId("side-by-side").disabled = isBusy || this.row.children.length < 2;
    for (const id of ["accept-word", "accept-line"]) byId(id).disabled = isBusy || !this.proposal;
    byId("accept-rest").hidden = !this.accepted;
  }

  /** Return the element of a text, which is made again only if it has changed. */
  option(node, number, isShown) {
    const key = [node.tokens, number, isShown];
    const made = this.options.get(node);
    if (made?.key.every((value, index) => value === key[index])) return made.option;
    const option = this.newOption(node, number, isShown);
    this.options.set(node, { key, option });
    return option;
  }

  newOption(node, number, isShown) {
    const option = element("div", { role: "option", tabindex: "-1", "aria-selected": String(isShown), title: shortText(node.written) },
      `${number + 1}`, element("span", { class: "note" }, ` ${seedText(node)}`));
    option.node = node;
    return option;
  }

  goTo(node) {
    // What was typed after a text belongs to it.
    let shown = node;
    while (shown.children.at(-1)?.kind === "typed") shown = shown.children.at(-1);
    this.writing.turnTo(shown);
  }

  /** Go to the next alternative, or the one before. */
  turn(step) {
    const { generation } = this.tree;
    if (!generation) return;
    const texts = this.tree.alternatives(generation);
    const node = texts[texts.indexOf(this.sourceOf(generation)) + step];
    if (node) this.goTo(node);
  }

  /** Show the alternatives side by side, in full. */
  compare() {
    const texts = this.tree.alternatives(this.tree.generation);
    const dialog = byId("alternatives-dialog");
    const take = (node) => {
      dialog.close();
      this.goTo(node);
    };
    byId("alternatives-list").replaceChildren(...texts.map((node, number) => {
      const name = `Alternative ${number + 1}`;
      return element("article", { "aria-label": name }, element("h3", {}, [name, seedText(node), `${countText(node.written.split(/\s+/).filter(Boolean).length)} words`].filter(Boolean).join(", ")),
        element("p", { dir: "auto" }, node.written.trim()), element("button", { type: "button", "aria-label": `Take alternative ${number + 1}`, onclick: () => take(node) }, "Take"));
    }));
    dialog.showModal();
  }

  /** Return the generated text from which a text was accepted; a text that is not accepted in parts is its own. */
  sourceOf(node) {
    if (node.kind !== "accepted") return node;
    const { seed } = node.run.place;
    return this.tree.alternatives(node).find((other) => other.run.place.seed === seed && other.written.startsWith(node.written)) ?? node;
  }

  /** The generated text of which a part is accepted, which is shown, and the length of this part; null without one. */
  get accepted() {
    const { current } = this.tree;
    const source = this.sourceOf(current);
    return source === current ? null : { source, length: current.written.length };
  }

  /** The text that was generated at the end, and how many of its characters are accepted; null if there is none. */
  get proposal() {
    const { current } = this.tree;
    return this.accepted ?? (current.kind === "generated" && current.run?.place?.rest === 0 ? { source: current, length: 0 } : null);
  }

  /** The generated text that is not accepted yet. */
  get rest() {
    const { accepted } = this;
    return accepted ? accepted.source.written.slice(accepted.length) : "";
  }

  acceptWord() {
    this.accept(WORD);
  }

  acceptLine() {
    this.accept(LINE);
  }

  /** Keep as much more of the generated text as the pattern matches. The rest is shown, and not a part of the text. */
  accept(pattern) {
    const { proposal } = this;
    if (!proposal || this.page.writer.isWriting || this.writing.isStarting) return;
    const { source } = proposal;
    const rest = source.written.slice(proposal.length);
    const length = proposal.length + (pattern.exec(rest)?.[0].length ?? rest.length);
    if (!source.written.slice(length).trim()) {
      this.acceptRest();
      return;
    }
    const end = source.run.place.start + length;
    const tokens = editTokens(source.tokens, end, textOf(source.tokens).length, "");
    this.tree.add("accepted", tokens, { ...source.run, done: null }, source.parent);
    this.writing.showText();
    this.page.editor.moveCursor();
    this.writing.tokenizeSoon();
  }

  /** Show all of the text that was accepted in parts. */
  acceptRest() {
    if (this.accepted) this.writing.goTo(this.accepted.source);
  }
}
