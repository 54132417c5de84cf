// The story of the tab: kept in the browser and in a folder of the server, and changed for another one.

import { byId, element } from "./web/elements.js";
import { visible } from "./web/format.js";
import { download, exportData, linesOf, listenToFiles, piecesOf, readData, readExport, tokensOf, treeOfPieces } from "./files.js";
import { afterPause } from "./server.js";
import { isOvertaken, StoryFolder } from "./story_folder.js";
import { StoryList, titleOf } from "./story_list.js";
import { newStory, StoryStore, TakenError, wordsOf } from "./storage.js";
import { changeOf, editTokens, reserveUids, textOf, TextTree } from "./texts.js";

const TAB_NAME = "gen-tab"; // the story that a tab shows, also after a reload
const SAVE_MILLISECONDS = 400;
const MAX_SAVE_MILLISECONDS = 1000; // while a person types without a pause
const FOLDER_MILLISECONDS = 2000;
const MAX_FOLDER_MILLISECONDS = 10_000;
const OPEN_WHILE_WRITING = "The model is writing. Stop it first.";
const UNSAVED = "This story is only in this tab now: ";
const NO_ROOM = "the browser has no room for it. Download it, or delete other stories.";
const NOTHING_IS_KEPT = "the browser keeps nothing here. Download it before you close the tab.";

const CONTEXT = ["memory", "authors_note", "world_info"];

function baseName(name) {
  return name.replace(/\.[^.]*$/, "");
}

/** Return the story of a file with nothing but text; null if the file has another ending. */
function readPlainText(name, content) {
  if (!/\.(txt|md)$/i.test(name)) return null;
  const [, title, text] = /^# (.+)\n\n([^]*?)\n?$/.exec(name.endsWith("md") ? content : "") ?? [null, baseName(name), content];
  return { title, tree: treeOfPieces([{ text }]) };
}

/** Return the state of a story, as a store keeps it. */
function stateOf(tree, settings) {
  const [past, redone] = [tree.past, tree.redone].map((nodes) => nodes.map(({ id }) => id));
  return { settings: structuredClone(settings), nodes: tree.asRecords(), current: tree.current.id, past, redone, tokens: tokensOf(tree) };
}

/** Return the story that the tab shows, as a store has it; null if it has none. */
async function readTabs(store) {
  const id = sessionStorage.getItem(TAB_NAME);
  return id === null ? null : store.read(id);
}

/** Return whether a story is another one than its file, or has none. */
function differsFromFile({ isEmpty, deleted, file }) {
  return !isEmpty && !deleted && (!file || file.isChanged);
}

/** Return whether the last change of a story is in this tab only. `problem`: why the browser does not keep it; or null. */
function isLeftOut(story, problem) {
  return problem !== null && differsFromFile(story);
}

/** The story that is shown, and its places. `page` is the page. */
export class Stories {
  constructor(page) {
    this.page = page;
    this.store = null;
    this.story = newStory();
    this.folder = new StoryFolder(page.server);
    this.list = new StoryList(this);
    this.lastSaved = 0;
    this.saving = Promise.resolve(); // ends with the last save in the browser, and the next one in the folder
    this.savingToFolder = Promise.resolve();
    this.kept = ""; // what `contentKey` was when the story was opened or last saved
    this.keptTokens = null; // and the tokens of its text
    this.problem = null; // why the browser does not keep the story
    this.folderProblem = null; // why the folder does not have the story that was written last
    this.unstored = new Map(); // the stories with such a problem that were left, each with its state and its problem
    this.isStoring = false;
    this.saveSoon = afterPause(SAVE_MILLISECONDS, () => this.save(), MAX_SAVE_MILLISECONDS);
    this.saveToFolderSoon = afterPause(FOLDER_MILLISECONDS, () => this.saveToFolder(), MAX_FOLDER_MILLISECONDS);
    page.click("open", () => byId("open-file").click());
    page.click("export", () => byId("export-dialog").showModal());
    page.click("report", () => this.saveReport());
    page.click("export-unsaved", () => this.download("details"));
    page.click("close-remarks", () => this.showRemarks([]));
    for (const button of byId("export-dialog").querySelectorAll("[data-kind]")) {
      button.addEventListener("click", () => page.attempt(() => this.download(button.dataset.kind)));
    }
    listenToFiles(byId("open-file"), (file) => page.attempt(() => page.readInTurn(() => this.read(file))));
    byId("title").addEventListener("change", () => page.attempt(() => this.rename(this.story, byId("title").value)));
    document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && this.save());
    addEventListener("pagehide", () => page.inBackground(() => this.saveNow({ isLast: true })));
    addEventListener("beforeunload", (event) => {
      const isAnyLeftOut = Array.from(this.unstored.values()).some(({ story, problem }) => isLeftOut(story, problem));
      if (isAnyLeftOut || isLeftOut(this.story, this.problem)) event.preventDefault();
    });
  }

  /** Open the store. Return the tree and the settings of the tab's story; null without one. */
  async load() {
    const [store] = await Promise.all([StoryStore.open(), this.page.inBackground(() => this.folder.list())]);
    const found = await readTabs(store);
    const stored = found && (await this.page.inBackground(() => this.readState(found.state)));
    this.store = store;
    await (stored ? this.adopt(found.story, found.state.tokens) : this.take(this.story));
    this.showStory();
    this.page.inBackground(() => this.writeDue());
    return stored;
  }

  /** Write the stories into the folder for which tabs had no time before they were closed. */
  async writeDue() {
    if (!this.folder.isThere) return;
    const [stories, taken] = await Promise.all([this.store.list(), this.store.taken()]);
    for (const { id, file, isOwed } of stories.filter(differsFromFile)) {
      if (taken.has(id) || !(file || isOwed)) continue;
      const { story, state } = await this.store.read(id);
      await this.writeOther(story, state);
    }
  }

  /** Show the text of the tab's story while the server loads its model. */
  async preview() {
    const found = await readTabs(await StoryStore.open());
    if (found && !this.page.isLoaded) this.page.editor.show(treeOfPieces([{ text: found.story.text }]).current.tokens);
  }

  // The story of the tab.

  async take(story) {
    const isTaken = await this.store.take(story.id);
    if (isTaken) {
      this.story = story;
      sessionStorage.setItem(TAB_NAME, story.id);
    }
    return isTaken;
  }

  /** Take a story that is stored, or a copy if another tab has it. */
  async adopt(story, tokens) {
    if (await this.take(story)) this.store.keepTokens(this.unstored.has(story.id) ? new Map() : tokens);
    else await this.takeCopy(story, `\u201c${titleOf(story)}\u201d is open in another tab.`);
  }

  /** Go on with a copy of a story, which has no file yet. */
  async takeCopy(story, reason) {
    const copy = newStory({ ...story, ...(story.text ? { title: `${titleOf(story)} (copy)` } : {}), file: null });
    await this.take(copy);
    this.showStory();
    if (story.text) this.showRemarks([`${reason} This tab goes on with a copy, so that neither replaces the other.`]);
  }

  showStory() {
    byId("title").value = this.story.title ?? "";
    byId("title").placeholder = titleOf(this.story);
    byId("kept").textContent = this.story.file ? visible(`${this.story.file.name}.txt`) : "";
    this.list.offerLast();
    this.keepInFolder();
  }

  /** Write the story into the folder soon, if it is another one than there. */
  keepInFolder() {
    if (this.folder.isThere && differsFromFile(this.story)) this.saveToFolderSoon();
  }

  /** What differs if the story has changed. */
  get contentKey() {
    const { tree } = this.page.writer;
    const { id, tokens } = tree.current;
    return JSON.stringify([this.story.title, tree.nodes.size, id, textOf(tokens), this.page.settings.state()]);
  }

  /** Show a story that is kept as it is. */
  showKept() {
    this.page.writing.movedInTree();
    this.kept = this.contentKey;
    this.keptTokens = this.page.writer.tokens;
    this.showSaved(this.unstored.get(this.story.id)?.problem ?? null);
    this.showStory();
  }

  /** Show another story: its tree with its settings. `show` puts them in place. */
  async change(show) {
    if (this.page.writer.isWriting || this.page.writing.isStarting) throw new Error(OPEN_WHILE_WRITING);
    this.page.details.closeWhy();
    await this.save();
    const { story, problem } = this;
    if (problem !== null && !story.isEmpty) this.unstored.set(story.id, { story, state: this.state, problem });
    this.saveToFolderSoon.settled(); // which takes what it writes at once
    this.showRemarks([]);
    this.page.settings.presets.notes.hidden = true;
    this.page.details.clearNext();
    this.page.editor.show([]);
    try {
      await show();
    } finally {
      this.showKept();
    }
  }

  /** Begin a story with the settings of the last one. */
  async begin({ title = null, tree = new TextTree(), settings = {}, file = null }) {
    await this.change(async () => {
      await this.take(newStory({ title, file }));
      tree.mend();
      this.showState({ tree, settings: this.settingsWith(settings) });
    });
  }

  /** Return the settings of the page with those of another story. */
  settingsWith(settings) {
    return { ...this.page.settings.state(), messages: [], usesTemplate: false, opening: null, context: {}, ...settings };
  }

  get state() {
    return stateOf(this.page.writer.tree, this.page.settings.state());
  }

  /** Return a story that is not shown, with its state; null if there is none. */
  async readStored(id) {
    return this.unstored.get(id) ?? this.store.read(id);
  }

  /** Open a story of the browser. */
  async open(id) {
    if (id === this.story.id) return;
    const found = await this.readStored(id);
    if (!found) throw new Error("This story is not in the browser any more.");
    const stored = this.readState(found.state); // an error leaves all as it is
    await this.change(async () => {
      await this.adopt(found.story, found.state.tokens);
      this.showState(stored);
    });
    await this.readNewerFile();
  }

  /** Show the text of the story's file if somebody else has changed it. The text of the browser is a branch then. */
  async readNewerFile() {
    const { story, page } = this;
    const isTouched = () => !story.file || story.file.isChanged || this.story !== story || page.writer.isWriting;
    if (isTouched()) return; // the next change of a file that has changed elsewhere tells it
    const { name, version, text, data } = await this.folder.read(story.file.name).catch(() => story.file);
    if (version === story.file.version || isTouched()) return;
    const { tree, settings } = this.readFile(text, data);
    page.settings.applyState(settings);
    page.writer.tree.graft(tree);
    story.file = { name, version, isChanged: false };
    page.writing.movedInTree();
    this.kept = this.contentKey; // the browser keeps it soon, because its tokens are new; the folder has it
    this.showStory();
    this.showRemarks([`${name}.txt was changed elsewhere: this is its text. The one that this browser had is in Branches.`]);
  }

  /** Open a story that is only in the folder. */
  async openFile(name) {
    const { version, text, data } = await this.folder.read(name);
    const { title, tree, settings } = this.readFile(text, data);
    await this.begin({ title: title ?? name, tree, settings, file: { name, version, isChanged: false } });
  }

  /** Return the title, the tree and the settings of a file. If somebody has edited its text, the change is the last step. */
  readFile(text, data) {
    if (data === null) return { title: null, tree: treeOfPieces([{ text }]), settings: {} };
    const found = readData(data);
    const { tree } = found;
    const { tokens } = tree.current;
    const { start, end, inserted } = changeOf(textOf(tokens), text);
    if (start !== end || inserted) tree.add("typed", editTokens(tokens, start, end, inserted));
    return found;
  }

  /** Show the story of the tab after the page was loaded. */
  restore(stored) {
    this.showState(stored);
    this.showKept();
    this.page.inBackground(() => this.readNewerFile());
  }

  readState({ nodes, tokens, current, past, redone, settings }) {
    for (const uid of tokens.keys()) reserveUids(uid);
    return { tree: TextTree.fromRecords(nodes, tokens, current, past, redone), settings };
  }

  showState({ tree, settings }) {
    this.page.settings.applyState(settings);
    this.tokenizeAgain(tree, settings.model);
    this.page.writer.tree = tree;
  }

  /** Let the server tokenize texts that another model has tokenized. Ids mean nothing to a model with other tokens. */
  tokenizeAgain(tree, model) {
    if (model === undefined || model === this.page.model) return;
    tree.forgetIds();
    this.page.showProblem(`The text was written with ${model}. It is tokenized again, so that its tokens have no details.`);
  }

  // Keeping it.

  async save() {
    this.saving = this.saving.then(() => this.page.inBackground(() => this.saveNow()));
    return this.saving;
  }

  async saveNow({ isLast = false } = {}) {
    this.lastSaved = performance.now();
    if (!this.store) return;
    const { tree } = this.page.writer;
    const { story } = this;
    const text = textOf(tree.current.tokens);
    const settings = this.page.settings.state();
    story.isEmpty = tree.nodes.size === 1 && !settings.messages.length && !Object.keys(settings.context).length;
    if (text !== story.text) Object.assign(story, { text, words: wordsOf(text), when: Date.now() });
    const key = this.contentKey;
    const isChanged = key !== this.kept;
    if (!isChanged && this.keptTokens === tree.current.tokens && this.problem === null && !this.isStoring && story.revision > 0) return;
    this.kept = key;
    this.keptTokens = tree.current.tokens;
    if (isChanged && story.file) story.file.isChanged = true;
    if (isChanged && !story.file) story.isOwed = this.folder.isThere;
    byId("title").placeholder = titleOf(story);
    if (text) byId("continue-story").hidden = true;
    try {
      this.isStoring = true;
      const problem = await this.writeToBrowser(story, this.state, { isLast });
      if (story === this.story) this.showSaved(problem);
    } catch (error) {
      if (!(error instanceof TakenError)) throw error;
      await this.takeCopy(story, `\u201c${titleOf(story)}\u201d was changed in another tab.`);
      await this.saveNow();
      return;
    } finally {
      this.isStoring = false;
    }
    this.keepInFolder();
  }

  /** Store a story. Return why the browser does not keep it; null if it does. Raises `TakenError`. */
  async writeToBrowser(story, { tokens, ...state }, options) {
    try {
      await this.store.write(story, state, tokens, options);
    } catch (error) {
      if (error instanceof TakenError) throw error;
      return error?.name === "QuotaExceededError" ? NO_ROOM : `the browser could not store it (${error?.message ?? "unknown reason"}).`;
    }
    if (!this.store.canKeep) return NOTHING_IS_KEPT;
    this.unstored.delete(story.id);
    this.persistence ??= navigator.storage?.persist?.(); // or a browser may remove stories when its disk is full
    return null;
  }

  /** Keep a story that is not shown. If it is new, it gets a file. */
  async keepOther(story, state) {
    const problem = await this.writeToBrowser(story, state, { saved: new Set() });
    if (problem !== null) this.unstored.set(story.id, { story, state, problem });
    await this.writeOther(story, state);
  }

  /** Do something in the folder after what is done there already. */
  async inFolder(work) {
    const done = this.savingToFolder.then(work);
    this.savingToFolder = done.catch(() => {}); // the caller tells it
    return done;
  }

  /** Show that the story is kept, or why not. The folder has it, too, or gets it soon. */
  showSaved(problem) {
    this.problem = problem;
    const isInFolder = this.folder.isThere && this.folderProblem === null;
    const words = isLeftOut(this.story, problem) && !isInFolder ? UNSAVED + problem : "";
    byId("unsaved").hidden = !words;
    if (byId("unsaved-text").textContent !== words) byId("unsaved-text").textContent = words;
  }

  /** Show why a story is not in the folder; null: it is there. */
  showFolderProblem(problem) {
    if (problem !== null) this.showRemarks([problem]);
    else if (byId("remarks").textContent === visible(this.folderProblem ?? "")) this.showRemarks([]);
    this.folderProblem = problem;
    this.showSaved(this.problem);
  }

  /** Write the story as it is now into the folder, after what is written there already. */
  async saveToFolder() {
    const { story, page: { writer: { tree }, settings } } = this;
    const { text, title } = story;
    const data = exportData(title, tree, settings.state());
    const { kept } = this;
    await this.inFolder(() => this.writeFile(story, title, text, data, kept));
  }

  /** Write a story that is not shown into the folder, if it has no file, or is another one than there. */
  async writeOther(story, state) {
    if (!this.folder.isThere || !differsFromFile(story)) return;
    const { tree, settings } = this.readState(state);
    await this.inFolder(() => this.writeFile(story, story.title, story.text, exportData(story.title, tree, settings)));
  }

  /** Write a story into the folder. `kept`: what `contentKey` was, if it is the story that is shown. */
  async writeFile(story, title, text, data, kept) {
    const name = title ?? `Story ${new Date(story.when).toISOString().slice(0, 10)}`;
    try {
      let file;
      try {
        file = await this.folder.write(story.file, name, text, data);
      } catch (error) {
        if (!isOvertaken(error)) throw error;
        file = await this.folder.write(null, name, text, data);
        this.showRemarks([`${story.file.name}.txt was changed or removed elsewhere. It stays so; this story is now ${file.name}.txt.`]);
        if (title) story.title = file.name;
        if (story === this.story) this.showStory();
      }
      const isChanged = text !== story.text || (story === this.story && kept !== this.kept);
      await this.setFacts(story, { file: { ...file, isChanged }, title: story.title }).catch(() => {}); // a browser without room
      if (story === this.story) byId("kept").textContent = visible(`${file.name}.txt`);
      this.showFolderProblem(null);
    } catch (error) {
      if (story === this.story) byId("kept").textContent = "";
      if (isOvertaken(error)) this.folder.isThere = false; // the server has no folder any more
      this.showFolderProblem(`The story is not in the folder of the server: ${error.message} ${this.problem === null ? "It is in this browser; the" : "The"} next change tries again.`);
    }
  }

  showRemarks(sentences) {
    byId("remarks").replaceChildren(...sentences.map((sentence) => element("p", {}, visible(sentence))));
    byId("remarks-area").hidden = sentences.length === 0;
  }

  // What a person does with stories of the list.

  /** Return the stories of the browser and of this tab. */
  async listStories() {
    const stories = [...(await this.store.list()), ...Array.from(this.unstored.values(), ({ story }) => story), this.story];
    return Array.from(new Map(stories.map((story) => [story.id, story])).values());
  }

  isOnlyInTab({ id }) {
    const { story, problem } = id === this.story.id ? this : (this.unstored.get(id) ?? {});
    return story !== undefined && isLeftOut(story, problem);
  }

  async setFacts(story, facts) {
    Object.assign(story, facts);
    Object.assign(this.unstored.get(story.id)?.story ?? {}, facts);
    await this.store.change(story.id, facts);
  }

  /** Return a story of the list that the browser has, too. */
  async own(story) {
    if (!story.fileName) return story;
    const { version, text, data } = await this.folder.read(story.fileName);
    const { title, tree, settings } = this.readFile(text, data);
    tree.mend();
    const file = { name: story.fileName, version, isChanged: false };
    const owned = newStory({ title: title ?? story.fileName, when: story.when, text, words: wordsOf(text), isEmpty: false, file });
    await this.keepOther(owned, stateOf(tree, this.settingsWith(settings)));
    return owned;
  }

  /** Name a story. Return its id. */
  async rename(listed, title) {
    const story = await this.own(listed);
    story.title = title.trim() || null;
    if (story === this.story) {
      await this.save();
      this.showStory();
    } else await this.setFacts(story, { title: story.title });
    if (story.file && story.title) await this.inFolder(() => this.renameFile(story));
    return story.id;
  }

  async renameFile(story) {
    const last = story.file;
    const { text, data, version } = await this.folder.read(last.name);
    const facts = data ?? exportData(null, this.readFile(text, data).tree, {});
    if (version !== last.version) throw new Error(`${last.name}.txt was changed elsewhere, and keeps its name.`);
    const file = await this.folder.write(null, story.title, text, { ...facts, title: story.title });
    await this.folder.delete(last);
    await this.setFacts(story, { file: { ...file, isChanged: last.isChanged } });
    if (story === this.story) this.showStory();
  }

  /** Copy a story. Return the id of the copy. */
  async duplicate(listed) {
    const { id } = await this.own(listed);
    if (id === this.story.id) await this.save();
    const { story, state } = id === this.story.id ? this : await this.readStored(id);
    const copy = newStory({ ...story, title: `${titleOf(story)} (copy)`, when: Date.now(), file: null });
    await this.keepOther(copy, state);
    return copy.id;
  }

  /** Delete a story; if it is the one that is shown, begin a new one. Its file goes, too. Return the deleted story. */
  async delete(listed) {
    const story = await this.own(listed);
    if (story === this.story) await this.begin({});
    await this.savingToFolder;
    const { file } = story;
    await this.setFacts(story, { deleted: Date.now(), file: null });
    if (file) await this.folder.delete(file).catch(() => {}); // one that was changed elsewhere stays
    return story;
  }

  /** Bring back a deleted story. Return its id. */
  async undelete({ id }) {
    const { story, state } = await this.readStored(id);
    await this.setFacts(story, { deleted: null });
    await this.writeOther(story, state);
    return id;
  }

  /** Put the cursor into the text, except where that opens the keyboard of a touch screen. */
  focusText() {
    if (!matchMedia("(pointer: coarse)").matches) byId("text").focus({ preventScroll: true });
  }

  // Files.

  /** Open a file as a new story. */
  async read(file) {
    let found;
    try {
      found = readPlainText(file.name, await file.text()) ?? readExport(await file.text()) ?? (await this.readForeign(file));
    } catch (error) {
      throw new Error(`${file.name} cannot be opened: ${error.message}.`, { cause: error });
    }
    if (found.format === "world info") {
      this.addEntries(file.name, found);
      return;
    }
    await this.begin(found);
    if (found.preset) await this.page.settings.presets.read(file.name, JSON.stringify(found.preset));
    this.showRemarks(found.remarks ?? []);
  }

  /** Add the world info of a file to the story that is shown. */
  addEntries(name, { settings: { context: { world_info: world } }, remarks }) {
    const { context } = this.page;
    const { world_info: own, ...fields } = context.fields;
    const added = world?.entries ?? [];
    context.show({ ...fields, world_info: { ...world, ...own, entries: [...(own?.entries ?? []), ...added] } });
    context.changed();
    this.showRemarks([`${name}: world info. ${added.length === 1 ? "Its entry belongs" : `Its ${added.length} entries belong`} to this story now.`, ...remarks]);
  }

  /** Return the story of a file of another program, which the server reads. */
  async readForeign(file) {
    const response = await this.page.server.sendText(`/gen/import?user=${encodeURIComponent(this.page.view.userName)}`, file, "application/octet-stream");
    const { name, format, pieces, messages, settings: preset, remarks, ...others } = await response.json();
    const context = Object.fromEntries(CONTEXT.map((field) => [field, others[field]]).filter(([, value]) => value));
    const settings = { context, messages: (messages ?? []).map(({ role, content }) => ({ role, content })) };
    return { format, title: name ?? baseName(file.name), tree: treeOfPieces(pieces), settings, preset, remarks: [`${file.name}: ${format}.`, ...remarks] };
  }

  /** Save the story as a file of a kind. */
  async download(kind) {
    const { story, page: { writer: { tree } } } = this;
    const title = titleOf(story);
    const text = textOf(tree.current.tokens);
    const settings = this.page.settings.state();
    const make = {
      txt: () => text,
      md: () => `# ${title}\n\n${text}\n`,
      json: () => JSON.stringify(exportData(story.title, tree, settings)),
      details: () => JSON.stringify(exportData(story.title, tree, settings, { hasDetails: true })),
      koboldai: async () => (await this.page.server.send("/gen/export", { format: "koboldai", pieces: piecesOf(tree), ...settings.context })).text(),
    }[kind];
    const [ending, type] = { txt: ["txt", "text/plain"], md: ["md", "text/markdown"], json: ["json", "application/json"] }[kind] ?? [`${kind}.json`, "application/json"];
    download(await make(), `${title.replace(/[\\/:*?"<>|\u2026\s]+/g, " ").trim()}.${ending}`, type);
  }

  async saveReport() {
    const response = await this.page.server.sendLines("/gen/report", linesOf(this.page.writer.tree));
    download(await response.text(), "report.html", "text/html");
  }
}
