// The texts of a tab: a tree in which no text is ever lost. A text is a list of tokens.

import { hexadecimal } from "./web/format.js";

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

/** Return a token for text that the server has not tokenized yet. */
export function pendingToken(text) {
  return makeToken({ event: "prompt", id: null, text, bytes: Array.from(new TextEncoder().encode(text)), logprob: null });
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

/** Return the number of tokens with which both lists begin. */
export function sharedLength(first, second) {
  let length = 0;
  while (length < first.length && length < second.length && first[length].uid === second[length].uid) length += 1;
  return length;
}

/**
 * Divide a text among the tokens that the server returned for it: `{id, piece}`, a piece being a text or bytes.
 * A token whose bytes end inside a character gets no text; the token that completes the character gets it.
 */
export function alignTokens(text, pieces) {
  const data = new TextEncoder().encode(text);
  const decoder = new TextDecoder();
  let at = 0;
  const tokens = pieces.map(({ id, piece }) => {
    const bytes = typeof piece === "string" ? Array.from(new TextEncoder().encode(piece)) : piece;
    const isNext = (part) => part.every((byte, index) => data[at + index] === byte);
    // A tokenizer may add a space before a text, or a control token that is not part of it.
    const own = isNext(bytes) ? bytes : bytes[0] === 32 && isNext(bytes.slice(1)) ? bytes.slice(1) : [];
    const piecesText = decoder.decode(data.subarray(at, at + own.length), { stream: true });
    at += own.length;
    return { event: "prompt", id, bytes, token: typeof piece === "string" ? piece : new TextDecoder().decode(new Uint8Array(bytes)), text: piecesText, logprob: null };
  });
  const rest = decoder.decode(data.subarray(at));
  if (rest && tokens.length) tokens[tokens.length - 1].text += rest;
  return tokens.map(makeToken);
}

/** A text in the tree, and how it came from its parent. `kind`: `start`, `typed`, `generated`, `branch` or `opened`. */
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
    return this.parent ? sharedLength(this.tokens, this.parent.tokens) : 0;
  }

  /** The part of the text that its parent does not have, or the whole text. */
  get ownText() {
    return textOf(this.tokens.slice(this.shared)) || textOf(this.tokens);
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

  /** Make all tokens a text that the server has not tokenized. What was known of them is gone. */
  forgetIds() {
    const pending = new Map();
    for (const node of this.nodes.values()) {
      node.run = null;
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

  /** Return the tree as plain objects for a file or a store. Tokens are named by their numbers. */
  asRecords() {
    return this.inOrder().map((node) => ({
      id: node.id,
      parent: node.parent?.id ?? null,
      kind: node.kind,
      uids: node.tokens.map((token) => token.uid),
      run: node.run,
    }));
  }

  /** Return the tree that `asRecords` wrote. Raises an error if the records do not form a tree. */
  static fromRecords(records, tokens, currentId, pastIds = []) {
    const tree = new TextTree();
    tree.nodes.clear();
    for (const record of records) {
      const parent = record.parent === null ? null : tree.nodes.get(record.parent);
      const own = record.uids.map((uid) => tokens.get(uid));
      if (parent === undefined || own.includes(undefined) || tree.nodes.has(record.id)) throw new Error("its texts do not form a tree");
      const node = new TextNode({ id: record.id, parent, kind: record.kind, tokens: own, run: record.run });
      tree.nodes.set(node.id, node);
      parent?.children.push(node);
      tree.nextId = Math.max(tree.nextId, node.id + 1);
    }
    tree.current = tree.nodes.get(currentId);
    if (!tree.current) throw new Error("the text that it shows is missing");
    tree.past = pastIds.map((id) => tree.nodes.get(id)).filter(Boolean);
    return tree;
  }
}
