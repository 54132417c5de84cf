// The text: a text area, a copy of its text behind it that shows the tints of tokens, and the list of tokens.

import { element } from "./web/elements.js";
import { visible } from "./web/format.js";
import { changeOf, contentText, isReasoning, sharedLength, textOf, thoughtName } from "./texts.js";
import { dropsTop, MEASURES } from "./tints.js";

/**
 * The text area and the list of tokens; `fold` is the button that shows those of the reasoning. `hooks` has the functions `edited(tokens)`, called with the tokens after a
 * change by a person; `moved(position)`, with the place of the cursor; and `pressed(index)`, with a token's index.
 */
export class Editor {
  constructor(area, mirror, list, fold, hooks) {
    this.area = area;
    this.mirror = mirror;
    this.list = list;
    this.fold = fold;
    this.hooks = hooks;
    this.tokens = [];
    this.spans = []; // the elements of the tokens in the copy
    this.items = []; // and in the list
    this.text = "";
    this.measure = "probability";
    this.selected = -1;
    this.marked = []; // the elements of the selected token
    this.reachable = null; // the button of the list that the Tab key reaches
    this.end = document.createElement("span"); // so that the copy has a last line of full height
    this.end.textContent = "\u200b";
    mirror.append(element("div", {}, this.end));
    this.listen();
  }

  listen() {
    this.area.addEventListener("input", () => this.typed());
    this.area.addEventListener("click", () => {
      if (this.area.selectionStart === this.area.selectionEnd) this.press(this.tokenAt(this.area.selectionStart), false);
    });
    document.addEventListener("selectionchange", () => {
      if (document.activeElement === this.area) this.hooks.moved(this.cursor);
    });
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) this.press(this.indexOf(item), true);
    });
    this.list.addEventListener("keydown", (event) => this.keyInList(event));
    this.fold.addEventListener("click", () => this.unfold(!this.isUnfolded));
  }

  get isUnfolded() {
    return this.fold.getAttribute("aria-expanded") === "true";
  }

  /** Show the tokens of the reasoning, or hide them. */
  unfold(isUnfolded) {
    this.fold.setAttribute("aria-expanded", String(isUnfolded));
    this.list.classList.toggle("folded", !isUnfolded);
    if (this.isHidden(this.reachable?.parentElement)) this.makeReachable(this.items.find((item) => !this.isHidden(item)) ?? this.items[0]);
  }

  isHidden(item) {
    return !this.isUnfolded && Boolean(item?.classList.contains("reasoning"));
  }

  showThought() {
    const count = this.tokens.filter(isReasoning).length;
    this.fold.hidden = count === 0;
    this.fold.textContent = thoughtName(count);
  }

  /** The place of the cursor, in characters of the text. */
  get cursor() {
    return this.area.selectionEnd;
  }

  /** Put the cursor at the end of a token, or of the text. */
  moveCursor(index = this.tokens.length - 1) {
    const position = this.offsetOf(index + 1);
    this.area.setSelectionRange(position, position);
    this.hooks.moved(position);
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
    let offset = 0;
    for (let before = 0; before < index; before += 1) offset += this.tokens[before].text.length;
    return offset;
  }

  /** Return the index of the token that ends at a place of the text or contains it; -1 before the first one. */
  tokenAt(position) {
    let end = 0;
    for (let index = 0; index < this.tokens.length; index += 1) {
      end += this.tokens[index].text.length;
      if (end >= position && this.tokens[index].text) return index;
    }
    return this.tokens.length - 1;
  }

  /** Return the number of tokens before a place of the text. Tokens that contain it, or begin a character there, do not count. */
  countBefore(position) {
    let end = 0;
    let count = 0;
    for (const [index, token] of this.tokens.entries()) {
      end += token.text.length;
      const isAfter = end === position && token.text === "" && index > 0; // such as a space that was added before a text
      if (end > position || (isAfter && !token.isOpen)) break;
      if (!token.isOpen) count = index + 1;
    }
    return count;
  }

  /** Replace the elements of the tokens that have changed. */
  patch(tokens) {
    const old = this.tokens;
    const start = sharedLength(old, tokens);
    let kept = 0;
    while (kept < Math.min(old.length, tokens.length) - start && old[old.length - 1 - kept].uid === tokens[tokens.length - 1 - kept].uid) kept += 1;
    const end = old.length - kept;
    const followingItem = this.items[end] ?? null;
    const added = tokens.slice(start, tokens.length - kept);
    const spans = added.map((token) => this.span(token));
    const items = added.map((token) => this.item(token));
    this.replaceSpans(start, end, spans);
    for (const item of this.items.splice(start, end - start, ...items)) item.remove();
    if (followingItem) followingItem.before(...items);
    else this.list.append(...items);
    this.tokens = tokens;
    if (this.selected >= 0) this.select(-1);
    if (!this.reachable?.isConnected && this.items.length) this.makeReachable(this.items[0]);
    this.showThought();
  }

  /**
   * Replace the elements from index `start` to `end` in the copy of the text. The copy has a block for each paragraph, so
   * that a browser lays out only those that have changed. A block ends with the token that ends with a newline.
   */
  replaceSpans(start, end, spans) {
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

  classOf(token) {
    const level = MEASURES[this.measure].level(token);
    const isWritten = token.event === "token";
    return `t h${level}${isWritten ? "" : " prompt"}${isReasoning(token) ? " reasoning" : ""}${isWritten && dropsTop(token) ? " marked top-dropped" : ""}${token.returns ? " marked returned" : ""}`;
  }

  span(token) {
    const span = document.createElement("span");
    span.className = this.classOf(token);
    span.textContent = token.text;
    return span;
  }

  item(token) {
    const name = spokenName(token);
    return element("li", { "aria-label": name, class: this.classOf(token) },
      element("button", { type: "button", tabindex: "-1", "aria-label": name, class: token.id === null ? "pending" : null }, chipText(token)));
  }

  /** Tint the tokens by another measure. */
  tint(measure) {
    this.measure = measure;
    this.tokens.forEach((token, index) => {
      const name = this.classOf(token);
      this.spans[index].className = name;
      this.items[index].className = name;
    });
    if (this.selected >= 0) this.select(this.selected);
  }

  indexOf(item) {
    return this.items.indexOf(item);
  }

  press(index, isInList) {
    if (index >= 0) this.hooks.pressed(index, isInList);
  }

  /** Mark a token; -1: none. */
  select(index) {
    for (const node of this.marked) node.classList.remove("selected");
    this.marked.at(-1)?.firstChild.removeAttribute("aria-current");
    this.marked = [];
    this.selected = index < this.tokens.length ? index : -1;
    if (this.selected < 0) return;
    const item = this.items[index];
    if (this.isHidden(item)) this.unfold(true);
    this.marked = [this.spans[index], item];
    for (const node of this.marked) node.classList.add("selected");
    item.firstChild.setAttribute("aria-current", "true");
    this.makeReachable(item);
    scrollWithin(item, this.list);
  }

  /** Let the Tab key reach this item of the list, and no other one. */
  makeReachable(item) {
    if (this.reachable) this.reachable.tabIndex = -1;
    this.reachable = item.firstChild;
    this.reachable.tabIndex = 0;
  }

  keyInList(event) {
    const item = event.target.closest("li");
    const index = item ? this.indexOf(item) : -1;
    const shown = this.items.filter((other) => !this.isHidden(other));
    const place = shown.indexOf(item);
    const last = shown.length - 1;
    const next = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: last }[event.key];
    if (next !== undefined && place >= 0) {
      const target = shown[Math.max(0, Math.min(next, last))];
      this.makeReachable(target);
      target.firstChild.focus({ preventScroll: true });
      scrollWithin(target, this.list);
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === " ") && event.target === item) {
      this.press(index, true);
      event.preventDefault();
    }
  }
}

/** Scroll an element into view inside its box only. `scrollIntoView` would scroll the page, too. */
function scrollWithin(node, box) {
  const inner = node.getBoundingClientRect();
  const outer = box.getBoundingClientRect();
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
}

const SPACES = { " ": "space", "\n": "newline", "\t": "tab", "\r": "return" };

/** Return the name of a token for screen readers: its text without white space around it, or the names of its white space. */
export function spokenName(token) {
  const text = visible(contentText(token)).trim();
  if (text) return text;
  return Array.from(contentText(token), (character) => SPACES[character] ?? "white space").join(" ") || "empty";
}

function chipText(token) {
  return visible(contentText(token)).replace(/ /g, "\u00b7").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5");
}
