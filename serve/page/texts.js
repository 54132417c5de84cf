// The texts of a tab: a tree in which no text is ever lost. A text is a list of tokens.

import { countText, hexadecimal } from "./web/format.js";

const CHARACTERS_PER_TOKEN = 4; // of usual texts

let lastUid = 0;

/** Number the tokens of this tab above `uid`, after tokens with numbers were loaded. */
export function reserveUids(uid) {
  lastUid = Math.max(lastUid, uid);
}

/**
 * Return a token from a line of the server. A token never changes. Its fields are those of the line, such as `id`,
 * `bytes`, `text`, `logprob`, `entropy` and `trace`; `event` is `token` if the model wrote the token, or else `prompt`.
 */
export function makeToken(line) {
  lastUid += 1;
  return Object.freeze({ ...line, uid: lastUid });
}

/**
 * Return a token for text that the server has not tokenized yet. Its text is what a text area can show of it.
 * `grammar`: see `Writer.fields`.
 */
export function pendingToken(text, grammar) {
  const shown = text.toWellFormed().replace(/\r\n?/g, "\n");
  return makeToken({ event: "prompt", id: null, text: shown, bytes: Array.from(new TextEncoder().encode(shown)), logprob: null, ...(grammar ? { grammar } : {}) });
}

/** Return the content of a token: its text, or a list of its bytes if they are not UTF-8. */
export function contentOf(token) {
  if (token.id === null) return token.text;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(token.bytes));
  } catch {
    return token.bytes;
  }
}

/** Return the content of a token as a text; parts of characters in hexadecimal digits. */
export function contentText(token) {
  const content = contentOf(token);
  return typeof content === "string" ? content : hexadecimal(content);
}

export function textOf(tokens) {
  return tokens.map((token) => token.text).join("");
}

/** Return the number of tokens, in words. Text that is not tokenized yet counts by its length. */
export function countOf(tokens) {
  const pending = tokens.filter((token) => token.id === null);
  const count = pending.reduce((sum, { text }) => sum + Math.ceil(text.length / CHARACTERS_PER_TOKEN), tokens.length - pending.length);
  return `${pending.length ? "about " : ""}${countText(count)} tokens`;
}

/** Return which part of a text another one replaces: `start` and `end` in the first text, and what is there instead. */
export function changeOf(before, after) {
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) start += 1;
  let kept = 0;
  while (kept < most - start && before[before.length - 1 - kept] === after[after.length - 1 - kept]) kept += 1;
  return { start, end: before.length - kept, inserted: after.slice(start, after.length - kept) };
}

export function isReasoning(token) {
  return token.part === "reasoning";
}

/** Return the name of a folded reasoning. */
export function thoughtName(count) {
  return `Thought, ${countText(count)} ${count === 1 ? "token" : "tokens"}`;
}

/** Return the reasoning without its tags, and the answer after it. `tags`: those of the run. */
export function partsOf(tokens, tags) {
  const answerStart = tokens.findLastIndex(isReasoning) + 1;
  const answer = textOf(tokens.slice(answerStart));
  if (answerStart === 0 || !tags) return { reasoning: "", answer };
  const opened = withoutStart(textOf(tokens.slice(0, answerStart)).trim(), [tags.start]);
  const reasoning = opened.endsWith(tags.end) ? opened.slice(0, -tags.end.length) : opened;
  return { reasoning: reasoning.trim(), answer: withoutStart(answer.trimStart(), tags.answer_prefixes).trimStart() };
}

function withoutStart(text, starts) {
  return text.slice(starts.find((start) => text.startsWith(start))?.length ?? 0);
}

/** Return the number of tokens with which both lists begin. */
export function sharedLength(first, second) {
  let length = 0;
  while (length < first.length && length < second.length && first[length].uid === second[length].uid) length += 1;
  return length;
}

/** Return the number of tokens with which both lists end, besides the `start` with which they begin. */
export function keptLength(first, second, start) {
  const most = Math.min(first.length, second.length) - start;
  let length = 0;
  while (length < most && first[first.length - 1 - length].uid === second[second.length - 1 - length].uid) length += 1;
  return length;
}

// What the model reads is what the page shows: the bytes of the tokens are the bytes of the text. Only the first `added`
// bytes of a token are not shown: BOS, and the space that a tokenizer adds where a text begins. A character may be divided
// among several tokens. The one that completes it has it in its `text`, and the tokens before are `isOpen`.

function shownBytes(token) {
  return token.bytes.slice(token.added ?? 0);
}

/** Return the number of bytes at the end that begin a character, but do not complete it. */
function openLength(bytes) {
  for (let length = 1; length <= Math.min(3, bytes.length); length += 1) {
    const ending = new Uint8Array(bytes.slice(-length));
    if ((ending[0] & 0xc0) === 0x80) continue; // inside a character
    return ending[0] >= 0xc0 && new TextDecoder().decode(ending, { stream: true }) === "" ? length : 0;
  }
  return 0;
}

/** Return tokens with the texts that their bytes have in this order. A token whose text stays the same is the same one. */
export function withTexts(tokens) {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let ending = []; // the last bytes
  return tokens.map((token, index) => {
    if (token.id === null) return token;
    const bytes = shownBytes(token);
    ending = [...ending, ...bytes].slice(-3);
    const isEnd = (tokens[index + 1]?.id ?? null) === null;
    const text = decoder.decode(new Uint8Array(bytes), { stream: !isEnd });
    const isOpen = !isEnd && openLength(ending) > 0;
    if (isEnd) ending = [];
    return token.text === text && Boolean(token.isOpen) === isOpen ? token : makeToken({ ...token, text, isOpen });
  });
}

/** Return tokens with others after them, whose texts are right if a character does not begin before them. */
export function appended(tokens, others) {
  const all = [...tokens, ...others];
  return openLength(tokens.slice(-3).flatMap(shownBytes)) > 0 ? withTexts(all) : all;
}

/** Return tokens in groups that divide no character. */
function characterGroups(tokens) {
  const groups = [];
  tokens.forEach((token, index) => {
    if (tokens[index - 1]?.isOpen) groups.at(-1).push(token);
    else groups.push([token]);
  });
  return groups;
}

/**
 * Replace the characters from `start` to `end` of the text. Tokens that the change does not touch stay as they are. The
 * others become text that is not tokenized; so does a token of a prompt beside which something is deleted.
 */
export function editTokens(tokens, start, end, inserted) {
  if (start === end && !inserted) return tokens;
  // The changed tokens, from `first` to `last`, divide no character. Before them, the text has `offset` characters.
  let [first, last, offset, position] = [0, 0, 0, 0];
  for (let index = 0, reach = 0; index < tokens.length; index += 1) {
    position += tokens[index].text.length;
    if (tokens[index].isOpen && index < tokens.length - 1) continue;
    if (position <= start) [first, offset] = [index + 1, position];
    else if (reach >= end) break;
    [last, reach] = [index + 1, position];
  }
  const left = tokens.slice(0, first);
  const right = tokens.slice(last);
  const changed = textOf(tokens.slice(first, last));
  const [before, after] = [changed.slice(0, Math.max(start - offset, 0)), changed.slice(Math.max(end - offset, 0))];
  let grammar;
  while (left.length > 1 && left.at(-1).text === "") left.pop(); // a space that was added before what is gone
  let text = before + inserted + after;
  if (!text) {
    const isPrompt = (token) => token?.event === "prompt" && token.text !== "";
    if (isPrompt(right[0])) ({ text, grammar } = right.shift());
    else if (isPrompt(left.at(-1))) ({ text, grammar } = left.pop());
  }
  const isPending = (token) => token?.id === null && token.grammar === grammar;
  while (text && isPending(left.at(-1))) text = left.pop().text + text; // what is typed is one text until it is tokenized
  while (text && isPending(right[0])) text += right.shift().text;
  return [...left, ...(text ? [pendingToken(text, grammar)] : []), ...right];
}

/**
 * The tokens of a run as they become visible after the tokens that it continues. A token is kept once the text of the run
 * has all of its characters. So control tokens, what a stop string cuts and what a text area cannot show are not kept.
 */
export class Arrivals {
  /** `text`: the text that the tokens of the run spell before that of the run. */
  constructor(tokens, text = "") {
    this.tokens = tokens;
    this.unmatched = text; // the text that belongs to no kept token
    this.waiting = []; // tokens whose text has not come
  }

  /** Take the next token of the run, whose `text` may be that of earlier ones. */
  add(token) {
    this.unmatched += token.text;
    this.waiting.push(token);
    this.keep(false);
  }

  /** End the run: text that is only a part of a token is text that is not tokenized. */
  finish() {
    this.keep(true);
    if (this.unmatched) this.tokens = [...this.tokens, pendingToken(this.unmatched, this.waiting[0]?.grammar)];
    this.unmatched = "";
    this.waiting = [];
    this.tokens = withoutReturns(this.tokens);
  }

  keep(isEnd) {
    while (this.waiting.length) {
      const [group] = characterGroups(withTexts(this.waiting));
      const text = textOf(group);
      const isOpen = !isEnd && openLength(group.flatMap(shownBytes)) > 0;
      if (text && !isOpen && this.unmatched.startsWith(text)) {
        this.tokens = appended(this.tokens, group);
        this.unmatched = this.unmatched.slice(text.length);
        this.waiting.splice(0, group.length);
      } else if (!isEnd && (isOpen || text.startsWith(this.unmatched))) return; // the rest of the text may come
      else this.waiting.shift();
    }
  }
}

/** Return tokens without the returns that a text area shows as newlines. */
function withoutReturns(tokens) {
  const found = Array.from(textOf(tokens).matchAll(/\r\n?/g)).toReversed();
  return found.reduce((edited, { 0: end, index }) => editTokens(edited, index, index + end.length, "\n"), tokens);
}

/**
 * Return tokens that were stored, as the page keeps them. If their bytes are not those of the text that was shown, then
 * prompts are tokenized again, and generated tokens without text are left out.
 */
export function mendedTokens(tokens) {
  const exact = withTexts(tokens);
  if (exact.every((token, index) => token.text === tokens[index].text && isAddedRightly(token, index))) return withoutReturns(exact);
  let mended = [];
  for (let start = 0, end = 0; start < tokens.length; start = end) {
    const { event } = tokens[start];
    while (tokens[end]?.event === event) end += 1;
    const run = tokens.slice(start, end);
    if (event === "token") {
      const arrivals = new Arrivals(mended);
      for (const token of run) arrivals.add(token);
      arrivals.finish();
      mended = arrivals.tokens;
    } else if (start === 0 || textOf(run)) mended = [...mended, pendingToken(textOf(run))]; // at the start perhaps only BOS
  }
  return mended;
}

/** Return whether the texts of tokens are those of their bytes, as a text area shows them. `first`: the place of the first one. */
function areExact(tokens, first = 0) {
  return withTexts(tokens).every((token, index) => token === tokens[index] && !token.text.includes("\r") && isAddedRightly(token, first + index));
}

/** Return whether the bytes of a token that are not shown can be those that a tokenizer has added. */
function isAddedRightly({ event, added = 0, bytes, text, isOpen }, index) {
  if (added === 0) return text !== "" || Boolean(isOpen);
  return event === "prompt" && (index === 0 || (added === 1 && bytes[0] === 32));
}

/** A text in the tree, and how it came from its parent. `kind`: `start`, `typed`, `generated`, `accepted`, `branch` or `opened`. */
export class TextNode {
  constructor({ id, parent, kind, tokens, run = null }) {
    this.id = id;
    this.parent = parent; // null for the first text
    this.kind = kind;
    this.tokens = tokens;
    this.run = run; // the first and the last line of the generation; null if a person wrote the text
    this.children = [];
  }

  /** The number of tokens that the text shares with its parent. */
  get shared() {
    return this.difference.start;
  }

  /** The numbers of tokens at the `start` and the `end` that the text shares with its parent. */
  get difference() {
    const before = this.parent?.tokens ?? [];
    if (this.compared?.tokens !== this.tokens || this.compared.before !== before) {
      const start = sharedLength(this.tokens, before);
      this.compared = { tokens: this.tokens, before, start, end: keptLength(this.tokens, before, start) };
    }
    return this.compared;
  }

  /** The tokens that its parent does not have. */
  get ownTokens() {
    const { start, end } = this.difference;
    return this.tokens.slice(start, this.tokens.length - end);
  }

  /** The part of the text that its parent does not have, or the whole text. */
  get ownText() {
    return textOf(this.ownTokens) || textOf(this.tokens);
  }

  /** The text that the model has written, without what is before and after it. */
  get written() {
    const { start, rest } = this.run.place;
    const text = textOf(this.tokens);
    return text.slice(start, text.length - rest);
  }
}

/** The tree of texts, and the text that is shown. */
export class TextTree {
  constructor() {
    this.nodes = new Map();
    this.nextId = 1;
    this.past = []; // the texts that Undo returns to, the last one first
    this.redone = []; // the texts that Redo returns to
    this.current = this.insert(null, "start", []);
  }

  insert(parent, kind, tokens, run = null) {
    const node = new TextNode({ id: this.nextId, parent, kind, tokens, run });
    this.nextId += 1;
    this.nodes.set(node.id, node);
    parent?.children.push(node);
    return node;
  }

  /** The run that wrote the end of the text; null if a person wrote it all. */
  get lastRun() {
    let node = this.current;
    while (node && !node.run) node = node.parent;
    return node?.run ?? null;
  }

  /** The text of the last generation, before what was typed since; null without one. */
  get generation() {
    let node = this.current;
    while (node && !node.run?.place) node = node.parent;
    return node;
  }

  /**
   * Return the texts that the model has written in the same place as another one: after the first `start` characters of
   * their parent, and before its last `rest` ones.
   */
  alternatives({ parent, run: { place } }) {
    return parent.children.filter(({ kind, run }) => kind === "generated" && run?.place?.start === place.start && run.place.rest === place.rest);
  }

  /** Remove a text that has no others after it. */
  remove(node) {
    this.nodes.delete(node.id);
    node.parent.children = node.parent.children.filter((other) => other !== node);
    this.past = this.past.filter((other) => other !== node);
    this.redone = this.redone.filter((other) => other !== node);
  }

  /** Add a text after another one, and go to it. */
  add(kind, tokens, run = null, parent = this.current) {
    const node = this.insert(parent, kind, tokens, run);
    this.goTo(node);
    return node;
  }

  goTo(node) {
    if (node === this.current) return;
    this.past.push(this.current);
    this.current = node;
    this.redone = [];
  }

  /** Show another text in the place of the current one, without a step of Undo. */
  turnTo(node) {
    this.current = node;
    this.redone = [];
  }

  /** Return the text beside which a branch belongs that replaces the token at an index of the current text. */
  parentOfBranch(index) {
    let node = this.current;
    while (node.parent && index < node.shared) node = node.parent;
    return node.parent ?? node;
  }

  /** Add all texts of another tree, and go to the text that it shows. */
  graft(other) {
    const root = Array.from(this.nodes.values()).find((node) => node.parent === null);
    const copies = new Map();
    for (const node of other.nodes.values()) {
      copies.set(node, node.parent === null && !node.tokens.length ? root : this.insert(copies.get(node.parent) ?? root, node.kind, node.tokens, node.run));
    }
    this.goTo(copies.get(other.current));
  }

  /** Mend the tokens of all texts, see `mendedTokens`. What a text has from an exact one is not read again. */
  mend() {
    const exact = new Set();
    const parts = new Map(Array.from(this.nodes.values(), (node) => [node, node.difference]));
    for (const node of this.inOrder()) {
      const { tokens, parent } = node;
      let { start, end } = parts.get(node);
      if (!exact.has(parent)) [start, end] = [0, 0];
      let last = tokens.length - end;
      while (start > 0 && tokens[start - 1].isOpen) start -= 1;
      while (last > 0 && last < tokens.length && tokens[last - 1].isOpen) last += 1;
      if (areExact(tokens.slice(start, last), start)) exact.add(node);
      else node.tokens = mendedTokens(tokens);
    }
  }

  /** Make all tokens a text that the server has not tokenized. What was known of them is gone. */
  forgetIds() {
    const pending = new Map();
    for (const node of this.nodes.values()) {
      node.run = node.run?.place ? { start: null, done: null, place: node.run.place } : null;
      node.tokens = node.tokens.map((token) => {
        if (!pending.has(token.uid)) pending.set(token.uid, pendingToken(token.text));
        return pending.get(token.uid);
      });
    }
  }

  get canUndo() {
    return this.past.length > 0;
  }

  get canRedo() {
    return this.redone.length > 0;
  }

  undo() {
    if (!this.canUndo) return;
    this.redone.push(this.current);
    this.current = this.past.pop();
  }

  redo() {
    if (!this.canRedo) return;
    this.past.push(this.current);
    this.current = this.redone.pop();
  }

  /** Return all texts, each after its parent, and those of one parent in their order. */
  inOrder() {
    const waiting = Array.from(this.nodes.values()).filter((node) => node.parent === null);
    const ordered = [];
    while (waiting.length) {
      const node = waiting.pop();
      ordered.push(node);
      waiting.push(...node.children.toReversed());
    }
    return ordered;
  }

  /** Return the tree as plain objects for a file or a store. Tokens are named by their numbers; the parent has the others. */
  asRecords() {
    return this.inOrder().map((node) => ({
      id: node.id,
      parent: node.parent?.id ?? null,
      kind: node.kind,
      start: node.difference.start,
      uids: node.ownTokens.map((token) => token.uid),
      end: node.difference.end,
      run: node.run,
    }));
  }

  /** Return the tree that `asRecords` wrote. Raises an error if the records do not form a tree. */
  static fromRecords(records, tokens, currentId, pastIds = [], redoneIds = []) {
    const tree = new TextTree();
    tree.nodes.clear();
    for (const record of records) {
      const parent = record.parent === null ? null : tree.nodes.get(record.parent);
      const { start = 0, end = 0 } = record;
      const before = parent?.tokens ?? [];
      const own = [...before.slice(0, start), ...record.uids.map((uid) => tokens.get(uid)), ...before.slice(before.length - end)];
      if (parent === undefined || start + end > before.length || own.includes(undefined) || tree.nodes.has(record.id)) throw new Error("its texts do not form a tree");
      const node = new TextNode({ id: record.id, parent, kind: record.kind, tokens: own, run: record.run });
      tree.nodes.set(node.id, node);
      parent?.children.push(node);
      tree.nextId = Math.max(tree.nextId, node.id + 1);
    }
    tree.current = tree.nodes.get(currentId);
    if (!tree.current) throw new Error("the text that it shows is missing");
    [tree.past, tree.redone] = [pastIds, redoneIds].map((ids) => ids.map((id) => tree.nodes.get(id)).filter(Boolean));
    return tree;
  }
}
