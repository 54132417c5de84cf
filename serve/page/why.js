// Why a token was chosen: the panel of the report, for a token of the text.

import { element } from "./web/elements.js";
import { countText, visible } from "./web/format.js";
import { TokenPanel } from "./web/token_panel.js";
import { Trace } from "./web/trace.js";
import { contentOf, contentText } from "./texts.js";

/** The tokens of a text, as the panel needs them. */
class ShownTokens {
  constructor(tokens) {
    this.tokens = tokens;
    this.length = tokens.length;
    this.hasTrace = true;
    this.ids = tokens.map((token) => token.id);
    this.logprobs = tokens.map((token) => token.logprob ?? null);
    this.entropies = tokens.map((token) => token.entropy ?? null);
    this.promptTokens = tokens.findIndex((token) => token.event === "token");
    if (this.promptTokens < 0) this.promptTokens = tokens.length;
    this.contents = new Map();
  }

  contentAt(index) {
    return contentOf(this.tokens[index]);
  }

  contentOf(id) {
    return this.contents.get(id) ?? "\ufffd";
  }

  positionText(index) {
    return index < this.promptTokens ? `prompt, token ${countText(index)}` : `token ${countText(index - this.promptTokens)}`;
  }

  /** Return a candidate of the shown token, as the server sent it. */
  candidate(id) {
    return this.shown.trace.candidates.find((candidate) => candidate.id === id);
  }

  async details(index) {
    const token = this.tokens[index];
    const returns = token.returns?.map(({ ban, text }) => [ban ?? null, text]) ?? null;
    if (!token.trace) return { trace: null, alternatives: null, returns };
    this.shown = token;
    for (const candidate of token.trace.candidates) this.contents.set(candidate.id, contentOf(candidate));
    return { trace: recordedTrace(token), alternatives: null, returns };
  }
}

/** Return the trace of a token from the line of the server. */
function recordedTrace(token) {
  const { stages, candidates, draw, forced } = token.trace;
  return new Trace(stages, candidates.map((candidate) => ({
    id: candidate.id,
    droppedBy: candidate.dropped_by ?? -1,
    isChosen: candidate.id === token.id,
    logits: candidate.logits,
    probs: candidate.probs,
  })), draw ?? null, Boolean(forced), token.isTaken ? "You chose this token." : null);
}

/**
 * The region "Why this token". `select` is called with the index of a neighbor; `take` with an index and the candidate
 * that takes the place of its token.
 */
export class WhyPanel {
  constructor(region, content, select, take) {
    this.region = region;
    this.index = -1;
    this.panel = new TokenPanel(content, select, take && ((candidate) => this.button(candidate, take)));
  }

  button(candidate, take) {
    const text = visible(contentText(this.tokens.candidate(candidate.id)));
    return element("button", { type: "button", class: "small", "aria-label": `Continue with ${text}`, title: "Continue from here with this token, as a new branch", onclick: () => take(this.index, candidate.id) }, "\u21b3");
  }

  async show(tokens, index) {
    this.tokens = new ShownTokens(tokens);
    this.index = index;
    this.region.hidden = false;
    await this.panel.show(this.tokens, index);
  }

  close() {
    this.index = -1;
    this.region.hidden = true;
  }
}
