// The data of the page, which is unpacked when it is needed.

import { countText } from "./web/format.js";
import { unpacked } from "./web/packed.js";
import { Trace } from "./web/trace.js";

const MAX_CACHED_BLOCKS = 16;

/** A run: its overview, and the details of its tokens, which are unpacked in blocks. */
export class Run {
  constructor(number, overview) {
    Object.assign(this, overview);
    this.number = number;
    this.length = overview.texts.length;
    this.contentById = new Map(overview.contents[0].map((id, position) => [id, overview.contents[1][position]]));
    this.blocks = new Map();
    this.surprises = this.mostSurprising();
    this.droppedTopIndices = overview.droppedTop.flatMap((dropped, index) => (dropped ? [index] : []));
  }

  /** The prompt without a chat template; null if it is not recorded. */
  get prompt() {
    const prompt = this.settings?.prompt;
    return typeof prompt === "string" ? prompt : null;
  }

  /** The prompt if its tokens are not recorded; otherwise null. */
  get promptText() {
    return this.promptTokens > 0 ? null : this.prompt;
  }

  static async load(number) {
    return new Run(number, await unpacked(`run-${number}`));
  }

  /** Return the content of a token: a string, or a list of bytes that are not UTF-8. */
  contentOf(id) {
    return this.contentById.get(id) ?? "\ufffd";
  }

  /** Return the content of the token at an index. */
  contentAt(index) {
    return this.ids[index] === null ? this.texts[index] : this.contentOf(this.ids[index]);
  }

  /** Return the number of a token in words, counted from 0 as in `gen inspect --token`. */
  positionText(index) {
    return index < this.promptTokens ? `prompt, token ${countText(index)}` : `token ${countText(index - this.promptTokens)}`;
  }

  /** Return the indices of the ten most surprising tokens, or of 2 % of a long run, in the order of the text. */
  mostSurprising() {
    const count = Math.max(10, Math.ceil(this.length * 0.02));
    return this.bySurprise().slice(0, count).sort((first, second) => first - second);
  }

  /** Return the indices of the tokens with a logprob, the most surprising first. */
  bySurprise() {
    const indices = this.logprobs.flatMap((logprob, index) => (logprob === null ? [] : [index]));
    return indices.sort((first, second) => this.logprobs[first] - this.logprobs[second]);
  }

  /** Return the trace, the alternatives and the returns of a token; each is null if it is not recorded. */
  async details(index) {
    const number = Math.floor(index / this.blockTokens);
    if (!this.blocks.has(number)) {
      this.blocks.set(number, unpacked(`run-${this.number}-block-${number}`));
      if (this.blocks.size > MAX_CACHED_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    }
    const block = await this.blocks.get(number);
    const details = block?.[index % this.blockTokens];
    return { trace: details?.stages ? unpackedTrace(details, this.ids[index]) : null, alternatives: details?.alternatives ?? null, returns: this.returns[index] ?? null };
  }
}

/** Return the trace of a token from its packed form. */
function unpackedTrace(packed, chosenId) {
  const candidates = packed.ids.map((id, row) => ({ id, droppedBy: packed.dropped[row], isChosen: id === chosenId, logits: [], probs: [] }));
  let logits = [];
  packed.stages.forEach((_, stage) => {
    logits = packed.logits[stage] ?? logits;
    const total = packed.totals[stage];
    candidates.forEach((candidate, row) => {
      const isDropped = candidate.droppedBy >= 0 && stage >= candidate.droppedBy;
      const logit = logits[row];
      candidate.logits.push(isDropped ? null : logit);
      if (typeof total !== "number") candidate.probs.push(total[row]);
      else candidate.probs.push(isDropped ? null : logit === null ? 0 : Math.exp(logit - total));
    });
  });
  const draw = packed.draw && { u: packed.draw[0], low: packed.draw[1], high: packed.draw[2] };
  return new Trace(packed.stages, candidates, draw, Boolean(packed.forced));
}

/** Return the index of the first different token, counted after the prompts; null if the runs are the same. */
export function firstDifference(runs) {
  const lengths = runs.map((run) => run.length - run.promptTokens);
  const isSameAt = (index) => {
    const [first, ...others] = runs.map((run) => [run.ids[index + run.promptTokens], run.texts[index + run.promptTokens]]);
    return others.every((other) => other[0] === first[0] && other[1] === first[1]);
  };
  const shortest = Math.min(...lengths);
  for (let index = 0; index < shortest; index += 1) {
    if (!isSameAt(index)) return index;
  }
  return lengths.every((length) => length === shortest) ? null : shortest;
}

/** Return whether the prompts of the runs are the same, as far as their tokens or texts are recorded. */
export function havePromptInCommon(runs) {
  const prompts = runs.filter((run) => run.promptTokens > 0).map((run) => run.texts.slice(0, run.promptTokens).join(""));
  const texts = runs.filter((run) => run.prompt !== null).map((run) => run.prompt);
  return new Set(prompts).size <= 1 && new Set(texts).size <= 1;
}
