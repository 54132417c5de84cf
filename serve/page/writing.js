// Writing: what a person does with the text, and what the page shows of it.

import { byId } from "./web/elements.js";
import { countText, quoted } from "./web/format.js";
import { Alternatives } from "./alternatives.js";
import { BranchTree } from "./branches.js";
import { afterPause } from "./server.js";
import { STOPS } from "./stops.js";
import { appended, countOf } from "./texts.js";
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
    this.alternatives = new Alternatives(page, this);
    for (const id of ["generate", "continue-here", "rewrite", "retry", "undo", "redo"]) byId(id).addEventListener("click", (event) => this.focusText(event));
    page.click("generate", () => this.generate());
    page.click("continue-here", () => this.continueHere());
    page.click("rewrite", () => this.rewriteSelection());
    page.click("retry", () => this.retry());
    page.click("undo", () => this.undo());
    page.click("redo", () => this.redo());
    page.editor.area.addEventListener("beforeinput", (event) => {
      if (!["historyUndo", "historyRedo"].includes(event.inputType)) return;
      event.preventDefault();
      if (event.inputType === "historyUndo") this.undo();
      else this.redo();
    });
  }

  /** Let a person who has pressed a button with the mouse type on. On a screen that is touched, that would open its keyboard. */
  focusText(press) {
    if (press.detail > 0 && matchMedia("(pointer: fine)").matches) this.page.editor.area.focus({ preventScroll: true });
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
    this.alternatives.show(tree);
    this.showControls();
    this.branches.show(tree);
    this.page.editor.mirror.showEnd(this.alternatives.rest, this.isEnded);
    this.page.details.showCommand();
    this.page.context.lookSoon();
    this.cursorMoved();
    if (this.page.isLoaded) this.page.stories.saveSoon();
  }

  /** Show which buttons have an effect. */
  showControls() {
    const { tree, isWriting } = this.page.writer;
    const isBusy = isWriting || this.isStarting;
    byId("undo").disabled = !tree.canUndo || isBusy;
    byId("redo").disabled = !tree.canRedo || isBusy;
    byId("stop").disabled = !isBusy && !this.page.comparison.comparing;
    for (const id of ["generate", "continue-here", "rewrite", "retry"]) byId(id).disabled = isBusy;
    if (!isBusy) this.showPlaces();
    this.alternatives.showControls(isBusy);
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
    const { isAtEnd } = this;
    this.page.connection.showState();
    if (this.page.editor.tokens === this.page.writer.tokens) return;
    this.page.editor.show(this.page.writer.tokens);
    if (follows) area.setSelectionRange(area.value.length, area.value.length);
    if (isAtEnd) this.scrollToEnd();
    this.showCounts();
    if (performance.now() - this.page.stories.lastSaved > SAVE_WHILE_WRITING_MILLISECONDS) this.page.stories.save();
  }

  /** Whether the last lines of the text are in view. */
  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = byId("paper");
    return scrollTop + clientHeight > scrollHeight - 60;
  }

  scrollToEnd() {
    byId("paper").scrollTop = byId("paper").scrollHeight;
  }

  /** Whether the model has ended the text that is shown. */
  get isEnded() {
    const { run, tokens } = this.page.writer.tree.current;
    return tokens === this.endedTokens || Boolean(run?.done && isEndOfModel(run.done) && !run.place?.rest);
  }

  cursorMoved() {
    this.showCounts();
    this.showPlaces();
    const { editor } = this.page;
    editor.strip.follow(editor.tokenAt(editor.cursor));
    this.page.details.cursorMoved();
  }

  /** Show which of the actions at the cursor have an effect. */
  showPlaces() {
    if (this.page.writer.isWriting || this.isStarting) return;
    const { selectionStart, selectionEnd, value } = this.page.editor.area;
    byId("continue-here").disabled = selectionEnd === value.length || selectionStart < selectionEnd;
    byId("rewrite").disabled = selectionStart === selectionEnd;
    byId("retry").disabled = !this.page.writer.tree.generation;
  }

  /** The whole tokens before the cursor. */
  get tokensBeforeCursor() {
    const { tokens } = this.page.writer;
    const count = this.page.editor.countBefore(this.page.editor.cursor);
    return count === tokens.length ? tokens : tokens.slice(0, count);
  }

  showCounts() {
    const { value } = this.page.editor.area;
    this.words ??= { text: "", count: 0 };
    if (this.words.text !== value) this.words = { text: value, count: wordCount(value) };
    byId("counts").textContent = `${countText(this.words.count)} words, ${countOf(this.page.writer.tokens)}`;
  }

  /** Run an action that lets the model write, unless it writes. Stop ends it at the next place where it asks `goesOn`. */
  async startWriting(action) {
    if (this.page.writer.isWriting || this.isStarting || !this.page.isLoaded) return;
    this.isStarting = true;
    this.page.details.stopAsking();
    let isStopped = false;
    this.stopStarting = () => { isStopped = true; };
    const focused = document.activeElement; // a button loses the focus while it has no effect
    this.showControls();
    try {
      await this.page.settings.settle();
      await action(() => !isStopped);
    } finally {
      this.isStarting = false;
      this.showControls();
      if (document.activeElement === document.body) focused.focus();
    }
  }

  /** Let the model write at the end of the text. */
  generate() {
    return this.startWriting((goesOn) => this.write(goesOn, { start: this.page.editor.text.length, rest: 0 }));
  }

  /** Let the model write at the cursor. What follows the cursor stays in the text before, of which this one is a branch. */
  continueHere() {
    return this.startWriting((goesOn) => this.write(goesOn, { start: this.page.editor.cursor, rest: 0 }));
  }

  /** Let the model write in the place of the selection, with the spaces before it. */
  rewriteSelection() {
    return this.startWriting(async (goesOn) => {
      const { editor } = this.page;
      const { selectionStart, selectionEnd, value } = editor.area;
      const selected = value.slice(selectionStart, selectionEnd).trimEnd();
      if (!selected) throw new Error("Nothing is selected. Select the words that the model is to write again.");
      const start = value.slice(0, selectionStart).replace(/ +$/, "").length;
      const end = selectionStart + selected.length;
      const limit = Math.max(editor.countBefore(end) - editor.countBefore(start), 1);
      await this.write(goesOn, { start, rest: value.length - end, limit });
    });
  }

  /** Let the model write another text in the place of the last one that it wrote. */
  retry() {
    return this.startWriting(async (goesOn) => {
      const { generation } = this.page.writer.tree;
      if (!generation) throw new Error("The model has written nothing yet that it could write again. Generate a text first.");
      const { seed: _, ...place } = generation.run.place;
      await this.write(goesOn, place, { parent: generation.parent, others: this.page.writer.tree.alternatives(generation), count: 1 });
    });
  }

  /** Return the tokens of the text before the cursor, which are not empty. */
  async readBeforeCursor() {
    await this.page.writer.tokenize();
    return this.checked((await this.page.writer.divided(this.page.writer.tokens, { start: this.page.editor.cursor, rest: 0 })).before);
  }

  checked(tokens) {
    if (!tokens.length) throw new Error("There is no text to continue, and the model has no token that begins a text. Write a text first.");
    return tokens;
  }

  /** Let the model write in a place of a text, see `Writer.generate`; say how it ended. `others`: texts of other seeds. */
  async write(goesOn, place, { parent = this.page.writer.tree.current, others = [], count = this.page.settings.numbers().samples } = {}) {
    const { writer, editor, settings } = this.page;
    await writer.tokenize();
    const { before, after } = await writer.divided(parent.tokens, place);
    const tokens = this.checked(before);
    if (!goesOn()) return;
    this.page.showProblem("");
    this.page.details.closeWhy();
    const seeds = settings.seeds(count, new Set(others.map(({ run }) => run.place.seed)));
    try {
      const stopAt = byId("stop-at").value;
      const limit = stopAt === "length" ? place.limit : undefined;
      const promise = writer.generate({ tokens, after, parent, place, limit, seeds, cut: STOPS[stopAt] });
      editor.moveCursor();
      editor.reveal(byId("paper"));
      if (!place.rest) this.scrollToEnd();
      this.report(await promise, writer.tokens.length - tokens.length - after.length, tokens);
      if (count > 1) this.page.announce(`${countText(count)} texts; the others are beside this one`);
    } finally {
      const { isAtEnd } = this; // a person who reads what is above is not disturbed
      this.leaveOutRepeated();
      this.showText();
      this.selectWritten();
      if (isAtEnd && !place.rest) this.scrollToEnd(); // the row of alternatives has taken some of the room
      this.tokenizeSoon();
    }
  }

  /** Say how a run ended, of which this number of tokens is in the text after those before it. */
  report({ done, isCut }, written, before) {
    if (done.finish_reason !== "stop" || written <= 0) this.page.showProblem(endOf(done) ?? "");
    if (written <= 0 && isEndOfModel(done)) this.endedTokens = before; // there is no text of this run
    this.page.announce(`${countText(Math.max(written, 0))} tokens, ${isCut ? `up to the end of a ${byId("stop-at").value}` : done.finish_reason}`);
    const ignored = done.x_gen?.ignored ?? [];
    if (ignored.length) this.page.showProblem(`Without effect: ${ignored.join(", ")}`);
  }

  /** Go to the text that was there already if the same seed has written the same again. */
  leaveOutRepeated() {
    const { tree } = this.page.writer;
    const { current } = tree;
    if (current.kind !== "generated" || !current.run?.place) return;
    const { seed } = current.run.place;
    const same = tree.alternatives(current).find((node) => node !== current && node.run.place.seed === seed && node.written === current.written);
    if (!same) return;
    tree.remove(current);
    tree.current = same;
    this.page.showProblem(`The seed ${seed} has written this text before. Retry writes another one.`);
  }

  /** Put the cursor at the end of the text, or select what the model has written inside of it. */
  selectWritten() {
    const { run } = this.page.writer.tree.current;
    const { area } = this.page.editor;
    if (!run?.place?.rest) return this.page.editor.moveCursor();
    area.setSelectionRange(run.place.start, area.value.length - run.place.rest);
    this.page.editor.reveal(byId("paper"));
    return this.cursorMoved();
  }

  async takeCandidate(index, id) {
    await this.startWriting(async (goesOn) => {
      const { tree } = this.page.writer;
      const branch = this.page.writer.addBranch(index, id);
      this.showText();
      this.page.editor.area.focus(); // the button that was pressed is gone
      try {
        await this.write(goesOn, { start: this.page.editor.text.length, rest: 0 }, { count: 1 });
      } finally {
        if (tree.current !== branch) tree.past = tree.past.filter((node) => node !== branch); // one step of Undo
        this.showControls();
      }
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

  /** Show another text in the place of the current one. Undo does not return to the current one. */
  turnTo(node) {
    if (this.page.writer.isWriting || this.isStarting) return;
    this.page.writer.tree.turnTo(node);
    this.movedInTree();
    this.selectWritten();
  }

  movedInTree() {
    const before = this.page.editor.text;
    this.page.writer.endBurst();
    this.page.details.closeWhy();
    this.showText();
    this.page.editor.putCursor(endOfChange(before, this.page.editor.text));
    this.page.editor.reveal(byId("paper"));
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

function wordCount(text) {
  let count = 0;
  for (let index = 0, isInside = false; index < text.length; index += 1) {
    const isBlank = text[index] === " " || text[index] === "\n" || text[index] === "\t";
    if (isInside && isBlank) count += 1;
    isInside = !isBlank;
    if (isInside && index === text.length - 1) count += 1;
  }
  return count;
}

/** Return the place in a text after which it is the same as the text before. */
function endOfChange(before, after) {
  let kept = 0;
  while (kept < Math.min(before.length, after.length) && before[before.length - 1 - kept] === after[after.length - 1 - kept]) kept += 1;
  return before === after ? after.length : after.length - kept;
}
