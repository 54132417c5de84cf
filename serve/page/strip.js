// The list of tokens: those around the cursor, one by one.

import { element } from "./web/elements.js";
import { visible } from "./web/format.js";
import { contentText, isReasoning, keptLength, sharedLength, thoughtName } from "./texts.js";
import { classOf } from "./tints.js";

const MARGIN = 60; // tokens that are shown on each side of the cursor: each key lays out the list, 400 take 15 ms
const SPACES = { " ": "space", "\n": "newline", "\t": "tab", "\r": "return" };

/** The list; `fold` is the button that shows the tokens of the reasoning. A press calls `pressed` with a token's index. */
export class TokenStrip {
  constructor(list, fold, pressed) {
    this.list = list;
    this.fold = fold;
    this.pressed = pressed;
    this.tokens = [];
    this.first = 0; // the index of the first token that is shown
    this.shown = []; // the tokens that are shown
    this.items = []; // and their elements
    this.measure = "probability";
    this.cursor = -1; // the token at the cursor
    this.selected = -1;
    this.reachable = null; // the button that the Tab key reaches
    list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) this.pressed(this.indexOf(item));
    });
    list.addEventListener("keydown", (event) => this.key(event));
    fold.addEventListener("click", () => this.unfold(!this.isUnfolded));
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

  indexOf(item) {
    return this.first + this.items.indexOf(item);
  }

  itemAt(index) {
    return this.items[index - this.first];
  }

  /** Show tokens, around the one at the cursor. */
  show(tokens, cursor) {
    this.tokens = tokens;
    const count = tokens.filter(isReasoning).length;
    this.fold.hidden = count === 0;
    this.fold.textContent = thoughtName(count);
    this.follow(cursor);
  }

  /** Show the token at the cursor, and those around it. */
  follow(cursor) {
    this.itemAt(this.cursor)?.removeAttribute("data-cursor");
    this.cursor = cursor;
    this.patch();
    this.itemAt(cursor)?.setAttribute("data-cursor", "");
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const item = this.itemAt(this.cursor);
      if (item && !this.list.contains(document.activeElement)) scrollWithin(item, this.list);
    });
  }

  /** Replace the elements of the tokens that have changed, or that are far from the cursor. */
  patch() {
    const isNear = this.cursor >= this.first + Math.min(this.first, MARGIN / 2) && this.cursor < this.first + 3 * MARGIN;
    if (!isNear) this.first = Math.max(0, this.cursor - MARGIN);
    const tokens = this.tokens.slice(this.first, Math.max(this.cursor + MARGIN, this.first + 2 * MARGIN));
    const old = this.shown;
    const start = sharedLength(old, tokens);
    const kept = keptLength(old, tokens, start);
    const following = this.items[old.length - kept] ?? null;
    const items = tokens.slice(start, tokens.length - kept).map((token) => this.item(token));
    for (const item of this.items.splice(start, old.length - kept - start, ...items)) item.remove();
    if (following) following.before(...items);
    else this.list.append(...items);
    this.shown = tokens;
    if (!this.reachable?.isConnected && this.items.length) this.makeReachable(this.items[0]);
  }

  item(token) {
    const name = spokenName(token);
    return element("li", { "aria-label": name, class: classOf(token, this.measure) },
      element("button", { type: "button", tabindex: "-1", "aria-label": name, class: token.id === null ? "pending" : null }, chipText(token)));
  }

  /** Tint the tokens by another measure. */
  tint(measure) {
    this.measure = measure;
    this.shown.forEach((token, index) => { this.items[index].className = classOf(token, measure); });
  }

  /** Mark a token; -1: none. */
  select(index) {
    const last = this.itemAt(this.selected);
    last?.classList.remove("selected");
    last?.firstChild.removeAttribute("aria-current");
    this.selected = index;
    if (index < 0) return;
    if (!this.itemAt(index)) this.follow(index);
    const item = this.itemAt(index);
    if (this.isHidden(item)) this.unfold(true);
    item.classList.add("selected");
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

  key(event) {
    const item = event.target.closest("li");
    const shown = this.items.filter((other) => !this.isHidden(other));
    const place = shown.indexOf(item);
    const last = shown.length - 1;
    const next = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: last }[event.key];
    if (next === undefined || place < 0) return;
    const target = shown[Math.max(0, Math.min(next, last))];
    this.makeReachable(target);
    target.firstChild.focus({ preventScroll: true });
    scrollWithin(target, this.list);
    event.preventDefault();
  }
}

/** Scroll an element into view inside its box only. `scrollIntoView` would scroll the page, too. */
export function scrollWithin(node, box) {
  const inner = node.getBoundingClientRect();
  const outer = box.getBoundingClientRect();
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
}

/** Return the name of a token for screen readers: its text without white space around it, or the names of its white space. */
function spokenName(token) {
  const text = visible(contentText(token)).trim();
  if (text) return text;
  return Array.from(contentText(token), (character) => SPACES[character] ?? "white space").join(" ") || "empty";
}

function chipText(token) {
  return visible(contentText(token)).replace(/ /g, "\u00b7").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5");
}
