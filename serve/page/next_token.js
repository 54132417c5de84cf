// The distribution of the next token at the cursor, after each step of the chain.

import { element, tokenName } from "./web/elements.js";
import { countText, numberText, visible } from "./web/format.js";
import { contentOf, contentText } from "./texts.js";

/** The table of the next token. A press on a token calls `insert` with its candidate. */
export class NextToken {
  constructor(table, stages, note, insert) {
    this.table = table;
    this.stages = stages;
    this.note = note;
    this.insert = insert;
  }

  /** Show an answer of `/gen/next`. */
  show(answer) {
    const last = answer.stages.length - 1;
    const rows = answer.candidates.toSorted((first, second) => (second.probs[last] ?? -1) - (first.probs[last] ?? -1) || second.probs[0] - first.probs[0]);
    this.table.tBodies[0].replaceChildren(...rows.map((candidate) => this.row(candidate, answer.stages)));
    this.table.classList.remove("is-stale");
    this.stages.replaceChildren(...answer.stages.map((stage) => element("li", { title: stage.note ? visible(stage.note) : null },
      element("span", { class: "stage-name" }, visible(stage.name)), element("b", {}, countText(stage.kept)), element("span", { class: "nats" }, numberText(stage.entropy, 2)))));
    const end = answer.stages[last];
    this.note.textContent = answer.forced ? "The grammar allows only one token here." : `${countText(end.kept)} of ${countText(answer.stages[0].kept)} tokens can be drawn; entropy ${numberText(end.entropy)} nats.`;
  }

  row(candidate, stages) {
    const last = candidate.probs.at(-1);
    const content = contentOf(candidate);
    const cell = element("td", {}, last === null ? "0" : shareText(last));
    cell.style.setProperty("--share", (last ?? 0).toFixed(4));
    return element("tr", { class: last === null ? "is-dropped" : null, "data-id": candidate.id },
      element("th", { scope: "row" }, element("button", { type: "button", class: "word", "aria-label": `Insert ${visible(contentText(candidate))}`, onclick: () => this.insert(candidate) }, tokenName(content))),
      cell,
      element("td", {}, shareText(candidate.probs[0])),
      element("td", { class: "what" }, last === null ? visible(stages[candidate.dropped_by].name) : ""));
  }

  /** Show no distribution. */
  clear() {
    this.table.tBodies[0].replaceChildren();
    this.stages.replaceChildren();
    this.markStale("");
  }

  /** Show that the table is not that of the text: while the server computes, or why it cannot. */
  markStale(message = null) {
    this.table.classList.add("is-stale");
    if (message !== null) this.note.textContent = visible(message);
  }
}

/** Return a probability with at least two significant digits. */
export function shareText(p) {
  if (p === 0) return "0";
  return p >= 0.001 ? p.toFixed(4) : p.toExponential(1);
}
