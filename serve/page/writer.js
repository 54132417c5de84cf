// Writing: what a person types, what the model generates, and the tree that keeps all of it.

import { appended, Arrivals, editTokens, makeToken, pendingToken, textOf, TextTree, withTexts } from "./texts.js";

const BURST_MILLISECONDS = 1000;
const TRACE_COUNT = 20;
const NEAR_TOKENS = 300; // on each side of a change

/**
 * The text of the tab. `hooks`: `settings()` returns the settings of requests, `shown()` is called when another text is
 * shown, `grown()` when the text has grown by a token.
 */
export class Writer {
  constructor(server, hooks) {
    this.server = server;
    this.hooks = hooks;
    this.tree = new TextTree();
    this.lastTyped = 0;
    this.controller = null; // of the generation that runs
    this.progress = null; // how far it is
    this.contextLength = Infinity;
    this.tokenizing = null;
  }

  get tokens() {
    return this.tree.current.tokens;
  }

  get isWriting() {
    return this.controller !== null;
  }

  /** Replace the characters from `start` to `end` of the text. Tokens that the change does not touch stay as they are. */
  replace(start, end, inserted) {
    this.type(editTokens(this.tokens, start, end, inserted));
  }

  /** Show tokens that a person has changed. Changes that follow each other quickly are one step of Undo. */
  type(tokens) {
    const node = this.tree.current;
    const now = performance.now();
    const continues = node.kind === "typed" && !node.children.length && now - this.lastTyped < BURST_MILLISECONDS;
    this.lastTyped = now;
    if (continues) node.tokens = tokens;
    else this.tree.add("typed", tokens);
  }

  /** End a step of Undo. */
  endBurst() {
    this.lastTyped = -Infinity;
  }

  /** Let the server tokenize what was typed. A text without generated tokens gets the tokens of `gen` for it. */
  async tokenize() {
    while (this.tokenizing) await this.tokenizing;
    this.tokenizing = this.tokenizePending();
    try {
      await this.tokenizing;
    } finally {
      this.tokenizing = null;
    }
  }

  async tokenizePending() {
    while (true) {
      const node = this.tree.current;
      const { tokens } = node;
      if (tokens.every((token) => token.id !== null)) return;
      const tokenized = await this.tokenized(tokens, false);
      if (node.tokens !== tokens) continue; // the text has changed in the meantime
      node.tokens = tokenized;
      if (node === this.tree.current) this.hooks.shown();
    }
  }

  /**
   * Return the tokens with those that the server makes of the text that is not tokenized. No text at all becomes BOS. While
   * a person types in a long text, `isExact` is false: only the text near the change is tokenized again.
   */
  async tokenized(tokens, isExact = true) {
    let result = tokens.length ? tokens : [pendingToken("")];
    while (true) {
      const pending = result.findIndex((token) => token.id === null || (isExact && token.isNear));
      if (pending < 0) return result;
      const whole = runAround(result, pending);
      const [start, end] = isExact ? whole : nearPart(result, pending, whole);
      const isNear = start > whole[0] || end < whole[1];
      const { grammar } = result[pending];
      const part = result.slice(start, end);
      const answer = await this.server.json("/gen/text/tokens", { text: textOf(part), after: start ? result[start - 1].id : null });
      const made = answer.tokens.map((token) => makeToken({ event: "prompt", ...token, token: new TextDecoder().decode(new Uint8Array(token.bytes)), text: "", logprob: null, ...(grammar ? { grammar } : {}), ...(isNear ? { isNear } : {}) }));
      const known = part.filter((token) => token.id !== null && !(isExact && token.isNear));
      result = [...appended(result.slice(0, start), reuse(withTexts(made), known)), ...result.slice(end)];
    }
  }

  /** Return whether the server makes the prompt of a text: it has more than the text, or there may be no room for all. */
  isLong(tokens, { memory, authors_note: note, world_info: world, max_tokens: length = 0 }) {
    return [memory, note, world].some((value) => value !== undefined) || tokens.length + length > this.contextLength;
  }

  /** Return the fields of a request that continues tokens. */
  fields(tokens, last = this.tree.current) {
    const { grammar, rules, opening, ...settings } = this.hooks.settings();
    const key = grammar === null ? null : JSON.stringify(grammar);
    // The grammar reads what was written under it, unless that is a whole sentence.
    const isComplete = tokens === last.tokens && last.run?.done?.complete === true;
    const beginning = key === null || isComplete ? "" : textOf(tokens.slice(tokens.findLastIndex((token) => token.grammar !== key) + 1));
    const set = key === null ? { ...rules, grammar: null } : { ...rules };
    const isLong = this.isLong(tokens, settings);
    if (isLong) {
      settings.memory ??= ""; // with a memory, the server leaves out the beginning of a text that is too long
      if (set.heal) set.heal = false; // which tokens it removes from another prompt is not known here
    }
    return { prompt: isLong ? textOf(tokens) : tokens.map((token) => token.id), ...settings, set, ...(isLong ? {} : answerStart(tokens, opening)), ...(key === null ? {} : { grammar, ...(beginning ? { beginning } : {}) }) };
  }

  /**
   * Let the model write between the `tokens` before a place of a text, `parent`, and those `after` it. The new text is a node
   * of the tree, which grows; for each further one of the `seeds`, another text grows beside it. `place` says what the
   * texts replace, see `TextTree.alternatives`; `limit`: the number of tokens, if not that of the settings. `cut` returns
   * the length of what was written if it is to end there.
   * Raises the errors of the server; the tokens that have come stay. Return the run of the first text.
   */
  async generate({ tokens, after, parent, place, limit, seeds, cut }) {
    const { grammar } = this.hooks.settings();
    const key = grammar === null ? null : JSON.stringify(grammar);
    const controller = new AbortController();
    this.controller = controller;
    this.progress = { read: null, count: 0, since: null };
    this.endBurst();
    const fields = { ...this.fields(tokens, parent), trace: TRACE_COUNT, logprobs: true, return_progress: true };
    fields.max_tokens = limit ?? fields.max_tokens;
    const texts = seeds.map((seed, number) => ({
      run: { start: null, done: null, place: { ...place, seed } }, // the first and the last line have not come yet
      node: null,
      isFirst: number === 0,
      add: (run) => (number === 0 ? this.tree.add("generated", tokens, run, parent) : this.tree.insert(parent, "generated", tokens, run)),
    }));
    try {
      this.hooks.shown();
      await Promise.all(texts.map((text) => this.receive(text, { tokens, after, key, cut, signal: controller.signal, fields: { ...fields, seed: text.run.place.seed } })));
    } catch (error) {
      if (!controller.signal.aborted) {
        controller.abort(); // the other texts
        throw error;
      }
    } finally {
      for (const { run } of texts) run.done ??= { event: "done", finish_reason: "interrupted", text: "" };
      this.controller = null;
      const made = texts.map(({ node }) => node).filter(Boolean);
      parent.children = [...parent.children.filter((node) => !made.includes(node)), ...made.filter((node) => node.parent === parent)];
      this.hooks.shown();
    }
    return texts[0].run;
  }

  /** Let a text grow by the lines of a request, until it ends. */
  async receive(text, { tokens, after, fields, key, cut, signal }) {
    let arrivals = new Arrivals(tokens);
    let shown = tokens;
    let returns = []; // of tokens that have not come yet
    let end = null;
    const offset = textOf(tokens).length;
    const show = (own) => {
      if (own === shown) return; // nothing has become visible
      text.node ??= text.add(text.run);
      shown = own;
      text.node.tokens = appended(own, after);
      if (text.isFirst) this.hooks.grown();
    };
    try {
      for await (const line of this.server.lines("/gen/generate", fields, signal)) {
        if (text.isFirst) this.note(line);
        if (line.event === "start") {
          text.run.start = line;
          // Healing removes the last tokens of the prompt, and the first tokens of the run spell them again.
          if (line.heal) arrivals = new Arrivals(tokens.slice(0, line.prompt_tokens), textOf(tokens.slice(line.prompt_tokens)));
          shown = arrivals.tokens;
        } else if (line.event === "done") text.run.done = line;
        else if (line.event === "rewind") {
          returns = [...returns.filter((other) => other.index <= line.index), line]; // later places begin again
        } else if (line.event === "token") {
          const own = returns.filter((other) => other.index === line.index);
          arrivals.add(makeToken({ ...line, ...(own.length ? { returns: own } : {}), ...(key === null ? {} : { grammar: key }) }));
          show(arrivals.tokens);
          end = cut(textOf(arrivals.tokens).slice(offset));
          if (end !== null) {
            text.run.isCut = true;
            break;
          }
        }
      }
    } finally {
      arrivals.finish();
      const own = end === null ? arrivals.tokens : editTokens(arrivals.tokens, offset + end, textOf(arrivals.tokens).length, "");
      if (text.node || textOf(own) !== textOf(tokens)) show(own);
    }
  }

  /** Note how far the model is. */
  note({ event, read_tokens: read, prompt_tokens: length }) {
    if (event === "reading") this.progress.read = [read, length];
    else if (event === "start") Object.assign(this.progress, { read: null, since: performance.now() });
    else if (event === "token") this.progress.count += 1;
    this.hooks.grown();
  }

  /**
   * Return the tokens of a text before its first `start` characters, and those of its last `rest` ones. A part of a token
   * becomes tokens of its own. No text at all becomes BOS.
   */
  async divided(tokens, { start, rest }) {
    const { length } = textOf(tokens);
    let before = await this.tokenized(editTokens(tokens, start, length, ""), false);
    if (!this.isLong(before, this.hooks.settings())) before = await this.tokenized(before); // of a long text, the server gets no tokens
    const after = rest ? editTokens(tokens, 0, length - rest, "") : [];
    return { before, after: after.slice(after.findIndex((token) => token.text !== "" || token.isOpen)) };
  }

  stop() {
    this.controller?.abort();
  }

  /** Add the text with another candidate in the place of a token, where it belongs. Return it. */
  addBranch(index, candidateId) {
    const replaced = this.tokens[index];
    const candidate = replaced.trace.candidates.find((other) => other.id === candidateId);
    const token = takenToken(candidate, replaced.trace, replaced);
    return this.tree.add("branch", appended(this.tokens.slice(0, index), [token]), null, this.tree.parentOfBranch(index));
  }
}

/** Return where the text of a person begins and ends that has the token at an index. */
function runAround(tokens, index) {
  const belongs = (token) => token?.event === "prompt" && (token.grammar === tokens[index].grammar || Boolean(token.added));
  let [start, end] = [index, index];
  while (belongs(tokens[start - 1])) start -= 1;
  while (belongs(tokens[end])) end += 1;
  return [start, end];
}

/** Return the part of a long run around the token at an index, which begins and ends where a word begins. */
function nearPart(tokens, index, [first, last]) {
  if (last - first <= 2 * NEAR_TOKENS) return [first, last];
  const isWordStart = (place) => /^\s/.test(tokens[place].text) && !tokens[place - 1].isOpen;
  let start = Math.max(first, index - NEAR_TOKENS);
  while (start > first && !isWordStart(start)) start -= 1;
  let end = Math.min(last, index + NEAR_TOKENS);
  while (end < last && !isWordStart(end)) end += 1;
  return [start, end];
}

/** Return the field that says where the answer begins: after the text that a chat template made. Without it, there is none. */
function answerStart(tokens, opening) {
  if (!opening || !textOf(tokens).startsWith(opening)) return {};
  let length = 0;
  const start = tokens.findIndex((token) => (length += token.text.length) > opening.length);
  return { answer_start: start < 0 ? tokens.length : start };
}

/** Return the token of a candidate that a person has chosen. Its trace is that of the place, without a draw. */
export function takenToken(candidate, trace, origin = {}) {
  const probability = candidate.probs[0];
  const decoder = new TextDecoder();
  const { stages, candidates } = trace;
  return makeToken({
    event: "token", id: candidate.id, token: candidate.token, bytes: candidate.bytes, text: decoder.decode(new Uint8Array(candidate.bytes)),
    logprobs_from: "model", logprob: probability > 0 ? Math.log(probability) : null, top_logprobs: [], entropy: stages[0].entropy,
    trace: { stages, candidates, draw: null }, isTaken: true, ...(origin.grammar ? { grammar: origin.grammar } : {}),
  });
}

/** Return new tokens, with the known ones in the places where they are the same, so that they keep their elements. */
function reuse(tokens, known) {
  const result = [...tokens];
  const isSame = (first, second) => first !== undefined && second !== undefined && first.id === second.id && first.text === second.text;
  let index = 0;
  while (index < result.length && isSame(result[index], known[index])) {
    result[index] = known[index];
    index += 1;
  }
  const most = Math.min(result.length, known.length) - index;
  for (let back = 1; back <= most && isSame(result.at(-back), known.at(-back)); back += 1) result[result.length - back] = known.at(-back);
  return result;
}
