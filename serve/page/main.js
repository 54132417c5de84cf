// The page: its state, and the reactions to the clicks and keys of a person.

import { byId, element } from "./web/elements.js";
import { countText, quoted, visible } from "./web/format.js";
import { changeTheme, showTheme } from "./web/theme.js";
import { BranchTree, shortText } from "./branches.js";
import { Catalogue, ChainEditor } from "./chain.js";
import { Comparison } from "./compare.js";
import { DecidePanel } from "./decide.js";
import { Editor } from "./editor.js";
import { readInteger, readNumber } from "./fields.js";
import { download, exportText, linesOf, listenToFiles, readExport, readStored, tokensOf } from "./files.js";
import { GrammarField } from "./grammar.js";
import { MessageList } from "./messages.js";
import { NextToken } from "./next_token.js";
import { PresetControls } from "./presets.js";
import { afterPause, LatestOnly, RequestError, Server } from "./server.js";
import { TabStore } from "./storage.js";
import { bansText, readBans, readStrings, stringsText } from "./text_rules.js";
import { appended, contentText, editTokens, isReasoning, partsOf, reserveUids, textOf, TextTree } from "./texts.js";
import { legend, MEASURES } from "./tints.js";
import { WhyPanel } from "./why.js";
import { takenToken, Writer } from "./writer.js";

const TOP_TOKENS = 12;
const LOAD_AGAIN_MILLISECONDS = 2000;
const TOKENIZE_MILLISECONDS = 150;
const SAVE_MILLISECONDS = 400;
const SAVE_WHILE_WRITING_MILLISECONDS = 1500;
const WITH_CONTROLS = new Set(["seed", "max_tokens", "stop", "system", "grammar", "bans", "guidance"]);
const ENDS = {
  banned: "The text ended, because a ban matched whatever was drawn.",
  loop: "The text ended, because it repeated itself.",
};
const STATES = {
  connecting: "connecting",
  ready: "connected",
  loading: "the model is being loaded",
  lost: "no connection",
  locked: "a key is needed",
};
const OPEN_WHILE_WRITING = "The model is writing. Stop it first.";
const THEME_NAME = "gen-theme";
const LOST = "The server does not answer. The text stays here; the page connects again by itself.";

function isEndOfModel({ finish_reason: reason, stop }) {
  return reason === "stop" && typeof stop !== "string";
}

/** Return a sentence on the end of a run; undefined if it needs none. */
function endOf(done) {
  if (isEndOfModel(done)) return "The model ended the text here.";
  return done.finish_reason === "stop" ? `A stop string, ${quoted(done.stop)}, ended the text here.` : ENDS[done.finish_reason];
}

/** Return the text with which both texts begin. */
function sharedBeginning(first, second) {
  let length = 0;
  while (length < first.length && first[length] === second[length]) length += 1;
  return first.slice(0, length);
}

class Page {
  constructor() {
    this.server = new Server((state) => this.serverBecame(state));
    this.writer = new Writer(this.server, { settings: () => this.settings(), shown: () => this.showText(), grown: () => this.growSoon() });
    this.isLoaded = false;
    this.isLoading = false;
    this.endedTokens = null; // the tokens after which the model has ended the text without another one
    this.loaded = new Promise((resolve) => { this.finishLoading = resolve; }); // what a person does before waits for it
    this.isStarting = false; // true from the press of Generate to the end of the text
    this.guidanceModel = null; // the model that a preset names for guidance, which requests cannot name
    this.opening = null; // the text of the chat template before the answer; null without a template
    this.changedSettings = new Set(); // the settings that a person has changed since the preset was chosen
    this.editor = new Editor(byId("text"), byId("mirror"), byId("tokens"), byId("thought"), {
      edited: (start, end, text) => this.edited(start, end, text),
      moved: () => this.cursorMoved(),
      pressed: (index, isInList) => this.openWhy(index, isInList),
    });
    this.nextToken = new NextToken(byId("next"), byId("stages"), byId("next-note"), (candidate) => this.insert(candidate));
    this.why = new WhyPanel(byId("why"), byId("why-panel"), (index) => this.openWhy(index, true), (index, id) => this.attempt(() => this.takeCandidate(index, id)));
    this.branches = new BranchTree(byId("branches"), (node) => this.goTo(node));
    this.grammar = new GrammarField({ field: byId("grammar"), kind: byId("grammar-kind"), names: byId("grammar-names"), note: byId("grammar-note") }, this.server, { typed: () => this.changedSettings.add("grammar"), changed: () => this.chainChanged() });
    this.presets = new PresetControls({ choice: byId("preset"), notes: byId("import-notes") }, this.server, { apply: (steps, settings) => this.applyPreset(steps, settings), attempt: (action) => this.attempt(action) });
    this.messages = new MessageList(byId("message-list"), byId("add-message"), () => this.messagesChanged());
    this.comparison = new Comparison(byId("comparison"), (notation, signal) => this.generateWith(notation, signal));
    this.decisions = new DecidePanel(this.server, () => this.saveSoon());
    this.updateNext = new LatestOnly(() => this.requestNext());
    this.nextAfterMove = afterPause(120, () => this.updateNext.call());
    this.tokenizeSoon = afterPause(TOKENIZE_MILLISECONDS, () => this.inBackground(() => this.writer.tokenize()));
    this.saveSoon = afterPause(SAVE_MILLISECONDS, () => this.save());
    this.renderTemplateSoon = afterPause(300, () => this.inBackground(() => this.renderTemplate()));
    this.lastSaved = 0;
    this.tint("probability");
    showTheme(localStorage.getItem(THEME_NAME));
    this.listen();
    this.enable(false);
    this.server.start();
  }

  // The server.

  async serverBecame(state) {
    this.showState();
    byId("lost").hidden = state !== "lost";
    byId("lost").textContent = state === "lost" ? LOST : "";
    byId("key-form").hidden = state !== "locked";
    if (state === "locked") byId("key").focus();
    if (state !== "ready") return;
    if (!this.isLoaded) await this.load();
    else {
      this.tokenizeSoon();
      this.grammar.check(); // it may have been typed while the server was away
      this.updateNext.call();
    }
  }

  /** Say in words what the server does, or how the text that is shown has ended. */
  showState() {
    const { state } = this.server;
    const { run, tokens } = this.writer.tree.current;
    const isEnded = tokens === this.endedTokens || (run?.done && isEndOfModel(run.done));
    const activity = this.writer.isWriting ? "writing" : isEnded ? "ended by the model" : STATES.ready;
    const words = state === "ready" ? activity : STATES[state];
    if (byId("state").textContent !== words) byId("state").textContent = words; // screen readers speak each change
    byId("state").dataset.state = state;
  }

  /** Let a person use the controls that need the lists of the server, or not. */
  enable(isEnabled) {
    for (const control of document.querySelectorAll("header :is(button, input), main :is(button, input, select, textarea)")) {
      if (!["theme", "help"].includes(control.id) && control.type !== "file") control.disabled = !isEnabled;
    }
  }

  async useKey(event) {
    event.preventDefault();
    this.server.key = byId("key").value.trim();
    byId("key-problem").textContent = "";
    try {
      await this.server.json("/v1/models");
      byId("key").value = "";
      this.server.become("ready");
    } catch (error) {
      this.server.key = null;
      byId("key-problem").textContent = error.status === 401 ? "This is not the key of the server." : error.message;
      byId("key").select();
    }
  }

  /** Load what the server knows, and the state of the tab. */
  async load() {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const [models, samplers, presets, grammars, chain] = await Promise.all([
        this.server.json("/v1/models"), this.server.json("/gen/samplers"), this.server.json("/gen/presets"),
        this.server.json("/gen/grammars"), this.server.json("/gen/chain", {})]);
      this.model = models.data[0].id;
      byId("model").textContent = this.model;
      byId("model").title = this.model;
      document.title = `${this.model} \u2013 gen serve`;
      this.catalogue = new Catalogue(samplers.samplers);
      this.presets.showList(presets.presets);
      this.grammar.showNames(grammars.grammars);
      const parse = async (text) => (await this.server.json("/gen/chain", { chain: text })).steps;
      this.chain = new ChainEditor(byId("chain"), this.catalogue, { list: "Chain", add: "Add sampler", notation: "Notation" }, { changed: () => this.chainChanged(), parse });
      this.otherChain = new ChainEditor(byId("other-chain"), this.catalogue, { list: "Compared steps", add: "Add a compared step", notation: "Compared steps in notation" }, { changed: () => this.saveSoon(), parse });
      this.otherChain.show(chain.steps);
      this.applyPreset(chain.steps, chain.settings);
      const [store, state] = await TabStore.open();
      this.store = store;
      this.isLoaded = true;
      this.showProblem("");
      this.enable(true);
      this.showText();
      if (state) await this.attempt(() => this.restore(state));
      document.documentElement.dataset.state = "ready";
      this.finishLoading();
    } catch (error) {
      if (error.status !== 401) {
        this.fail(error);
        setTimeout(() => this.server.state === "ready" && !this.isLoaded && this.load(), LOAD_AGAIN_MILLISECONDS);
      }
    } finally {
      this.isLoading = false;
    }
  }

  /** Run an action; show the sentence of an error. */
  async attempt(action) {
    this.showProblem("");
    return this.inBackground(action);
  }

  /** Run an action that no person has asked for: the sentence of an earlier error stays. */
  async inBackground(action) {
    try {
      return await action();
    } catch (error) {
      this.fail(error);
      return undefined;
    }
  }

  fail(error) {
    if (error instanceof RequestError && error.body?.error?.param === "chain") this.chain?.reject(error.message);
    if (error.status !== 401 && this.server.state !== "lost") this.showProblem(error.message);
    if (error.name !== "Error" && !(error instanceof RequestError) && this.server.state !== "lost") console.error(error);
  }

  showProblem(message) {
    byId("problem").textContent = visible(message);
    byId("problem").hidden = !message;
  }

  // Settings.

  /** Return the settings of requests. Raises an error if the seed or the length is wrong. */
  settings() {
    const { seed, length } = this.numbers();
    const wrong = [byId("seed"), byId("length"), byId("samples"), byId("guidance-scale")].find((field) => field.validationMessage);
    if (wrong) throw new Error(wrong.validationMessage);
    return {
      chain: this.chain.notation || "dist",
      seed,
      max_tokens: length,
      stop: readStrings(byId("stop-strings").value), // also if it is empty: otherwise the server's own would apply
      bans: readBans(byId("bans").value),
      rules: this.rules,
      opening: byId("uses-template").checked ? this.opening : null,
      guidance: this.guidance(),
      grammar: this.grammar.value,
    };
  }

  /** Return the guidance of requests. The scale 1 is sent, too: otherwise the server's own would apply. */
  guidance() {
    const scale = readNumber(byId("guidance-scale"), "The scale of guidance") ?? 1;
    return scale === 1 ? { scale } : { scale, negative_prompt: byId("negative-prompt").value };
  }

  showGuidance(guidance) {
    byId("guidance-scale").value = String(guidance?.scale ?? 1);
    byId("negative-prompt").value = guidance?.negative_prompt ?? "";
    this.guidanceModel = guidance?.model ?? null;
    byId("guidance-note").textContent = this.guidanceModel === null ? "" : visible(`The model of guidance, ${this.guidanceModel}, applies if the server was started with it.`);
  }

  /** Return the seed, the length and the number of texts; null, and a marked field, for one that is wrong. */
  numbers() {
    return {
      seed: readInteger(byId("seed"), "The seed"),
      length: readInteger(byId("length"), "The number of tokens"),
      samples: readInteger(byId("samples"), "The number of texts"),
      guidanceScale: readNumber(byId("guidance-scale"), "The scale of guidance"),
    };
  }

  applyPreset(steps, settings) {
    this.chain.show(steps);
    if (Number.isInteger(settings.seed)) byId("seed").value = String(settings.seed);
    if (settings.max_tokens > 0) byId("length").value = String(settings.max_tokens);
    byId("stop-strings").value = stringsText(settings.stop);
    byId("bans").value = bansText(settings.bans);
    const rules = Object.fromEntries(Object.entries(settings).filter(([name]) => !WITH_CONTROLS.has(name)));
    if (rules.phases) rules.phases = [...rules.phases.slice(0, -1), {}]; // the cards are the chain of the last phase
    this.showRules(rules);
    this.showGuidance(settings.guidance);
    this.grammar.setPreset(settings.grammar ?? null);
    if (settings.system && !this.messages.messages.length) this.messages.show([{ role: "system", content: settings.system }]);
    this.changedSettings.clear();
    this.chainChanged();
  }

  /** Show the rules of a preset that have no controls here. They apply, and name what may differ from the chain. */
  showRules(rules) {
    this.rules = rules;
    const set = Object.entries(rules).filter(([, value]) => value !== null);
    byId("rules-note").textContent = set.length ? visible(`Of the preset: ${set.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("; ")}`) : "";
  }

  chainChanged() {
    this.nextToken.markStale();
    this.updateNext.call();
    this.saveSoon();
  }

  settingChanged(name) {
    this.changedSettings.add(name);
    this.numbers();
    this.saveSoon();
  }

  async savePreset() {
    await this.settle();
    const { seed, max_tokens, stop, bans, guidance } = this.settings();
    const savedGuidance = guidance.scale === 1 ? null : { ...guidance, ...(this.guidanceModel === null ? {} : { model: this.guidanceModel }) };
    const values = { seed, max_tokens, stop: stop.length ? stop : null, bans: bans.length ? bans : null, guidance: savedGuidance, grammar: this.grammar.presetValue };
    const changed = Object.fromEntries(Object.entries(values).filter(([name]) => this.changedSettings.has(name)));
    return this.presets.save(this.chain.notation || "dist", changed, this.chain.steps.filter((step) => !step.isOn).map((step) => step.name));
  }

  // The text.

  edited(start, end, text) {
    this.closeWhy();
    this.writer.replace(start, end, text);
    this.showText();
    this.tokenizeSoon();
  }

  /** Show the current text, and what depends on it. */
  showText() {
    const { tree } = this.writer;
    this.editor.show(tree.current.tokens);
    this.decisions.markStale(this.editor.area.value);
    this.showControls();
    this.branches.show(tree);
    this.showCommand();
    this.cursorMoved();
    if (this.isLoaded) this.saveSoon();
  }

  /** Show which buttons have an effect. */
  showControls() {
    const { tree, isWriting } = this.writer;
    const isBusy = isWriting || this.isStarting;
    byId("undo").disabled = !tree.canUndo || isBusy;
    byId("redo").disabled = !tree.canRedo || isBusy;
    byId("stop").disabled = !isBusy && !this.comparing;
    byId("generate").disabled = isBusy;
    byId("run-both").disabled = Boolean(this.comparing);
    this.editor.area.readOnly = isBusy;
    byId("paper").classList.toggle("is-writing", isWriting);
    this.showState();
  }

  /** Show new tokens with the next frame. */
  growSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.grow();
    });
  }

  grow() {
    const { area } = this.editor;
    const follows = area.selectionStart === area.selectionEnd && area.selectionEnd === area.value.length;
    const paper = byId("paper");
    const isAtEnd = paper.scrollTop + paper.clientHeight > paper.scrollHeight - 60;
    this.editor.show(this.writer.tokens);
    if (follows) area.setSelectionRange(area.value.length, area.value.length);
    if (isAtEnd) paper.scrollTop = paper.scrollHeight;
    this.showCounts();
    if (performance.now() - this.lastSaved > SAVE_WHILE_WRITING_MILLISECONDS) this.save();
  }

  /** The whole tokens before the cursor. */
  get tokensBeforeCursor() {
    const { tokens } = this.writer;
    const count = this.editor.countBefore(this.editor.cursor);
    return count === tokens.length ? tokens : tokens.slice(0, count);
  }

  cursorMoved() {
    this.showCounts();
    if (this.nextKey !== this.keyOfNext()) this.nextToken.markStale();
    if (!this.writer.isWriting) this.nextAfterMove();
  }

  /** Return what the next token depends on besides the settings: the tokens before the cursor. */
  keyOfNext() {
    const tokens = this.tokensBeforeCursor;
    return `${tokens.length} ${tokens.at(-1)?.uid ?? ""}`;
  }

  showCounts() {
    const total = this.writer.tokens.length;
    const count = this.editor.countBefore(this.editor.cursor);
    byId("counts").textContent = count < total ? `${countText(total)} tokens; continues after token ${countText(count)}` : `${countText(total)} tokens`;
  }

  /** Wait until what was just typed is read. Raises an error if any setting is wrong. */
  async settle() {
    await Promise.all([this.chain.settle(), this.grammar.checkSoon.settled(), this.renderTemplateSoon.settled()]);
    if (this.grammar.problem !== null) throw new Error(`The grammar is wrong: ${this.grammar.problem}`);
    this.settings(); // raises an error if the seed or the length is wrong
  }

  /** Run an action that lets the model write, unless it writes. Stop ends it at the next place where it asks `goesOn`. */
  async startWriting(action) {
    if (this.writer.isWriting || this.isStarting || !this.isLoaded) return;
    this.isStarting = true;
    let isStopped = false;
    this.stopStarting = () => { isStopped = true; };
    this.showControls();
    try {
      await this.settle();
      await action(() => !isStopped);
    } finally {
      this.isStarting = false;
      this.showControls();
    }
  }

  async generate() {
    await this.startWriting(async (goesOn) => {
      const tokens = await this.readBeforeCursor();
      const { samples } = this.numbers();
      if (!goesOn()) return;
      this.closeWhy();
      await this.write(tokens, { count: samples });
      if (samples > 1) this.announce(`${countText(samples)} texts; the others are in Branches`);
    });
  }

  /** Return the tokens of the text before the cursor, which are not empty. A part of a token becomes tokens of its own. */
  async readBeforeCursor() {
    await this.writer.tokenize();
    const { tokens } = this.writer;
    const read = await this.writer.tokenized(editTokens(tokens, this.editor.cursor, textOf(tokens).length, ""));
    if (!read.length) throw new Error("There is no text before the cursor, and the model has no token that begins a text. Write a text first.");
    return read;
  }

  /** Let the model continue tokens; say how it ended. */
  async write(tokens, options) {
    this.showProblem("");
    try {
      const promise = this.writer.generate(tokens, options);
      this.editor.moveCursor();
      const { done } = await promise;
      const written = this.writer.tokens.length - tokens.length;
      if (done.finish_reason !== "stop" || written <= 0) this.showProblem(endOf(done) ?? "");
      if (written <= 0 && isEndOfModel(done)) this.endedTokens = tokens; // there is no text of this run
      this.announce(`${countText(Math.max(written, 0))} tokens, ${done.finish_reason}`);
      const ignored = done.x_gen?.ignored ?? [];
      if (ignored.length) this.showProblem(`Without effect: ${ignored.join(", ")}`);
    } finally {
      this.showText();
      this.editor.moveCursor();
      this.tokenizeSoon();
    }
  }

  async takeCandidate(index, id) {
    await this.startWriting(async (goesOn) => {
      const { tokens, parent } = this.writer.branchAt(index, id);
      if (!goesOn()) return;
      this.closeWhy();
      await this.write(tokens, { kind: "branch", parent });
    });
  }

  /** Put a token of the table at the cursor. Text after the cursor is not part of the new text. */
  insert(candidate) {
    if (this.writer.isWriting || this.isStarting || !this.nextAnswer || this.nextKey !== this.keyOfNext()) return;
    this.writer.endBurst();
    const token = takenToken(candidate, this.nextAnswer);
    this.writer.tree.add("branch", appended(this.tokensBeforeCursor, [token]));
    this.showText();
    this.editor.moveCursor();
  }

  goTo(node) {
    if (this.writer.isWriting || this.isStarting) return;
    this.writer.tree.goTo(node);
    this.movedInTree();
  }

  movedInTree() {
    this.writer.endBurst();
    this.closeWhy();
    this.showText();
    this.editor.moveCursor();
    this.tokenizeSoon();
  }

  undo() {
    if (this.writer.isWriting || this.isStarting) return;
    this.writer.tree.undo();
    this.movedInTree();
  }

  redo() {
    if (this.writer.isWriting || this.isStarting) return;
    this.writer.tree.redo();
    this.movedInTree();
  }

  // Details.

  async openWhy(index, isWanted) {
    const token = this.writer.tokens[index];
    if (!token || (!isWanted && !token.trace)) return this.closeWhy();
    this.editor.select(index);
    await this.why.show(this.writer.tokens, index);
    if (matchMedia("(max-width: 1100px)").matches && isWanted) byId("why").scrollIntoView({ block: "nearest" });
    return undefined;
  }

  closeWhy() {
    this.why.close();
    this.editor.select(-1);
  }

  /** Ask for the distribution of the next token at the cursor. */
  async requestNext() {
    if (!this.isLoaded || this.writer.isWriting || !["ready", "connecting"].includes(this.server.state)) return;
    const tokens = this.tokensBeforeCursor;
    const isTokenized = tokens.every((token) => token.id !== null);
    if (!isTokenized) return this.nextToken.markStale();
    if (!tokens.length) {
      this.nextAnswer = null;
      byId("next-place").textContent = "";
      return this.nextToken.markStale("Write a text first.");
    }
    const key = this.keyOfNext();
    try {
      const { stop: _, max_tokens: __, ...fields } = this.writer.fields(tokens);
      const answer = await this.server.json("/gen/next", { ...fields, top: TOP_TOKENS });
      this.nextAnswer = answer;
      this.nextKey = key;
      byId("next-place").replaceChildren("after ", element("bdi", {}, quoted(contentText(tokens.at(-1)))));
      this.nextToken.show(answer);
      if (key !== this.keyOfNext()) this.nextToken.markStale();
      this.chain.showEffects(answer.stages);
      this.chain.problem.textContent = "";
    } catch (error) {
      this.nextToken.markStale(error.message);
      if (error.body?.error?.message?.startsWith("chain")) this.chain.reject(error.message);
    }
    return undefined;
  }

  tint(measure) {
    byId("measure").value = measure;
    this.editor.tint(measure);
    byId("legend").replaceChildren(legend(measure));
  }

  showCommand() {
    const { lastRun: run } = this.writer.tree;
    const command = run?.start?.command ?? null;
    byId("command").textContent = command === null ? (run?.start ? "No command repeats this text, because it continues tokens that no prompt has." : "Generate first: then the command that does the same is here.") : visible(command);
    byId("copy").disabled = command === null;
    this.command = command;
  }

  async copyCommand() {
    getSelection().selectAllChildren(byId("command"));
    try {
      await navigator.clipboard.writeText(this.command);
      this.announce("Copied");
      byId("copy").textContent = "Copied";
    } catch {
      byId("copy").textContent = "Selected";
    }
    setTimeout(() => { byId("copy").textContent = "Copy"; }, 1500);
  }

  // Messages of a chat.

  messagesChanged() {
    this.saveSoon();
    if (byId("uses-template").checked) this.renderTemplateSoon();
  }

  toggleTemplate() {
    const isOn = byId("uses-template").checked;
    byId("chat").hidden = !isOn;
    if (isOn && !this.messages.messages.some((message) => message.role === "user")) {
      this.messages.show([...this.messages.messages, { role: "user", content: this.writer.tokens.some((token) => token.event === "token") ? "" : textOf(this.writer.tokens) }]);
    }
    this.messagesChanged();
  }

  /** Show the text that the chat template makes of the messages. */
  async renderTemplate() {
    const messages = this.messages.sent;
    if (!messages.length || this.writer.isWriting) return;
    const asked = messages.at(-1).role === "assistant" ? messages.slice(0, -1) : messages;
    const render = async (chat) => (chat.length ? (await this.server.json("/apply-template", { messages: chat })).prompt : "");
    const [prompt, unanswered] = await Promise.all([render(messages), render(asked)]);
    this.opening = sharedBeginning(prompt, unanswered);
    if (prompt === textOf(this.writer.tokens)) return;
    this.closeWhy();
    this.writer.endBurst();
    this.writer.type([]);
    this.writer.replace(0, 0, prompt);
    this.showText();
    this.editor.moveCursor();
    await this.writer.tokenize();
  }

  /** Add what the model has written after the template to the messages. */
  keepAnswer() {
    const { tokens, tree } = this.writer;
    const first = tokens.findIndex((token) => token.event === "token");
    if (first < 0) return;
    const written = tokens.slice(first);
    const { reasoning, answer } = partsOf(written, tree.lastRun?.start?.reasoning?.tags);
    this.messages.addAnswer(answer, reasoning, written.filter(isReasoning).length);
  }

  // Two chains.

  toggleComparison() {
    const section = byId("comparison");
    section.hidden = !section.hidden;
    byId("compare").setAttribute("aria-expanded", String(!section.hidden));
    section.parentElement.classList.toggle("compares", !section.hidden);
    if (!section.hidden) section.scrollIntoView({ block: "start" });
  }

  async runBoth() {
    if (this.comparing || !this.isLoaded) return;
    this.comparing = new AbortController();
    this.showControls();
    try {
      await Promise.all([this.settle(), this.otherChain.settle()]);
      this.comparedTokens = await this.readBeforeCursor();
      await this.comparison.run([this.chain.notation || "dist", this.otherChain.notation || "dist"], this.comparing.signal);
    } catch (error) {
      if (!this.comparing.signal.aborted) throw error;
      this.comparison.showDifference();
    } finally {
      this.comparing = null;
      this.showControls();
    }
  }

  generateWith(notation, signal) {
    return this.server.lines("/gen/generate", { ...this.writer.fields(this.comparedTokens), chain: notation, trace: 20, logprobs: true }, signal);
  }

  // Files and the state of the tab.

  state() {
    return {
      model: this.model,
      steps: this.chain.steps,
      otherSteps: this.otherChain.steps,
      ...this.numbers(),
      changed: Array.from(this.changedSettings),
      grammar: byId("grammar").value,
      grammarKind: byId("grammar-kind").value,
      stop: byId("stop-strings").value,
      bans: byId("bans").value,
      rules: this.rules,
      negativePrompt: byId("negative-prompt").value,
      guidanceModel: this.guidanceModel,
      ...this.presets.state,
      measure: byId("measure").value,
      usesTemplate: byId("uses-template").checked,
      opening: this.opening,
      messages: this.messages.messages,
      decide: this.decisions.state,
    };
  }

  applyState(state) {
    if (state.decide) this.decisions.state = state.decide;
    if (state.steps) this.chain.show(state.steps);
    if (state.otherSteps) this.otherChain.show(state.otherSteps);
    if (Number.isInteger(state.seed)) byId("seed").value = String(state.seed);
    if (Number.isInteger(state.length)) byId("length").value = String(state.length);
    if (Number.isInteger(state.samples)) byId("samples").value = String(state.samples);
    this.changedSettings = new Set(state.changed);
    if (state.stop !== undefined) byId("stop-strings").value = state.stop;
    if (state.bans !== undefined) byId("bans").value = state.bans;
    if (state.rules !== undefined) this.showRules(state.rules);
    this.showGuidance({ scale: state.guidanceScale, negative_prompt: state.negativePrompt, model: state.guidanceModel });
    if (state.preset !== undefined) this.presets.restore(state);
    if (Object.hasOwn(MEASURES, state.measure ?? "")) this.tint(state.measure);
    if (state.messages) this.messages.show(state.messages);
    byId("uses-template").checked = Boolean(state.usesTemplate);
    this.opening = state.opening ?? null;
    byId("chat").hidden = !state.usesTemplate;
    this.grammar.set(state.grammar ?? "", state.grammarKind ?? "auto");
  }

  async save() {
    this.lastSaved = performance.now();
    if (!this.store) return;
    const { tree } = this.writer;
    try {
      await this.store.write({ settings: structuredClone(this.state()), nodes: tree.asRecords(), current: tree.current.id, past: tree.past.map((node) => node.id) }, tokensOf(tree));
    } catch (error) {
      if (error?.name === "QuotaExceededError") this.showProblem("The browser has no room to keep this text; export it.");
      else console.error(error);
    }
  }

  restore(state) {
    for (const uid of state.tokens.keys()) reserveUids(uid);
    this.applyState(state.settings);
    this.writer.tree = TextTree.fromRecords(state.nodes, state.tokens, state.current, state.past);
    this.writer.tree.mend();
    this.tokenizeAgain(this.writer.tree, state.settings.model);
    this.movedInTree();
  }

  async openFile(name, text) {
    await this.loaded;
    let found;
    try {
      found = readExport(text);
    } catch (error) {
      throw new Error(`${name} cannot be opened: ${error.message}.`, { cause: error });
    }
    this.open(found);
  }

  /** Add the texts of a file or of another tab to those of this tab, and show the one that was shown there. */
  open({ tree, settings }) {
    if (this.writer.isWriting || this.isStarting) throw new Error(OPEN_WHILE_WRITING);
    this.applyState(settings);
    tree.mend();
    this.tokenizeAgain(tree, settings.model);
    this.writer.tree.graft(tree);
    this.movedInTree();
  }

  /** List the texts of closed tabs. */
  async listClosedTabs() {
    const list = byId("closed-list");
    const tabs = await this.store.closedTabs();
    list.replaceChildren(...tabs.map(({ when, state }) => this.closedTab(when, state)).filter(Boolean));
    byId("closed-note").textContent = list.children.length ? "A press adds the texts to those of this tab." : "No closed tab has a text. Texts of tabs that were not used for 30 days are deleted.";
    byId("closed-dialog").showModal();
  }

  /** Return the item of a closed tab; null if it has no text. */
  closedTab(when, state) {
    const uids = state?.nodes.find(({ id }) => id === state.current)?.uids ?? [];
    const text = textOf(uids.map((uid) => state.tokens.get(uid)).filter(Boolean));
    if (!text.trim()) return null;
    const open = () => {
      byId("closed-dialog").close();
      this.attempt(() => this.open(readStored(state)));
    };
    return element("li", {}, element("button", { type: "button", onclick: open }, element("bdi", {}, shortText(text))),
      element("span", { class: "note" }, ` ${new Date(when).toLocaleString()}, ${countText(uids.length)} tokens`));
  }

  /** Let the server tokenize texts that another model has tokenized. Ids mean nothing to a model with other tokens. */
  tokenizeAgain(tree, model) {
    if (model === undefined || model === this.model) return;
    tree.forgetIds();
    this.showProblem(`The text was written with ${model}. It is tokenized again, so that its tokens have no details.`);
  }

  async saveReport() {
    const response = await this.server.sendLines("/gen/report", linesOf(this.writer.tree));
    download(await response.text(), "report.html", "text/html");
  }

  // The rest.

  announce(text) {
    byId("status").textContent = text;
  }

  stop() {
    this.stopStarting?.();
    this.writer.stop();
    this.comparing?.abort();
  }

  key(event) {
    const isCommand = event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && isCommand) {
      event.preventDefault();
      this.attempt(() => this.generate());
    } else if (event.key === "Escape" && !byId("help-dialog").open) {
      if (this.writer.isWriting || this.isStarting || this.comparing) this.stop();
      else this.closeWhy();
    } else if (isCommand && event.target === this.editor.area && ["z", "y"].includes(event.key.toLowerCase())) {
      event.preventDefault();
      if (event.key.toLowerCase() === "y" || event.shiftKey) this.redo();
      else this.undo();
    }
  }

  listen() {
    const click = (id, action) => byId(id).addEventListener("click", () => this.attempt(action));
    click("generate", () => this.generate());
    click("stop", () => this.stop());
    click("undo", () => this.undo());
    click("redo", () => this.redo());
    click("export", () => download(exportText(this.writer.tree, this.state()), "page.json", "application/json"));
    click("open", () => byId("open-file").click());
    click("report", () => this.saveReport());
    click("import-preset", () => byId("preset-file").click());
    click("save-preset", () => this.savePreset());
    click("compare", () => this.toggleComparison());
    click("run-both", () => this.runBoth());
    click("theme", () => localStorage.setItem(THEME_NAME, changeTheme()));
    click("help", () => byId("help-dialog").showModal());
    click("close-why", () => this.closeWhy());
    click("decide", () => this.decisions.decide(this.editor.area.value));
    click("keep-answer", () => this.keepAnswer());
    click("copy", () => this.copyCommand());
    click("closed-tabs", () => this.listClosedTabs());
    listenToFiles(byId("open-file"), (name, text) => this.attempt(() => this.openFile(name, text)));
    listenToFiles(byId("preset-file"), (name, text) => this.attempt(async () => {
      await this.loaded;
      await this.presets.read(name, text);
    }));
    byId("key-form").addEventListener("submit", (event) => this.useKey(event));
    byId("uses-template").addEventListener("change", () => this.toggleTemplate());
    byId("measure").append(...Object.entries(MEASURES).map(([name, { title }]) => element("option", { value: name }, title)));
    byId("measure").addEventListener("change", () => {
      this.tint(byId("measure").value);
      this.saveSoon();
    });
    byId("seed").addEventListener("input", () => this.settingChanged("seed"));
    byId("length").addEventListener("input", () => this.settingChanged("max_tokens"));
    byId("samples").addEventListener("input", () => this.settingChanged("samples"));
    byId("stop-strings").addEventListener("input", () => this.settingChanged("stop"));
    byId("bans").addEventListener("input", () => this.settingChanged("bans"));
    for (const name of ["guidance-scale", "negative-prompt"]) {
      byId(name).addEventListener("input", () => {
        this.settingChanged("guidance");
        this.chainChanged();
      });
    }
    this.editor.area.addEventListener("beforeinput", (event) => {
      if (!["historyUndo", "historyRedo"].includes(event.inputType)) return;
      event.preventDefault();
      if (event.inputType === "historyUndo") this.undo();
      else this.redo();
    });
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && this.isLoaded && this.save());
    addEventListener("pagehide", () => this.isLoaded && this.save());
  }
}

window.page = new Page();
