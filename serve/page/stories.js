// The stories: what the page keeps of the text, and its files.

import { byId, element } from "./web/elements.js";
import { countText } from "./web/format.js";
import { shortText } from "./branches.js";
import { download, exportText, linesOf, listenToFiles, readExport, readStored, tokensOf } from "./files.js";
import { afterPause } from "./server.js";
import { TabStore } from "./storage.js";
import { reserveUids, textOf, TextTree } from "./texts.js";

const SAVE_MILLISECONDS = 400;
const OPEN_WHILE_WRITING = "The model is writing. Stop it first.";

/** The state of the tab, and the texts of other tabs and of files. `page` is the page. */
export class Stories {
  constructor(page) {
    this.page = page;
    this.store = null;
    this.lastSaved = 0;
    this.saveSoon = afterPause(SAVE_MILLISECONDS, () => this.save());
    page.click("export", () => download(exportText(page.writer.tree, page.settings.state()), "page.json", "application/json"));
    page.click("open", () => byId("open-file").click());
    page.click("report", () => this.saveReport());
    page.click("closed-tabs", () => this.listClosedTabs());
    listenToFiles(byId("open-file"), (name, text) => page.attempt(() => this.openFile(name, text)));
    document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && this.save());
    addEventListener("pagehide", () => this.save());
  }

  /** Open the store. Return what the tab had in it; null without that. */
  async load() {
    const [store, state] = await TabStore.open();
    this.store = store;
    return state;
  }

  async save() {
    this.lastSaved = performance.now();
    if (!this.store) return;
    const { tree } = this.page.writer;
    try {
      await this.store.write({ settings: structuredClone(this.page.settings.state()), nodes: tree.asRecords(), current: tree.current.id, past: tree.past.map((node) => node.id) }, tokensOf(tree));
    } catch (error) {
      if (error?.name === "QuotaExceededError") this.page.showProblem("The browser has no room to keep this text; export it.");
      else console.error(error);
    }
  }

  restore(state) {
    for (const uid of state.tokens.keys()) reserveUids(uid);
    this.page.settings.applyState(state.settings);
    this.page.writer.tree = TextTree.fromRecords(state.nodes, state.tokens, state.current, state.past);
    this.page.writer.tree.mend();
    this.tokenizeAgain(this.page.writer.tree, state.settings.model);
    this.page.writing.movedInTree();
  }

  async openFile(name, text) {
    await this.page.loaded;
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
    if (this.page.writer.isWriting || this.page.writing.isStarting) throw new Error(OPEN_WHILE_WRITING);
    this.page.settings.applyState(settings);
    tree.mend();
    this.tokenizeAgain(tree, settings.model);
    this.page.writer.tree.graft(tree);
    this.page.writing.movedInTree();
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
      this.page.attempt(() => this.open(readStored(state)));
    };
    return element("li", {}, element("button", { type: "button", onclick: open }, element("bdi", {}, shortText(text))),
      element("span", { class: "note" }, ` ${new Date(when).toLocaleString()}, ${countText(uids.length)} tokens`));
  }

  /** Let the server tokenize texts that another model has tokenized. Ids mean nothing to a model with other tokens. */
  tokenizeAgain(tree, model) {
    if (model === undefined || model === this.page.model) return;
    tree.forgetIds();
    this.page.showProblem(`The text was written with ${model}. It is tokenized again, so that its tokens have no details.`);
  }

  async saveReport() {
    const response = await this.page.server.sendLines("/gen/report", linesOf(this.page.writer.tree));
    download(await response.text(), "report.html", "text/html");
  }
}
