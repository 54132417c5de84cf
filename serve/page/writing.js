// Writing: what a person does with the text, and what the page shows of it.

import { byId } from "./web/elements.js";
import { countText, quoted } from "./web/format.js";
import { BranchTree } from "./branches.js";
import { afterPause } from "./server.js";
import { appended, editTokens, textOf } from "./texts.js";
import { takenToken } from "./writer.js";

const TOKENIZE_MILLISECONDS = 150;
const SAVE_WHILE_WRITING_MILLISECONDS = 1500;
const ENDS = {
  banned: "The text ended, because a ban matched whatever was drawn.",
  loop: "The text ended, because it repeated itself.",
};

export function isEndOfModel({ finish_reason: reason, stop }) {
  return reason === "stop" && typeof stop !== "string";
}

/** Return a sentence on the end of a run; undefined if it needs none. */
function endOf(done) {
  if (isEndOfModel(done)) return "The model ended the text here.";
  return done.finish_reason === "stop" ? `A stop string, ${quoted(done.stop)}, ended the text here.` : ENDS[done.finish_reason];
}

/** The actions on the text. `page` is the page. */
export class Writing {
  constructor(page) {
    this.page = page;
    this.endedTokens = null; // the tokens after which the model has ended the text without another one
    this.isStarting = false; // true from the press of Generate to the end of the text
    this.branches = new BranchTree(byId("branches"), (node) => this.goTo(node));
    this.tokenizeSoon = afterPause(TOKENIZE_MILLISECONDS, () => page.inBackground(() => page.writer.tokenize()));
    page.click("generate", () => this.generate());
    page.click("undo", () => this.undo());
    page.click("redo", () => this.redo());
    page.editor.area.addEventListener("beforeinput", (event) => {
      if (!["historyUndo", "historyRedo"].includes(event.inputType)) return;
      event.preventDefault();
      if (event.inputType === "historyUndo") this.undo();
      else this.redo();
    });
  }

  edited(start, end, text) {
    this.page.details.closeWhy();
    this.page.writer.replace(start, end, text);
    this.showText();
    this.tokenizeSoon();
  }

  /** Show the current text, and what depends on it. */
  showText() {
    const { tree } = this.page.writer;
    this.page.editor.show(tree.current.tokens);
    this.page.decisions.markStale(this.page.editor.area.value);
    this.showControls();
    this.branches.show(tree);
    this.page.details.showCommand();
    this.page.details.cursorMoved();
    if (this.page.isLoaded) this.page.stories.saveSoon();
  }

  /** Show which buttons have an effect. */
  showControls() {
    const { tree, isWriting } = this.page.writer;
    const isBusy = isWriting || this.isStarting;
    byId("undo").disabled = !tree.canUndo || isBusy;
    byId("redo").disabled = !tree.canRedo || isBusy;
    byId("stop").disabled = !isBusy && !this.page.comparison.comparing;
    byId("generate").disabled = isBusy;
    byId("run-both").disabled = Boolean(this.page.comparison.comparing);
    this.page.editor.area.readOnly = isBusy;
    byId("paper").classList.toggle("is-writing", isWriting);
    this.page.connection.showState();
  }

  /** Show new tokens with the next frame. */
  growSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.grow();
    });
  }

  grow() {
    const { area } = this.page.editor;
    const follows = area.selectionStart === area.selectionEnd && area.selectionEnd === area.value.length;
    const paper = byId("paper");
    const isAtEnd = paper.scrollTop + paper.clientHeight > paper.scrollHeight - 60;
    this.page.editor.show(this.page.writer.tokens);
    if (follows) area.setSelectionRange(area.value.length, area.value.length);
    if (isAtEnd) paper.scrollTop = paper.scrollHeight;
    this.showCounts();
    if (performance.now() - this.page.stories.lastSaved > SAVE_WHILE_WRITING_MILLISECONDS) this.page.stories.save();
  }

  /** The whole tokens before the cursor. */
  get tokensBeforeCursor() {
    const { tokens } = this.page.writer;
    const count = this.page.editor.countBefore(this.page.editor.cursor);
    return count === tokens.length ? tokens : tokens.slice(0, count);
  }

  showCounts() {
    const total = this.page.writer.tokens.length;
    const count = this.page.editor.countBefore(this.page.editor.cursor);
    byId("counts").textContent = count < total ? `${countText(total)} tokens; continues after token ${countText(count)}` : `${countText(total)} tokens`;
  }

  /** Run an action that lets the model write, unless it writes. Stop ends it at the next place where it asks `goesOn`. */
  async startWriting(action) {
    if (this.page.writer.isWriting || this.isStarting || !this.page.isLoaded) return;
    this.isStarting = true;
    let isStopped = false;
    this.stopStarting = () => { isStopped = true; };
    this.showControls();
    try {
      await this.page.settings.settle();
      await action(() => !isStopped);
    } finally {
      this.isStarting = false;
      this.showControls();
    }
  }

  async generate() {
    await this.startWriting(async (goesOn) => {
      const tokens = await this.readBeforeCursor();
      const { samples } = this.page.settings.numbers();
      if (!goesOn()) return;
      this.page.details.closeWhy();
      await this.write(tokens, { count: samples });
      if (samples > 1) this.page.announce(`${countText(samples)} texts; the others are in Branches`);
    });
  }

  /** Return the tokens of the text before the cursor, which are not empty. A part of a token becomes tokens of its own. */
  async readBeforeCursor() {
    await this.page.writer.tokenize();
    const { tokens } = this.page.writer;
    const read = await this.page.writer.tokenized(editTokens(tokens, this.page.editor.cursor, textOf(tokens).length, ""));
    if (!read.length) throw new Error("There is no text before the cursor, and the model has no token that begins a text. Write a text first.");
    return read;
  }

  /** Let the model continue tokens; say how it ended. */
  async write(tokens, options) {
    this.page.showProblem("");
    try {
      const promise = this.page.writer.generate(tokens, options);
      this.page.editor.moveCursor();
      const { done } = await promise;
      const written = this.page.writer.tokens.length - tokens.length;
      if (done.finish_reason !== "stop" || written <= 0) this.page.showProblem(endOf(done) ?? "");
      if (written <= 0 && isEndOfModel(done)) this.endedTokens = tokens; // there is no text of this run
      this.page.announce(`${countText(Math.max(written, 0))} tokens, ${done.finish_reason}`);
      const ignored = done.x_gen?.ignored ?? [];
      if (ignored.length) this.page.showProblem(`Without effect: ${ignored.join(", ")}`);
    } finally {
      this.showText();
      this.page.editor.moveCursor();
      this.tokenizeSoon();
    }
  }

  async takeCandidate(index, id) {
    await this.startWriting(async (goesOn) => {
      const { tokens, parent } = this.page.writer.branchAt(index, id);
      if (!goesOn()) return;
      this.page.details.closeWhy();
      await this.write(tokens, { kind: "branch", parent });
    });
  }

  /** Put a token of the table at the cursor. Text after the cursor is not part of the new text. */
  insert(candidate) {
    if (this.page.writer.isWriting || this.isStarting || !this.page.details.nextAnswer || this.page.details.nextKey !== this.page.details.keyOfNext()) return;
    this.page.writer.endBurst();
    const token = takenToken(candidate, this.page.details.nextAnswer);
    this.page.writer.tree.add("branch", appended(this.tokensBeforeCursor, [token]));
    this.showText();
    this.page.editor.moveCursor();
  }

  goTo(node) {
    if (this.page.writer.isWriting || this.isStarting) return;
    this.page.writer.tree.goTo(node);
    this.movedInTree();
  }

  movedInTree() {
    this.page.writer.endBurst();
    this.page.details.closeWhy();
    this.showText();
    this.page.editor.moveCursor();
    this.tokenizeSoon();
  }

  undo() {
    if (this.page.writer.isWriting || this.isStarting) return;
    this.page.writer.tree.undo();
    this.movedInTree();
  }

  redo() {
    if (this.page.writer.isWriting || this.isStarting) return;
    this.page.writer.tree.redo();
    this.movedInTree();
  }
}
