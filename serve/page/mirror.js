// The copy of the text behind the text area, which shows the tints of its tokens.

import { element } from "./web/elements.js";
import { classOf } from "./tints.js";
import { changeOf, textOf } from "./texts.js";

// Where a person cannot see it, or in a paragraph of more tokens, the copy is plain text.
const MAX_TOKENS = 2000;
const MAX_AT_ONCE = 2000;

/**
 * The copy. It has a block for each paragraph, so that a browser lays out only those that have changed. A block ends with
 * the token that ends with a newline. It is `{first, last, node, spans}`: `last` is the token after it, and `spans` are the
 * elements of its tokens, or null.
 */
export class Mirror {
  constructor(box) {
    this.box = box;
    this.tokens = [];
    this.measure = "probability";
    this.selected = null; // the element of the selected token
    this.end = element("span", {}, "\u200b"); // so that the copy has a last line of full height
    this.blocks = [{ first: 0, last: 0, node: element("div", {}, this.end), spans: [] }];
    this.observer = new IntersectionObserver((entries) => this.seen(entries), { root: box.closest(".paper"), rootMargin: "100% 0px" });
    this.blockOf = new WeakMap(); // by their nodes
    box.append(this.blocks[0].node);
    this.watch(this.blocks[0]);
  }

  watch(block) {
    this.blockOf.set(block.node, block);
    this.observer.observe(block.node);
  }

  /** Show the tokens of blocks that a person can see now, and no longer those of the others. */
  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const block = this.blockOf.get(target);
      if (this.blocks[this.placeOf(block.first)] !== block && !target.isConnected) continue;
      if (isIntersecting) this.detail(block);
      else if (this.tokens.length > MAX_AT_ONCE) this.simplify(block);
    }
  }

  /** Return the index of the block with a token. */
  placeOf(index) {
    let [low, high] = [0, this.blocks.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.blocks[middle].last <= index) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Show a list of tokens, which begins with the last one's first `start` tokens, and ends with its last `kept` ones. */
  show(tokens, start, kept) {
    const old = this.tokens;
    const [from, to] = [this.placeOf(start - 1), this.placeOf(old.length - kept)];
    const grown = tokens.length - old.length;
    const replaced = this.blocks.slice(from, to + 1);
    const following = this.blocks.slice(to + 1);
    const known = new Map(replaced.flatMap(({ first, spans }) => (spans ?? []).map((span, index) => [old[first + index].uid, span])));
    this.tokens = tokens;
    const made = this.divide(replaced[0].first, replaced.at(-1).last + grown, following.length === 0);
    for (const block of following) {
      block.first += grown;
      block.last += grown;
    }
    this.blocks = [...this.blocks.slice(0, from), ...made, ...following];
    this.put(made, replaced);
    const isShort = made.at(-1).last - made[0].first <= MAX_AT_ONCE;
    for (const block of made) {
      if (isShort) this.detail(block, known);
      else this.simplify(block);
      this.watch(block);
    }
  }

  /** Return blocks for tokens. `isEnd`: whether the text ends with them; then the last block may be empty. */
  divide(first, last, isEnd) {
    const blocks = [];
    let start = first;
    for (let index = first; index < last; index += 1) {
      if (!this.tokens[index].text.endsWith("\n")) continue;
      blocks.push({ first: start, last: index + 1, node: null, spans: null });
      start = index + 1;
    }
    if (start < last || isEnd || !blocks.length) blocks.push({ first: start, last, node: null, spans: null });
    return blocks;
  }

  /** Put new blocks into the place of others. A single one keeps its node. */
  put(made, replaced) {
    if (made.length === 1 && replaced.length === 1) {
      made[0].node = replaced[0].node;
      return;
    }
    const nodes = document.createDocumentFragment();
    for (const block of made) nodes.append(block.node = element("div"));
    replaced[0].node.before(nodes);
    for (const { node } of replaced) {
      this.observer.unobserve(node);
      node.remove();
    }
  }

  /** Give a block an element for each token. `known`: elements by the numbers of tokens. */
  detail(block, known = new Map()) {
    if (block.spans || block.last - block.first > MAX_TOKENS) return;
    block.spans = this.tokens.slice(block.first, block.last).map((token) => known.get(token.uid) ?? this.span(token));
    this.fill(block, block.spans);
  }

  simplify(block) {
    if (block.spans?.includes(this.selected)) return;
    block.spans = null;
    const text = textOf(this.tokens.slice(block.first, block.last));
    const shown = block.node.firstChild;
    if (shown instanceof Text) {
      const { start, end, inserted } = changeOf(shown.data, text);
      if (start < end || inserted) shown.replaceData(start, end - start, inserted); // the glyphs of the other characters stay known
    } else this.fill(block, [text]);
  }

  fill(block, children) {
    block.node.replaceChildren(...children, ...(block === this.blocks.at(-1) ? [this.end] : []));
  }

  span(token) {
    const span = document.createElement("span");
    span.className = classOf(token, this.measure);
    span.textContent = token.text;
    return span;
  }

  /** Show a text that may follow, such as the rest of what was generated, and whether the model has ended the text. */
  showEnd(rest, isEnded) {
    const text = `${rest}\u200b`;
    if (this.end.textContent !== text) this.end.textContent = text; // or the last paragraph would be laid out again
    this.end.classList.toggle("ended", isEnded);
  }

  /** Return the token that an element shows; -1 if it shows none. */
  indexOf(span) {
    const block = this.blockOf.get(span?.parentElement);
    const index = block?.spans?.indexOf(span) ?? -1;
    return index < 0 ? -1 : block.first + index;
  }

  /** Return the element of a token, or that of its paragraph. */
  elementOf(index) {
    const block = this.blocks[this.placeOf(index)];
    this.detail(block);
    return block.spans?.[index - block.first] ?? block.node;
  }

  /** Tint the tokens by another measure. */
  tint(measure) {
    this.measure = measure;
    for (const { first, spans } of this.blocks) spans?.forEach((span, index) => { span.className = classOf(this.tokens[first + index], measure); });
    this.selected?.classList.add("selected");
  }

  /** Mark a token; -1: none. */
  select(index) {
    this.selected?.classList.remove("selected");
    this.selected = null;
    if (index < 0) return;
    const block = this.blocks[this.placeOf(index)];
    this.detail(block);
    this.selected = block.spans?.[index - block.first] ?? null;
    this.selected?.classList.add("selected");
  }
}
