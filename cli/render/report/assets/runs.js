// The data of the page: unpacked when it is needed.

async function unpacked(id) {
  const packed = byId(id).textContent;
  if (!packed) return null;
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const KEPT_BLOCKS = 16;

/** A run: the columns of its head, and the details of its tokens on request. */
class Run {
  constructor(number, head) {
    Object.assign(this, head);
    this.number = number;
    this.length = head.texts.length;
    this.pieceOf = new Map(head.pieces[0].map((id, position) => [id, head.pieces[1][position]]));
    this.blocks = new Map();
    this.surprises = this.mostSurprising();
    this.fallenAt = head.fallen.flatMap((fallen, index) => (fallen ? [index] : []));
  }

  /** The prompt as it was typed; null if it is not recorded. */
  get prompt() {
    const prompt = this.settings?.prompt;
    return typeof prompt === "string" ? prompt : null;
  }

  /** The prompt, if its tokens are not recorded; null otherwise. */
  get promptText() {
    return this.promptTokens > 0 ? null : this.prompt;
  }

  static async load(number) {
    return new Run(number, await unpacked(`run-${number}`));
  }

  /** The piece of a token: a text, or bytes that are not UTF-8. */
  piece(id) {
    return this.pieceOf.get(id) ?? "\ufffd";
  }

  /** The piece of the token at this index. */
  pieceAt(index) {
    return this.ids[index] === null ? this.texts[index] : this.piece(this.ids[index]);
  }

  /** Which token it is, counted from 0 as `gen inspect --token` counts; in the prompt or among those written. */
  placeOf(index) {
    return index < this.promptTokens ? `prompt, token ${countText(index)}` : `token ${countText(index - this.promptTokens)}`;
  }

  /** The tokens that `n` goes to, in the order of the text: ten, or two in a hundred of a long run. */
  mostSurprising() {
    const count = Math.max(10, Math.ceil(this.length * 0.02));
    return this.bySurprise().slice(0, count).sort((one, other) => one - other);
  }

  /** The indices of the tokens with a logprob, the most surprising first. */
  bySurprise() {
    const known = this.logprobs.flatMap((logprob, index) => (logprob === null ? [] : [index]));
    return known.sort((one, other) => this.logprobs[one] - this.logprobs[other]);
  }

  /** What is recorded of a token beside its logprob: its trace, and alternatives. Null if there is nothing. */
  async details(index) {
    const number = Math.floor(index / this.blockTokens);
    if (!this.blocks.has(number)) {
      this.blocks.set(number, unpacked(`run-${this.number}-block-${number}`));
      if (this.blocks.size > KEPT_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    }
    const block = await this.blocks.get(number);
    return block === null ? null : block[index % this.blockTokens];
  }
}

/** A packed trace, with its columns computed. */
class Trace {
  constructor(packed, chosenId) {
    this.stages = packed.stages;
    this.draw = packed.draw && { u: packed.draw[0], low: packed.draw[1], high: packed.draw[2] };
    this.isForced = Boolean(packed.forced);
    this.candidates = packed.ids.map((id, row) => ({
      id,
      droppedBy: packed.dropped[row],
      isChosen: id === chosenId,
      logits: [],
      probs: [],
    }));
    let logits = [];
    packed.stages.forEach((_, stage) => {
      logits = packed.logits[stage] ?? logits;
      const total = packed.totals[stage];
      this.candidates.forEach((candidate, row) => {
        const isGone = candidate.droppedBy >= 0 && stage >= candidate.droppedBy;
        const logit = logits[row];
        candidate.logits.push(isGone ? null : logit);
        if (typeof total !== "number") candidate.probs.push(total[row]);
        else candidate.probs.push(isGone ? null : logit === null ? 0 : Math.exp(logit - total));
      });
    });
  }

  get chosen() {
    return this.candidates.find((candidate) => candidate.isChosen) ?? null;
  }

  /** The model's likeliest token. */
  get likeliest() {
    return this.byProbability(0)[0] ?? null;
  }

  /** The candidates of a stage, the likeliest first. */
  byProbability(stage) {
    const present = this.candidates.filter((candidate) => candidate.probs[stage] !== null);
    return present.sort((one, other) => other.probs[stage] - one.probs[stage]);
  }

  /**
   * The intervals of the last stage's candidates in the order of the draw; only the drawn one's if that is unknown.
   * A trace does not have the order. Those that samplers leave are tried: the drawn token's interval tells which it is.
   */
  intervals() {
    const { low, high } = this.draw;
    for (const order of this.possibleOrders()) {
      const known = [];
      let sum = 0;
      for (const candidate of order) {
        known.push({ candidate, low: sum, high: (sum += candidate.probs.at(-1)) });
      }
      const drawn = known.find((interval) => interval.candidate.isChosen);
      if (drawn && Math.abs(drawn.low - low) < 1e-4 && Math.abs(drawn.high - high) < 1e-4) return known;
    }
    return [{ candidate: this.chosen, low, high }];
  }

  /** By probability; by id; and by how near a token's surprise was to the entropy, as `typical` leaves them. */
  possibleOrders() {
    const present = this.candidates.filter((candidate) => candidate.probs.at(-1) !== null);
    const by = (key) => present.toSorted((one, other) => key(one) - key(other));
    const typical = this.stages.map((stage, number) => by((candidate) => Math.abs(-Math.log(candidate.probs[number]) - stage.entropy)));
    return [by((candidate) => -candidate.probs.at(-1)), by((candidate) => candidate.id), ...typical];
  }
}

/** The index from which the runs differ, counted without their prompts; null if they are the same. */
function firstDifference(runs) {
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

/** True if no two of the runs have different prompts; a run may be without its prompt's tokens, or without its text. */
function havePromptInCommon(runs) {
  const prompts = runs.filter((run) => run.promptTokens > 0).map((run) => run.texts.slice(0, run.promptTokens).join(""));
  const texts = runs.filter((run) => run.prompt !== null).map((run) => run.prompt);
  return new Set(prompts).size <= 1 && new Set(texts).size <= 1;
}
