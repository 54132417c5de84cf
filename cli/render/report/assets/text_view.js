// The text of a run: an element per token, tinted and marked.

const LEAST_CHUNK_TOKENS = 48;

/** The tokens of a run from `first` to before `end`, in an element with the role of a list of options. */
class TextView {
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

  /** Parts that end at line ends, so that a browser lays out only those that are seen. */
  chunks(first, end) {
    const chunks = [];
    let chunk = element("div", { class: "chunk", dir: "auto", role: "presentation" });
    if (first === 0 && this.run.promptText) chunk.append(this.promptSpan());
    for (let index = first; index < end; index += 1) {
      chunk.append(this.tokenSpan(index));
      const isFull = chunk.childNodes.length >= LEAST_CHUNK_TOKENS && this.run.texts[index].endsWith("\n");
      if (isFull || index === end - 1) {
        chunks.push(chunk);
        chunk = element("div", { class: "chunk", dir: "auto", role: "presentation" });
      }
    }
    return chunks;
  }

  /** The prompt of a run that was recorded without the tokens of its prompt. */
  promptSpan() {
    const { promptText, texts } = this.run;
    const touchesText = !/\s$/.test(promptText) && !/^\s/.test(texts[0] ?? "");
    return element("span", { class: touchesText ? "prompt apart" : "prompt", role: "presentation" }, visible(promptText));
  }

  tokenSpan(index) {
    const run = this.run;
    const names = ["t", `h${heat(run.logprobs[index])}`];
    if (index < run.promptTokens) names.push("prompt");
    if (run.fallen[index]) names.push("fallen");
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

/** The text of a token's element, and the kind of element if the text is not the model's own. */
function shownText(run, index) {
  const text = visible(run.texts[index]);
  if (text !== "") {
    const withEnds = text.replace(/\n/g, "\u21b5\n");
    return [withEnds, text.trim() === "" && text.includes("\n") ? "line-end" : ""];
  }
  const piece = run.pieceAt(index);
  return typeof piece === "string" && piece !== "" ? [visible(piece), "hidden-token"] : ["\u25ab", "hidden-token"];
}

/** The token above or below another one, at the same place of the line; itself if there is no such line. */
function tokenOnNextLine(spans, position, step) {
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
