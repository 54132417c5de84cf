// The page: its parts, each of which has a topic, and what concerns them all.

import { byId } from "./web/elements.js";
import { visible } from "./web/format.js";
import { changeTheme, showTheme } from "./web/theme.js";
import { Chat } from "./chat.js";
import { Comparison } from "./compare.js";
import { Connection } from "./connection.js";
import { StoryContext } from "./context.js";
import { DecidePanel } from "./decide.js";
import { Details } from "./details.js";
import { Editor } from "./editor.js";
import { listenToKeys } from "./keys.js";
import { RequestError, Server } from "./server.js";
import { Settings } from "./settings.js";
import { Stories } from "./stories.js";
import { TokenStrip } from "./strip.js";
import { View } from "./view.js";
import { Writer } from "./writer.js";
import { Writing } from "./writing.js";

const LOAD_AGAIN_MILLISECONDS = 2000;
const THEME_NAME = "gen-theme";

class Page {
  constructor() {
    this.isLoaded = false;
    this.isLoading = false;
    this.fileRead = new Promise((resolve) => { this.finishLoading = resolve; }); // the next file waits for it
    this.server = new Server((state) => this.connection.became(state));
    this.writer = new Writer(this.server, { settings: () => this.settings.read(), shown: () => this.writing.showText(), grown: () => this.writing.growSoon() });
    const openWhy = (index) => this.details.openWhy(index);
    this.editor = new Editor(byId("text"), byId("mirror"), new TokenStrip(byId("tokens"), byId("thought"), openWhy), {
      edited: (start, end, text) => this.writing.edited(start, end, text),
      moved: () => this.writing.cursorMoved(),
      pressed: openWhy,
    });
    this.view = new View(byId("text"), () => this.details.updateNext.call());
    this.connection = new Connection(this);
    this.context = new StoryContext(this);
    this.settings = new Settings(this);
    this.writing = new Writing(this);
    this.details = new Details(this);
    this.chat = new Chat(this);
    this.comparison = new Comparison(this);
    this.stories = new Stories(this);
    this.decisions = new DecidePanel(this.server, () => this.stories.saveSoon());
    showTheme(localStorage.getItem(THEME_NAME));
    this.click("stop", () => this.stop());
    this.click("decide", () => this.decisions.decide(this.editor.area.value));
    this.click("theme", () => localStorage.setItem(THEME_NAME, changeTheme()));
    this.click("help", () => this.showHelp());
    this.click("ask-why", () => this.editor.toggleAsking(byId("ask-why")));
    listenToKeys(this);
    this.enable(false);
    this.server.start();
  }

  /** Let a button run an action; show the sentence of an error. */
  click(id, action) {
    byId(id).addEventListener("click", () => this.attempt(action));
  }

  /** Let a person use the controls that need the lists of the server, or not. */
  enable(isEnabled) {
    for (const control of document.querySelectorAll("header :is(button, input), main :is(button, input, select, textarea)")) {
      if (!["theme", "help", "calm", "font", "size", "width", "spelling"].includes(control.id) && control.type !== "file") control.disabled = !isEnabled;
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
      this.writer.contextLength = models.data[0].meta.n_ctx;
      byId("model").textContent = this.model;
      byId("model").title = this.model;
      document.title = `${this.model} \u2013 gen serve`;
      this.settings.load(samplers.samplers, presets.presets, grammars.grammars, chain);
      this.showProblem("");
      const story = await this.stories.load();
      this.isLoaded = true;
      this.enable(true);
      this.writing.showText();
      if (story) await this.attempt(() => this.stories.restore(story));
      if (document.activeElement === document.body) this.stories.focusText();
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

  /** Read a file, after those that a person has chosen before, and after the lists of the server. */
  async readInTurn(read) {
    const isRead = this.fileRead.then(read);
    this.fileRead = isRead.catch(() => {}); // the caller shows it
    return isRead;
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
    if (error instanceof RequestError && error.body?.error?.param === "chain") this.settings.chain?.reject(error.message);
    if (error.status !== 401 && this.server.state !== "lost") this.showProblem(error.message);
    if (error.name !== "Error" && !(error instanceof RequestError) && this.server.state !== "lost") console.error(error);
  }

  showProblem(message) {
    byId("problem").textContent = visible(message);
    byId("problem").hidden = !message;
  }

  announce(text) {
    byId("status").textContent = text;
  }

  stop() {
    this.writing.stopStarting?.();
    this.writer.stop();
    this.comparison.comparing?.abort();
  }

  stopOrClose() {
    if (this.writer.isWriting || this.writing.isStarting || this.comparison.comparing) this.stop();
    else this.details.closeWhy();
  }

  showHelp() {
    byId("help-dialog").showModal();
  }
}

window.page = new Page();
