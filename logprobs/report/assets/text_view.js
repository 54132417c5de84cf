// The text of a run, with a tinted element for each token.

import { element } from "./web/elements.js";
import { heatLevel, visible } from "./web/format.js";

const MIN_CHUNK_TOKENS = 48;

/** A view of the tokens of a run from index `first` to `end` (exclusive), as options of a listbox. */
export class TextView {
  constructor(container, run, first, end, idPrefix) {
    this.container = container;
    this.run = run;
    this.first = first;
    this.spans = [];
    this.idPrefix = idPrefix;
    container.replaceChildren(...this.chunks(first, end));
    container.setAttribute("aria-label", `Text of ${visible(run.name)}`);
    container.hidden = first === end;
  }

  /** Return the text in chunks that end with a newline, so that a browser lays out only the visible chunks. */
  chunks(first, end) {
    const chunks = [];
    let chunk = element("div", { class: "chunk", dir: "auto", role: "presentation" });
    if (first === 0 && this.run.promptText) chunk.append(this.promptSpan());
    for (let index = first; index < end; index += 1) {
      chunk.append(this.tokenSpan(index));
      const isFull = chunk.childNodes.length >= MIN_CHUNK_TOKENS && this.run.texts[index].endsWith("\n");
      if (isFull || index === end - 1) {
        chunks.push(chunk);
        chunk = element("div", { class: "chunk", dir: "auto", role: "presentation" });
      }
    }
    return chunks;
  }

  /** Return an element with the prompt, for a run without the tokens of its prompt. */
  promptSpan() {
    const { promptText, texts } = this.run;
    const touchesText = !/\s$/.test(promptText) && !/^\s/.test(texts[0] ?? "");
    return element("span", { class: touchesText ? "prompt apart" : "prompt", role: "presentation" }, visible(promptText));
  }

  tokenSpan(index) {
    const run = this.run;
    const names = ["t", `h${heatLevel(run.logprobs[index])}`];
    if (index < run.promptTokens) names.push("prompt");
    if (run.droppedTop[index]) names.push("marked", "top-dropped");
    if (run.returns[index]) names.push("marked", "returned");
    const span = document.createElement("span");
    const [text, kind] = shownText(run, index);
    if (kind) names.push(kind);
    if (text.endsWith("\n")) names.push("ends-line");
    span.className = names.join(" ");
    span.id = `${this.idPrefix}-${index}`;
    span.setAttribute("role", "option");
    span.textContent = text;
    span.tokenIndex = index;
    this.spans.push(span);
    return span;
  }

  has(index) {
    return index >= this.first && index < this.first + this.spans.length;
  }

  span(index) {
    return this.spans[index - this.first] ?? null;
  }
}

/** Return the text that is shown for a token, and a CSS class if the text is not the token's text. */
function shownText(run, index) {
  const text = visible(run.texts[index]);
  if (text !== "") {
    const withNewlineMarks = text.replace(/\n/g, "\u21b5\n");
    return [withNewlineMarks, text.trim() === "" && text.includes("\n") ? "line-end" : ""];
  }
  const content = run.contentAt(index);
  return typeof content === "string" && content !== "" ? [visible(content), "hidden-token"] : ["\u25ab", "hidden-token"];
}

/**
 * Return the position of the token below a token (`step` 1) or above it (-1), at about the same place of the line.
 * If there is no such line, return `position`.
 */
export function tokenOnNextLine(spans, position, step) {
  const start = spans[position].getClientRects()[0];
  if (!start) return position;
  const middle = start.left + start.width / 2;
  let best = position;
  let bestDistance = Infinity;
  let line = null;
  for (let index = position + step; index >= 0 && index < spans.length; index += step) {
    const box = spans[index].getClientRects()[0];
    if (!box || Math.abs(box.top - start.top) < start.height / 2) continue;
    line ??= box.top;
    if (Math.abs(box.top - line) > box.height / 2) break;
    const distance = Math.abs(box.left + box.width / 2 - middle);
    if (distance < bestDistance) [best, bestDistance] = [index, distance];
  }
  return best;
}
