// The trace of a token: what each stage did to the candidates, and the draw.

/**
 * The trace of a token.
 * A candidate has: `id`, `content` (a string, or a list of bytes that are not UTF-8), `droppedBy` (the index of a stage,
 * or -1), `isChosen`, and for each stage an entry of `logits` and `probs`, which is null where the candidate is absent.
 */
export class Trace {
  constructor(stages, candidates, draw, isForced, reason = null) {
    this.stages = stages;
    this.candidates = candidates;
    this.draw = draw; // u, low and high; null without a draw
    this.isForced = isForced;
    this.reason = reason; // a sentence on who chose the token; null if the chain did
  }

  get chosen() {
    return this.candidates.find((candidate) => candidate.isChosen) ?? null;
  }

  /** The candidate with the highest probability of the model. */
  get topCandidate() {
    return this.byProbability(0)[0] ?? null;
  }

  /** Return the candidates after a stage, the most likely first. */
  byProbability(stage) {
    const present = this.candidates.filter((candidate) => candidate.probs[stage] !== null);
    return present.sort((first, second) => second.probs[stage] - first.probs[stage]);
  }

  /**
   * Return the intervals of the candidates after the last stage; only one, for the drawn token, if the order is unknown.
   * A trace does not record the order of the candidates. So the usual orders are tried until one of them gives the
   * recorded interval of the drawn token.
   */
  intervals() {
    const { low, high } = this.draw;
    for (const order of this.possibleOrders()) {
      const intervals = [];
      let sum = 0;
      for (const candidate of order) {
        intervals.push({ candidate, low: sum, high: (sum += candidate.probs.at(-1)) });
      }
      const drawn = intervals.find((interval) => interval.candidate.isChosen);
      if (drawn && Math.abs(drawn.low - low) < 1e-4 && Math.abs(drawn.high - high) < 1e-4) return intervals;
    }
    return [{ candidate: this.chosen, low, high }];
  }

  /** Return the candidates in the orders in which samplers leave them: by probability, by id, and as `typical`. */
  possibleOrders() {
    const present = this.candidates.filter((candidate) => candidate.probs.at(-1) !== null);
    const by = (key) => present.toSorted((first, second) => key(first) - key(second));
    const typical = this.stages.map((stage, number) => by((candidate) => Math.abs(-Math.log(candidate.probs[number]) - stage.entropy)));
    return [by((candidate) => -candidate.probs.at(-1)), by((candidate) => candidate.id), ...typical];
  }
}
