// The tints of tokens: how a measure of a token becomes one of five levels.

import { element } from "./web/elements.js";
import { heatLevel } from "./web/format.js";
import { isReasoning } from "./texts.js";

const SHARES = ["0.5 to 1", "\u2265 0.2", "\u2265 0.05", "\u2265 0.01", "< 0.01"];

/** The measures of a token. Improbable, surprising and uncertain tokens have high levels; -1 if unknown. */
export const MEASURES = {
  probability: {
    title: "Probability",
    level: (token) => (isWritten(token) ? heatLevel(token.logprob) : -1),
    labels: SHARES,
  },
  chain: {
    title: "Probability after the chain",
    level: (token) => (chosenOf(token) ? heatLevel(Math.log(chosenOf(token).probs.at(-1) ?? 0)) : -1),
    labels: SHARES,
  },
  surprise: {
    title: "Surprise, nats",
    level: (token) => (isWritten(token) ? levelAbove(-token.logprob, [1, 2, 4, 6]) : -1),
    labels: ["< 1", "\u2265 1", "\u2265 2", "\u2265 4", "\u2265 6"],
  },
  entropy: {
    title: "Entropy, nats",
    level: (token) => (typeof token.entropy === "number" ? levelAbove(token.entropy, [0.5, 1.5, 3, 4.5]) : -1),
    labels: ["< 0.5", "\u2265 0.5", "\u2265 1.5", "\u2265 3", "\u2265 4.5"],
  },
  rank: {
    title: "Rank",
    level: (token) => (rankOf(token) === null ? -1 : levelAbove(rankOf(token), [2, 4, 8, 16])),
    labels: ["1", "2, 3", "4 to 7", "8 to 15", "\u2265 16"],
  },
  choices: {
    title: "Choices that the chain left",
    level: (token) => (token.trace ? levelAbove(token.trace.stages.at(-1).kept, [2, 5, 20, 100]) : -1),
    labels: ["1", "2 to 4", "5 to 19", "20 to 99", "\u2265 100"],
  },
  author: {
    title: "Whose words",
    level: (token) => (token.event === "token" ? 1 : 0),
    labels: ["yours", "the model's"],
  },
  off: { title: "Off", level: () => -1, labels: [] },
};

function isWritten(token) {
  return typeof token.logprob === "number";
}

function levelAbove(value, bounds) {
  return bounds.filter((bound) => value >= bound).length;
}

/** Return the candidate that was chosen; undefined without a trace. */
function chosenOf(token) {
  return token.trace?.candidates.find((candidate) => candidate.id === token.id);
}

/** Return the place of a token among the model's most likely tokens, from 1; null without a trace. */
export function rankOf(token) {
  const chosen = chosenOf(token);
  if (!chosen) return null;
  return 1 + token.trace.candidates.filter((candidate) => candidate.probs[0] > chosen.probs[0]).length;
}

/** Return whether a step dropped the most likely token. */
export function dropsTop(token) {
  const candidates = token.trace?.candidates ?? [];
  if (!candidates.length) return false;
  const top = candidates.reduce((best, candidate) => (candidate.probs[0] > best.probs[0] ? candidate : best));
  return top.dropped_by !== null;
}

/** Return the classes of a token's element. */
export function classOf(token, measure) {
  const isMarked = token.event === "token" && measure !== "off";
  const names = [`t h${MEASURES[measure].level(token)}`];
  if (token.event !== "token") names.push("prompt");
  if (isReasoning(token)) names.push("reasoning");
  if (isMarked && dropsTop(token)) names.push("marked", "top-dropped");
  if (isMarked && token.returns) names.push("marked", "returned");
  return names.join(" ");
}

/** Return the list of a measure's levels. */
export function legend(name) {
  const { labels } = MEASURES[name];
  return element("ul", { class: "legend", "aria-label": "Marks" },
    labels.map((label, level) => element("li", {}, element("span", { class: `t h${level}` }, label))),
    name === "off" ? [] : [
      element("li", { title: "a step dropped the most likely token" }, element("b", { class: "dropped-mark", "aria-hidden": "true" }, "\u25be"), " top dropped"),
      element("li", { title: "the text has returned to this token" }, element("b", { class: "dropped-mark", "aria-hidden": "true" }, "\u21a9"), " went back"),
    ]);
}
