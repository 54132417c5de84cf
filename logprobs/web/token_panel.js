// The panel with the details of the selected token.

import { drawBar, entropyCurve } from "./charts.js";
import { element, tokenName } from "./elements.js";
import { bytesOf, countText, hexadecimal, numberText, probabilityText, quoted, stepLabel, visible } from "./format.js";

/**
 * The panel of the selected token. A click on a neighbor calls `select` with its index. If there is `rowAction`, it is
 * called with each candidate that was not chosen, and returns an element for its row.
 */
export class TokenPanel {
  constructor(container, select, rowAction = null) {
    this.container = container;
    this.select = select;
    this.rowAction = rowAction;
    this.showsLogits = false;
    this.shown = null;
  }

  /** Show the token. */
  async show(run, index) {
    this.shown = { run, index };
    const details = await run.details(index);
    if (this.shown.run !== run || this.shown.index !== index) return; // another token was selected in the meantime
    const { trace, alternatives, returns } = details;
    this.container.replaceChildren(
      ...[
        this.heading(run, index),
        verdict(run, index, trace),
        returns && section("Dropped here", returnList(returns)),
        trace?.draw && drawSection(trace, run, this.container.clientWidth),
        trace && section("Candidates at each stage", this.unitButtons(), this.candidateTable(run, trace)),
        trace && section("Stages", element("p", { class: "note" }, "Entropy in nats after each stage"), entropyCurve(trace.stages), stageTable(trace)),
        alternatives && section(trace ? "Other likely tokens" : "Alternatives", alternativeTable(alternatives)),
        run.hasTrace ? null : withoutTrace(),
      ].filter(Boolean),
    );
  }

  toggleUnit() {
    this.showsLogits = !this.showsLogits;
    if (this.shown) this.show(this.shown.run, this.shown.index);
  }

  heading(run, index) {
    const content = run.contentAt(index);
    const isPrompt = index < run.promptTokens;
    const count = isPrompt ? run.promptTokens : run.length - run.promptTokens;
    const position = `${run.positionText(index)} of 0 \u2026 ${countText(count - 1)}`;
    const id = run.ids[index] === null ? "" : ` · id ${run.ids[index]}`;
    const logprob = run.logprobs[index];
    return element("header", { class: "token-heading" },
      element("button", { type: "button", class: "step", "aria-label": "Previous token", onclick: () => this.select(index - 1), disabled: index === 0 }, "‹"),
      element("div", {},
        element("h2", { id: "token-name" }, tokenName(content)),
        element("p", { class: "note" }, `${position}${id} · bytes ${hexadecimal(bytesOf(content))}`),
        element("p", { class: "numbers" }, logprob === null ? "no logprob is recorded"
          : [element("b", { id: "probability" }, probabilityText(Math.exp(logprob))), ` probability · surprise ${numberText(-logprob)} nats`,
            run.entropies[index] === null ? null : ` · entropy ${numberText(run.entropies[index])} nats`])),
      element("button", { type: "button", class: "step", "aria-label": "Next token", onclick: () => this.select(index + 1), disabled: index === run.length - 1 }, "›"));
  }

  unitButtons() {
    const button = (text, isOn) => element("button", { type: "button", "aria-pressed": String(isOn), onclick: () => isOn || this.toggleUnit() }, text);
    return element("div", { class: "buttons unit", role: "group", "aria-label": "Numbers of the table" },
      button("Probability", !this.showsLogits), button("Logit", this.showsLogits));
  }

  candidateTable(run, trace) {
    const stageHeader = (stage) => element("th", { scope: "col" }, element("span", { class: "number" }, stepLabel(stage)), breakable(stage.name));
    const foot = (title, values) => element("tr", {}, element("th", { scope: "row" }, title), values.map((value) => element("td", {}, value)), this.rowAction ? element("td", {}) : null);
    const table = element("table", { class: "candidates" },
      element("caption", { class: "hidden" }, `${this.showsLogits ? "Logit" : "Probability"} of each candidate after each stage`),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "token"), trace.stages.map(stageHeader), this.rowAction ? element("td", {}) : null)),
      element("tbody", {}, trace.candidates.map((candidate) => this.candidateRow(run, trace, candidate))),
      element("tfoot", {},
        foot("kept", trace.stages.map((stage) => countText(stage.kept))),
        foot("entropy", trace.stages.map((stage) => numberText(stage.entropy)))));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates at each stage" }, table);
  }

  candidateRow(run, trace, candidate) {
    const cells = trace.stages.map((stage, number) => {
      if (candidate.probs[number] === null) {
        const isDropStage = number === candidate.droppedBy;
        return element("td", { class: isDropStage ? "gone dropped-here" : "gone", title: isDropStage ? `dropped by ${visible(stage.name)}` : null }, isDropStage ? "\u00d7" : "\u00b7");
      }
      const cell = element("td", {}, this.showsLogits ? numberText(candidate.logits[number]) : probabilityText(candidate.probs[number]));
      cell.style.setProperty("--share", candidate.probs[number].toFixed(4));
      return cell;
    });
    return element("tr", { class: candidate.isChosen ? "chosen" : null, "data-id": candidate.id },
      element("th", { scope: "row" }, candidate.isChosen ? element("span", { class: "hidden" }, "chosen: ") : null, tokenName(run.contentOf(candidate.id))), cells,
      this.rowAction ? element("td", { class: "action" }, candidate.isChosen ? null : this.rowAction(candidate)) : null);
  }
}

export function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), children);
}

function drawSection(trace, run, width) {
  const intervals = trace.intervals();
  const isAlone = intervals.length === 1 && trace.stages.at(-1).kept > 1;
  const note = isAlone ? "Only the interval of the drawn token is known, because the run does not record the order of the candidates." : null;
  return section("Draw", drawBar(trace, run, intervals, width), note && element("p", { class: "note" }, note));
}

/** Return a name that may be wrapped after its underscores. */
function breakable(name) {
  return visible(name).split(/(?<=_)/).flatMap((part) => [part, element("wbr")]);
}

/** Return sentences on why the token was chosen; null without a trace. */
function verdict(run, index, trace) {
  if (trace === null) return null;
  const sentences = [element("p", { class: "decision" }, decision(run, index, trace))];
  const { topCandidate, chosen } = trace;
  if (topCandidate && topCandidate === chosen) {
    sentences.push(element("p", {}, "It is the model’s most likely token."));
  } else if (topCandidate) {
    const isDropped = topCandidate.droppedBy >= 0;
    const outcome = isDropped ? [" was dropped by ", element("b", {}, visible(trace.stages[topCandidate.droppedBy].name)), "."]
      : [" was still a candidate for the draw."];
    sentences.push(element("p", { class: isDropped ? "was-dropped" : null },
      "The model’s most likely token ", tokenName(run.contentOf(topCandidate.id)), ` (${probabilityText(topCandidate.probs[0])})`, outcome));
  }
  return element("div", { class: "verdict" }, sentences);
}

function decision(run, index, trace) {
  const last = trace.stages[trace.stages.length - 1];
  if (trace.reason !== null) return trace.reason;
  if (trace.isForced) return "Forced: the grammar allowed only one text, which continues with this token.";
  if (trace.draw === null) return `No random number: ${visible(last.name)} selected this token.`;
  const { u, low, high } = trace.draw;
  return [`u = ${u.toFixed(4)} lies in ${low.toFixed(4)} … ${high.toFixed(4)}: `, tokenName(run.contentAt(index))];
}

/** Return the list of the texts that were dropped when the run returned to a token, each with what it matched. */
function returnList(returns) {
  return element("ol", { class: "returns" }, returns.map(([ban, text]) => element("li", {},
    element("bdi", {}, quoted(text)), ban === null ? " repeated itself" : [" matched the ban ", element("bdi", {}, quoted(ban))])));
}

function stageTable(trace) {
  const rows = trace.stages.map((stage, number) => element("tr", {},
    element("td", { class: "number" }, stepLabel(stage)),
    element("th", { scope: "row" }, breakable(stage.name)),
    element("td", {}, countText(stage.kept)),
    element("td", {}, numberText(stage.entropy)),
    element("td", { class: "what" }, stage.note ? visible(stage.note) : defaultNote(trace, number))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stages" }, element("table", { class: "stages" },
    element("thead", {}, element("tr", {}, element("td", {}), ["stage", "kept", "entropy", "effect"].map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, rows)));
}

/** Return a note for a stage that has none. */
function defaultNote(trace, number) {
  if (number === 0) return "computed by the model";
  const droppedCount = trace.stages[number - 1].kept - trace.stages[number].kept;
  return droppedCount > 0 ? `dropped ${countText(droppedCount)}` : "";
}

function alternativeTable(alternatives) {
  const rows = alternatives.map(([content, logprob]) => element("tr", {},
    element("th", { scope: "row" }, tokenName(content)),
    shareCell(logprob),
    element("td", {}, numberText(logprob))));
  return element("table", { class: "alternatives" },
    element("thead", {}, element("tr", {}, ["token", "probability", "logprob"].map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, rows));
}

function shareCell(logprob) {
  const p = logprob === null ? null : Math.exp(logprob);
  const cell = element("td", {}, probabilityText(p));
  cell.style.setProperty("--share", (p ?? 0).toFixed(4));
  return cell;
}

export function withoutTrace() {
  return element("p", { class: "hint" },
    "This run was written without a trace. ", element("code", {}, "--format jsonl --trace"),
    " adds, for every token, what each step of the chain did: the candidates that it kept and dropped, their probabilities and the draw.");
}
