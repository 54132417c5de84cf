// The tree of texts.

import { element } from "./web/elements.js";
import { countText, visible } from "./web/format.js";
import { textOf } from "./texts.js";

const MAX_CHARACTERS = 70;
const MIN_CHARACTERS = 8; // fewer say little
const TOKENS_BEFORE = 4;
const KINDS = { start: "empty", typed: "typed", generated: "generated", accepted: "accepted", branch: "branch", opened: "opened" };

/** Return the beginning of a text, in one line. */
export function shortText(text) {
  const whole = text.trim() || "\u2013";
  const beginning = whole.length > MAX_CHARACTERS ? `${whole.slice(0, MAX_CHARACTERS)}\u2026` : whole;
  return visible(beginning).replace(/\n/g, "\u21b5");
}

/** Return the beginning of what a text adds to the one before it; if that is little, with the words before it. */
function shortOwnText({ ownText, ownTokens, tokens, shared }) {
  if (!shared || !ownTokens.length || ownText.trim().length >= MIN_CHARACTERS) return shortText(ownText);
  return `\u2026${shortText(textOf(tokens.slice(Math.max(0, shared - TOKENS_BEFORE), shared)) + ownText)}`;
}

/** The tree "Branches". A press calls `goTo` with a text. */
export class BranchTree {
  constructor(container, goTo) {
    this.container = container;
    this.items = new WeakMap(); // the elements of the texts, and what they show
    this.goTo = goTo;
    container.addEventListener("click", (event) => {
      const item = event.target.closest("[role=treeitem]");
      if (item) this.goTo(item.node);
    });
    container.addEventListener("keydown", (event) => this.key(event));
  }

  /** Show a tree. Only texts with siblings are indented, so that a text of many steps stays in one column. */
  show(tree) {
    this.tree = tree;
    const hadFocus = this.container.contains(document.activeElement);
    const root = Array.from(tree.nodes.values()).find((node) => node.parent === null);
    const items = [];
    const walk = (start, level) => {
      for (let node = start; node; ) {
        const isStep = node.kind === "accepted" && !node.children.length; // Undo returns to it
        if (node === tree.current || (node.tokens.length && !isStep)) items.push(this.item(node, level));
        const { children } = node;
        if (children.length === 1) [node] = children;
        else {
          for (const child of children) walk(child, level + 1);
          return;
        }
      }
    };
    walk(root, 1);
    const shown = this.container.children;
    if (shown.length !== items.length || items.some((item, index) => item !== shown[index])) this.container.replaceChildren(...items);
    const current = items.find((item) => item.node === tree.current) ?? items[0];
    if (current) {
      for (const item of items) item.tabIndex = item === current ? 0 : -1;
      if (hadFocus) current.focus();
      requestAnimationFrame(() => this.scrollTo(current)); // the layout is not computed twice
    }
  }

  scrollTo(item) {
    const box = this.container;
    const isVisible = item.offsetTop >= box.scrollTop && item.offsetTop + item.offsetHeight <= box.scrollTop + box.clientHeight;
    if (!isVisible) box.scrollTop = item.offsetTop - box.clientHeight / 2;
  }

  /** Return the element of a text, which is made again only if the text has changed. */
  item(node, level) {
    const isCurrent = node === this.tree.current;
    const made = this.items.get(node);
    const key = [node.tokens, node.parent?.tokens, level, isCurrent];
    if (made?.key.every((value, index) => value === key[index])) return made.item;
    const item = this.newItem(node, level, isCurrent);
    this.items.set(node, { key, item });
    return item;
  }

  newItem(node, level, isCurrent) {
    const item = element("div", { role: "treeitem", tabindex: "-1", "aria-level": level, "aria-selected": String(isCurrent), class: `branch level-${Math.min(level, 8)}` },
      element("bdi", { class: "beginning" }, shortOwnText(node)),
      element("span", { class: "note" }, ` ${KINDS[node.kind] ?? ""}, ${countText(node.tokens.length)} tokens`));
    item.node = node;
    return item;
  }

  key(event) {
    const items = Array.from(this.container.children);
    const index = items.indexOf(document.activeElement);
    if (index < 0) return;
    const target = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: items.length - 1 }[event.key];
    if (target !== undefined) items[Math.max(0, Math.min(target, items.length - 1))].focus();
    else if (event.key === "Enter" || event.key === " ") this.goTo(items[index].node);
    else if (event.key === "ArrowLeft") this.focusParent(items, index);
    else return;
    event.preventDefault();
  }

  focusParent(items, index) {
    const level = Number(items[index].getAttribute("aria-level"));
    items.slice(0, index).findLast((item) => Number(item.getAttribute("aria-level")) < level)?.focus();
  }
}
