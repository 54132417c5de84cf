// The text: a text area, and a copy of its text behind it that shows the tints of tokens.

import { Mirror } from "./mirror.js";
import { scrollWithin } from "./strip.js";
import { changeOf, keptLength, sharedLength, textOf } from "./texts.js";

/**
 * The text area with its copy, and the list of tokens `strip`. `hooks` has the functions `edited(start, end, text)`, called
 * after a change by a person; `moved()`, after one of the cursor; and `pressed(index)`, with the token of a word.
 */
export class Editor {
  constructor(area, mirror, strip, hooks) {
    this.area = area;
    this.mirror = new Mirror(mirror);
    this.sheet = mirror.parentElement;
    this.strip = strip;
    this.hooks = hooks;
    this.tokens = [];
    this.ends = new Uint32Array(0); // where the tokens end, in characters of the text
    this.text = "";
    this.selected = -1;
    this.listen();
  }

  listen() {
    this.area.addEventListener("input", () => this.typed());
    document.addEventListener("selectionchange", () => {
      if (document.activeElement === this.area) this.hooks.moved();
    });
    this.sheet.addEventListener("mousedown", (event) => this.ask(event));
  }

  /** Let a press on a word show why its token was chosen, while the button "Why" or the Alt key is pressed. */
  ask(event) {
    const { asks } = this.sheet.dataset;
    if (event.button !== 0 || (asks === undefined && !event.altKey)) return;
    event.preventDefault(); // the cursor stays
    this.sheet.dataset.asks = "";
    const index = this.mirror.indexOf(document.elementFromPoint(event.clientX, event.clientY));
    if (asks === undefined) delete this.sheet.dataset.asks;
    if (index >= 0) this.hooks.pressed(index);
  }

  /** Let presses on words show why their tokens were chosen, or put the cursor there again. */
  toggleAsking(button) {
    const { dataset } = this.sheet;
    if (dataset.asks === undefined) dataset.asks = "";
    else delete dataset.asks;
    button.setAttribute("aria-pressed", String(dataset.asks !== undefined));
  }

  /** The place of the cursor, in characters of the text. */
  get cursor() {
    return this.area.selectionEnd;
  }

  /** Put the cursor at the end of a token, or of the text. */
  moveCursor(index = this.tokens.length - 1) {
    this.putCursor(this.offsetOf(index + 1));
  }

  putCursor(position) {
    this.area.setSelectionRange(position, position);
    this.hooks.moved();
  }

  /** Scroll the cursor into view. The text area has no scroll bars of its own; on a narrow screen, the page scrolls, too. */
  reveal(box) {
    const index = this.tokenAt(this.cursor);
    if (index >= 0) scrollWithin(this.mirror.elementOf(index), box);
    box.scrollIntoView({ block: "nearest" });
  }

  /** Show a list of tokens. The cursor and the selection stay where they are, as far as the text reaches. */
  show(tokens) {
    const text = textOf(tokens);
    if (text !== this.area.value) {
      if (text.startsWith(this.area.value)) this.area.setRangeText(text.slice(this.area.value.length), this.area.value.length, this.area.value.length, "preserve");
      else {
        const { selectionStart, selectionEnd } = this.area;
        this.area.value = text;
        this.area.setSelectionRange(Math.min(selectionStart, text.length), Math.min(selectionEnd, text.length));
      }
    }
    this.patch(tokens);
    this.text = this.area.value;
  }

  /** Take over what a person has typed: the tokens that the change touches become one that is not tokenized yet. */
  typed() {
    const { start, end, inserted } = changeOf(this.text, this.area.value);
    this.text = this.area.value;
    this.hooks.edited(start, end, inserted);
  }

  /** Return the offset of a token in the text. */
  offsetOf(index) {
    return index > 0 ? this.ends[index - 1] : 0;
  }

  /** Return the number of tokens that end before a place of the text. */
  countEndingBefore(position) {
    let [low, high] = [0, this.ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Return the index of the token that ends at a place of the text or contains it; -1 before the first one. */
  tokenAt(position) {
    let index = this.countEndingBefore(position);
    while (this.tokens[index]?.text === "") index += 1;
    return Math.min(index, this.tokens.length - 1);
  }

  /** Return the number of tokens before a place of the text. Tokens that contain it, or begin a character there, do not count. */
  countBefore(position) {
    let count = this.countEndingBefore(position + 1);
    const isAfter = (index) => index > 0 && this.tokens[index].text === "" && this.ends[index] === position; // such as a space that was added before a text
    while (count > 0 && (this.tokens[count - 1].isOpen || isAfter(count - 1))) count -= 1;
    return count;
  }

  /** Replace the elements of the tokens that have changed. */
  patch(tokens) {
    const old = this.tokens;
    const start = sharedLength(old, tokens);
    const kept = keptLength(old, tokens, start);
    this.mirror.show(tokens, start, kept);
    this.tokens = tokens;
    this.ends = new Uint32Array(tokens.length);
    for (let index = 0, end = 0; index < tokens.length; index += 1) this.ends[index] = end += tokens[index].text.length;
    if (this.selected >= 0) this.select(-1);
    this.strip.show(tokens, this.tokenAt(this.cursor));
  }

  /** Tint the tokens by another measure. */
  tint(measure) {
    this.mirror.tint(measure);
    this.strip.tint(measure);
    if (this.selected >= 0) this.select(this.selected);
  }

  /** Mark a token; -1: none. */
  select(index) {
    this.selected = index < this.tokens.length ? index : -1;
    this.mirror.select(this.selected);
    this.strip.select(this.selected);
  }
}
