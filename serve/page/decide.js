// A question about the text, and the model's probabilities of its answers.

import { byId, element } from "./web/elements.js";
import { numberText, visible } from "./web/format.js";
import { shareText } from "./next_token.js";

// The fields of a question with the options, by its type; a predicate has none.
const OPTION_FIELDS = { choice: "choices", score: "levels" };
const FIELDS = { question: "question", type: "question-type", options: "question-options" };

/** The panel "Decide". `changed` is called when a person changes the question. */
export class DecidePanel {
  constructor(server, changed) {
    this.server = server;
    this.table = byId("answer");
    this.note = byId("answer-note");
    this.decidedText = null;
    for (const id of Object.values(FIELDS)) {
      byId(id).addEventListener("input", () => {
        this.showOptions();
        this.markStale();
        changed();
      });
    }
    this.showOptions();
  }

  /** What a person has asked. */
  get state() {
    return Object.fromEntries(Object.entries(FIELDS).map(([name, id]) => [name, byId(id).value]));
  }

  set state(state) {
    for (const [name, id] of Object.entries(FIELDS)) if (typeof state[name] === "string") byId(id).value = state[name];
    byId("decision-fold").open = byId("question").value !== "";
    this.showOptions();
  }

  showOptions() {
    byId("question-options").parentElement.hidden = !(byId("question-type").value in OPTION_FIELDS);
  }

  /** Ask the question about a text, and show the answer. */
  async decide(text) {
    const { question: instructions, type, options } = this.state;
    const question = { type, instructions };
    const values = options.split("\n").map((line) => line.trim()).filter((line) => line);
    if (type in OPTION_FIELDS) question[OPTION_FIELDS[type]] = type === "score" ? values.map((label) => ({ label })) : values;
    byId("decide").disabled = true;
    this.note.textContent = "Deciding\u2026";
    try {
      const { answers: [answer] } = await this.server.json("/v1/decisions", { input: text, questions: [question] });
      this.decidedText = text;
      this.show(answer);
    } catch (error) {
      this.note.textContent = "";
      throw error;
    } finally {
      byId("decide").disabled = false;
    }
  }

  show(answer) {
    const { probability, probabilities } = answer;
    const options = probabilities?.map(({ label, value, probability: p }) => [label ?? value, p]) ?? [["Yes", probability], ["No", 1 - probability]];
    this.table.tBodies[0].replaceChildren(...options.map(([name, p]) => {
      const cell = element("td", {}, shareText(p));
      cell.style.setProperty("--share", p.toFixed(4));
      return element("tr", {}, element("th", { scope: "row", dir: "auto" }, visible(String(name))), cell);
    }));
    this.table.hidden = false;
    this.table.classList.remove("is-stale");
    const score = answer.type === "score" ? `The score is ${numberText(answer.score, 2)}; the first level counts 0. ` : "";
    this.note.textContent = `${score}Together, the answers have ${shareText(answer.mass)} of the model's probability.`;
  }

  /** Show that the answer is not that of the text or of the question. */
  markStale(text = null) {
    if (text !== this.decidedText) this.table.classList.add("is-stale");
  }
}
