// The details of tokens: why one was chosen, which one can be next, tints, and the command that repeats the text.

import { byId, element } from "./web/elements.js";
import { countText, quoted, visible } from "./web/format.js";
import { NextToken } from "./next_token.js";
import { afterPause, LatestOnly } from "./server.js";
import { contentText } from "./texts.js";
import { legend, MEASURES } from "./tints.js";
import { WhyPanel } from "./why.js";

const TOP_TOKENS = 12;
const NO_TEXT = "Write a text first.";
const SAY_MILLISECONDS = 300; // after which the panel says that the model reads

/** The details of the text that is shown. `page` is the page. */
export class Details {
  constructor(page) {
    this.page = page;
    this.asking = null; // ends the request for the next token that runs
    this.nextToken = new NextToken(byId("next"), byId("stages"), byId("next-note"), (candidate) => page.writing.insert(candidate));
    this.why = new WhyPanel(byId("why"), byId("why-panel"), (index) => this.openWhy(index), (index, id) => page.attempt(() => page.writing.takeCandidate(index, id)));
    this.updateNext = new LatestOnly(() => this.requestNext());
    this.nextAfterMove = afterPause(120, () => this.updateNext.call());
    page.click("close-why", () => this.closeWhy());
    page.click("copy", () => this.copyCommand());
    byId("measure").append(...Object.entries(MEASURES).map(([name, { title }]) => element("option", { value: name }, title)));
    byId("measure").addEventListener("change", () => {
      this.tint(byId("measure").value);
      page.stories.saveSoon();
    });
    this.tint("probability");
  }

  cursorMoved() {
    if (this.nextKey !== this.keyOfNext()) this.nextToken.markStale();
    if (!this.page.writer.isWriting) this.nextAfterMove();
  }

  /** Return what the next token depends on besides the settings: the tokens before the cursor. */
  keyOfNext() {
    const tokens = this.page.writing.tokensBeforeCursor;
    return `${tokens.length} ${tokens.at(-1)?.uid ?? ""}`;
  }

  async openWhy(index) {
    if (!this.page.writer.tokens[index]) return this.closeWhy();
    if (this.page.view.isCalm) this.page.view.toggleCalm();
    this.page.editor.select(index);
    await this.why.show(this.page.writer.tokens, index);
    if (matchMedia("(max-width: 1100px)").matches) byId("why").scrollIntoView({ block: "nearest" });
    return undefined;
  }

  closeWhy() {
    this.why.close();
    this.page.editor.select(-1);
  }

  /** Ask for the distribution of the next token at the cursor. */
  async requestNext() {
    const { page } = this;
    const canAsk = page.isLoaded && !page.writer.isWriting && ["ready", "connecting"].includes(page.server.state);
    if (page.editor.cursor > 0 && this.nextToken.note.textContent === NO_TEXT) this.nextToken.markStale("");
    if (!canAsk || page.view.isCalm) return;
    const tokens = this.page.writing.tokensBeforeCursor;
    const isTokenized = tokens.every((token) => token.id !== null);
    if (!isTokenized) return this.nextToken.markStale();
    if (!tokens.length) {
      this.clearNext();
      return this.nextToken.markStale(NO_TEXT);
    }
    const key = this.keyOfNext();
    this.asking = new AbortController();
    const saying = setTimeout(() => this.nextToken.markStale(`The model reads ${countText(tokens.length)} tokens\u2026`), SAY_MILLISECONDS);
    try {
      const { stop: _, max_tokens: __, ...fields } = this.page.writer.fields(tokens);
      const answer = await this.page.server.json("/gen/next", { ...fields, top: TOP_TOKENS }, this.asking.signal);
      this.nextAnswer = answer;
      this.nextKey = key;
      byId("next-place").replaceChildren("after ", element("bdi", {}, quoted(contentText(tokens.at(-1)))));
      this.nextToken.show(answer);
      if (key !== this.keyOfNext()) this.nextToken.markStale();
      this.page.settings.chain.showEffects(answer.stages);
      this.page.settings.chain.problem.textContent = "";
    } catch (error) {
      this.nextToken.markStale(error.name === "AbortError" ? "" : error.message);
      if (error.body?.error?.message?.startsWith("chain")) this.page.settings.chain.reject(error.message);
    } finally {
      clearTimeout(saying);
      this.asking = null;
    }
    return undefined;
  }

  /** Show no next token: the text is another one, or empty. */
  clearNext() {
    this.stopAsking();
    this.nextAnswer = null;
    byId("next-place").textContent = "";
    this.nextToken.clear();
  }

  /** Ask no longer for the next token: the model is to write. */
  stopAsking() {
    this.asking?.abort();
  }

  tint(measure) {
    byId("measure").value = measure;
    this.page.editor.tint(measure);
    byId("legend").replaceChildren(legend(measure));
  }

  showCommand() {
    const { lastRun: run } = this.page.writer.tree;
    const command = run?.start?.command ?? null;
    if (run === this.commandRun && run?.start) return; // it may be as long as the text
    this.commandRun = run;
    byId("command").textContent = command === null ? (run?.start ? "No command repeats this text, because it continues tokens that no prompt has." : "Generate first: then the command that does the same is here.") : visible(command);
    byId("copy").disabled = command === null;
    this.command = command;
  }

  async copyCommand() {
    getSelection().selectAllChildren(byId("command"));
    try {
      await navigator.clipboard.writeText(this.command);
      this.page.announce("Copied");
      byId("copy").textContent = "Copied";
    } catch {
      byId("copy").textContent = "Selected";
    }
    setTimeout(() => { byId("copy").textContent = "Copy"; }, 1500);
  }
}
