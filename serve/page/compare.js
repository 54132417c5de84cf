// Two chains on the same prompt and the same seed, side by side.

import { byId, element } from "./web/elements.js";
import { countText, visible } from "./web/format.js";
import { makeToken } from "./texts.js";
import { MEASURES } from "./tints.js";
import { WhyPanel } from "./why.js";

/** The two columns. `page` is the page. */
export class Comparison {
  constructor(page) {
    this.page = page;
    this.comparing = null; // ends the two runs
    const section = byId("comparison");
    this.note = section.querySelector(".difference");
    this.columns = Array.from(section.querySelectorAll(".compared"), (box, number) => this.column(box, number));
    page.click("compare", () => this.toggle());
    page.click("run-both", () => this.runBoth());
  }

  column(box, number) {
    const text = box.querySelector(".compared-tokens");
    const details = box.querySelector(".compared-why");
    const column = { box, text, tokens: [], title: box.querySelector("h3"), notation: box.querySelector("code") };
    column.why = new WhyPanel(details, details.querySelector(".compared-panel"), (index) => this.select(number, index), null);
    text.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.select(number, Array.prototype.indexOf.call(text.children, button));
    });
    return column;
  }

  toggle() {
    const section = byId("comparison");
    section.hidden = !section.hidden;
    byId("compare").setAttribute("aria-expanded", String(!section.hidden));
    section.parentElement.classList.toggle("compares", !section.hidden);
    if (!section.hidden) section.scrollIntoView({ block: "start" });
  }

  async runBoth() {
    if (this.comparing || !this.page.isLoaded) return;
    this.comparing = new AbortController();
    this.page.writing.showControls();
    try {
      await Promise.all([this.page.settings.settle(), this.page.settings.otherChain.settle()]);
      this.comparedTokens = await this.page.writing.readBeforeCursor();
      [this.seed] = this.page.settings.seeds(1);
      await this.run([this.page.settings.chain.notation || "dist", this.page.settings.otherChain.notation || "dist"], this.comparing.signal);
    } catch (error) {
      if (!this.comparing.signal.aborted) throw error;
      this.showDifference();
    } finally {
      this.comparing = null;
      this.page.writing.showControls();
    }
  }

  generateWith(notation, signal) {
    return this.page.server.lines("/gen/generate", { ...this.page.writer.fields(this.comparedTokens), chain: notation, seed: this.seed, trace: 20, logprobs: true }, signal);
  }

  /** Run both chains, and show where their texts part. */
  async run(notations, signal) {
    this.columns.forEach((column, number) => {
      column.tokens = [];
      column.text.replaceChildren();
      column.why.close();
      column.notation.textContent = notations[number];
    });
    this.note.textContent = "Running\u2026";
    await Promise.all(this.columns.map(async (column, number) => {
      for await (const line of this.generateWith(notations[number], signal)) {
        if (line.event !== "token") continue;
        const token = makeToken(line);
        column.tokens.push(token);
        column.text.append(this.button(token));
      }
    }));
    this.showDifference();
  }

  button(token) {
    const level = MEASURES.probability.level(token);
    return element("button", { type: "button", class: `t h${level}` }, visible(token.text).replace(/\n/g, "\u21b5\n"));
  }

  showDifference() {
    const [first, second] = this.columns.map((column) => column.tokens);
    const shortest = Math.min(first.length, second.length);
    let index = 0;
    while (index < shortest && first[index].id === second[index].id) index += 1;
    if (index === first.length && index === second.length) {
      this.note.textContent = `Both chains write the same ${countText(index)} tokens.`;
      return;
    }
    this.note.textContent = index === 0 ? "The texts differ from their first token." : `The first ${countText(index)} tokens are the same; then the texts part.`;
    for (const column of this.columns) {
      for (const button of column.text.children) button.classList.remove("parts");
      column.text.children[index]?.classList.add("parts");
    }
    this.columns.forEach((_, number) => this.select(number, index));
  }

  /** Show a token of a column, and the token at the same place of the other column. */
  select(_number, index) {
    for (const column of this.columns) {
      for (const button of column.text.querySelectorAll(".selected")) button.classList.remove("selected");
      if (index < 0 || index >= column.tokens.length) {
        column.why.close();
        continue;
      }
      column.text.children[index].classList.add("selected");
      column.why.show(column.tokens, index);
    }
  }
}
