// The text: a text area, and a copy of its text behind it that shows the tints of tokens.

import { element } from "./web/elements.js";
import { changeOf, keptLength, sharedLength, textOf } from "./texts.js";
import { classOf } from "./tints.js";

/**
 * The text area with its copy, and the list of tokens `strip`. `hooks` has the functions `edited(start, end, text)`, called
 * after a change by a person; `moved()`, after one of the cursor; and `pressed(index)`, with the token of a word.
 */
export class Editor {
  constructor(area, mirror, strip, hooks) {
    this.area = area;
    this.mirror = mirror;
    this.strip = strip;
    this.hooks = hooks;
    this.tokens = [];
    this.ends = new Uint32Array(0); // where the tokens end, in characters of the text
    this.spans = []; // the elements of the tokens in the copy
    this.text = "";
    this.measure = "probability";
    this.selected = -1;
    this.end = document.createElement("span"); // so that the copy has a last line of full height
    this.end.textContent = "\u200b";
    mirror.append(element("div", {}, this.end));
    this.listen();
  }

  listen() {
    this.area.addEventListener("input", () => this.typed());
    document.addEventListener("selectionchange", () => {
      if (document.activeElement === this.area) this.hooks.moved();
    });
    this.mirror.parentElement.addEventListener("mousedown", (event) => this.ask(event));
  }

  /** Let a press on a word show why its token was chosen, while the button "Why" or the Alt key is pressed. */
  ask(event) {
    const sheet = this.mirror.parentElement;
    const { asks } = sheet.dataset;
    if (event.button !== 0 || (asks === undefined && !event.altKey)) return;
    event.preventDefault(); // the cursor stays
    sheet.dataset.asks = "";
    const index = this.spans.indexOf(document.elementFromPoint(event.clientX, event.clientY));
    if (asks === undefined) delete sheet.dataset.asks;
    if (index >= 0) this.hooks.pressed(index);
  }

  /** Let presses on words show why their tokens were chosen, or put the cursor there again. */
  toggleAsking(button) {
    const { dataset } = this.mirror.parentElement;
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

  /** Show a text that may follow, such as the rest of what was generated, and whether the model has ended the text. */
  showEnd(rest, isEnded) {
    this.end.textContent = `${rest}\u200b`;
    this.end.classList.toggle("ended", isEnded);
  }

  /** Replace the elements of the tokens that have changed. */
  patch(tokens) {
    const old = this.tokens;
    const start = sharedLength(old, tokens);
    const kept = keptLength(old, tokens, start);
    this.replaceSpans(start, old.length - kept, tokens.slice(start, tokens.length - kept).map((token) => this.span(token)));
    this.tokens = tokens;
    this.ends = new Uint32Array(tokens.length);
    for (let index = 0, end = 0; index < tokens.length; index += 1) this.ends[index] = end += tokens[index].text.length;
    if (this.selected >= 0) this.select(-1);
    this.strip.show(tokens, this.tokenAt(this.cursor));
  }

  /**
   * Replace the elements from index `start` to `end` in the copy of the text. The copy has a block for each paragraph, so
   * that a browser lays out only those that have changed. A block ends with the token that ends with a newline.
   */
  replaceSpans(start, end, spans) {
    const removed = this.spans.slice(start, end);
    if (![...removed, ...spans].some((span) => span.textContent.endsWith("\n"))) { // the paragraphs stay
      this.spans.splice(start, end - start, ...spans);
      for (const span of removed) span.remove();
      (this.spans[start + spans.length] ?? this.end).before(...spans);
      return;
    }
    const first = (this.spans[start - 1] ?? this.spans[0] ?? this.end).parentElement;
    const last = (this.spans[end] ?? this.end).parentElement;
    const place = first.previousSibling;
    const blocks = [];
    for (let block = first; block !== null; block = block === last ? null : block.nextSibling) blocks.push(block);
    const before = start > 0 && blocks.includes(this.spans[start - 1].parentElement) ? Array.from(first.childNodes) : [];
    const kept = before.slice(0, before.indexOf(this.spans[start - 1]) + 1);
    const following = this.spans[end] ?? this.end;
    const after = Array.from(last.childNodes);
    const rest = after.slice(after.indexOf(following));
    this.spans.splice(start, end - start, ...spans);
    for (const block of blocks) block.remove();
    let block = element("div", {});
    const added = [block];
    for (const span of [...kept, ...spans, ...rest]) {
      block.append(span);
      if (span !== this.end && span.textContent.endsWith("\n")) added.push((block = element("div", {})));
    }
    if (!block.childNodes.length) added.pop();
    if (place) place.after(...added);
    else this.mirror.prepend(...added);
  }

  span(token) {
    const span = document.createElement("span");
    span.className = classOf(token, this.measure);
    span.textContent = token.text;
    return span;
  }

  /** Tint the tokens by another measure. */
  tint(measure) {
    this.measure = measure;
    this.tokens.forEach((token, index) => { this.spans[index].className = classOf(token, measure); });
    this.strip.tint(measure);
    if (this.selected >= 0) this.select(this.selected);
  }

  /** Mark a token; -1: none. */
  select(index) {
    this.spans[this.selected]?.classList.remove("selected");
    this.selected = index < this.tokens.length ? index : -1;
    this.spans[this.selected]?.classList.add("selected");
    this.strip.select(this.selected);
  }
}
