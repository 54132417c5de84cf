// The connection with the server, in words: its state, and the form for its key.

import { byId } from "./web/elements.js";
import { countText } from "./web/format.js";

const STATES = {
  connecting: "connecting",
  ready: "connected",
  loading: "the model is being loaded",
  stopping: "the server is stopping",
  lost: "no connection",
  locked: "a key is needed",
};
const LOST = "The server does not answer. The text stays here; the page connects again by itself.";

/** What the page shows of the connection. `page` is the page. */
export class Connection {
  constructor(page) {
    this.page = page;
    byId("key-form").addEventListener("submit", (event) => this.useKey(event));
  }

  async became(state) {
    this.showState();
    byId("lost").hidden = state !== "lost";
    byId("lost").textContent = state === "lost" ? LOST : "";
    byId("key-form").hidden = state !== "locked";
    if (state === "locked") byId("key").focus();
    if (state === "loading" && !this.page.isLoaded) await this.page.inBackground(() => this.page.stories.preview());
    if (state !== "ready") return;
    if (!this.page.isLoaded) await this.page.load();
    else {
      this.page.writing.tokenizeSoon();
      this.page.stories.keepInFolder();
      this.page.settings.grammar.check(); // it may have been typed while the server was away
      this.page.details.updateNext.call();
    }
  }

  /** What a server that is ready does, or how the text that is shown has ended. */
  get activity() {
    const { writer: { progress, isWriting }, writing } = this.page;
    if (isWriting && progress.count) return "writing";
    if (isWriting && (progress.read || progress.since)) return "reading";
    if (writing.isStarting) return "preparing";
    return writing.isEnded ? "ended by the model" : STATES.ready;
  }

  /** Say in words what the server does, or how the text that is shown has ended. */
  showState() {
    const { state } = this.page.server;
    const { isWriting, progress } = this.page.writer;
    const words = state === "ready" ? this.activity : STATES[state];
    if (byId("state").textContent !== words) byId("state").textContent = words; // screen readers speak each change
    byId("state").dataset.state = state;
    byId("rate").textContent = isWriting ? rateText(progress) : "";
  }

  async useKey(event) {
    event.preventDefault();
    this.page.server.key = byId("key").value.trim();
    byId("key-problem").textContent = "";
    try {
      await this.page.server.json("/v1/models");
      byId("key").value = "";
      this.page.server.become("ready");
    } catch (error) {
      this.page.server.key = null;
      byId("key-problem").textContent = error.status === 401 ? "This is not the key of the server." : error.message;
      byId("key").select();
    }
  }
}

/** Return how far a generation is: the tokens of the text that are read, or the tokens that are written in a second. */
function rateText({ read, count, since }) {
  if (read) return `${countText(read[0])} of ${countText(read[1])} tokens`;
  const seconds = (performance.now() - since) / 1000;
  return count > 1 && seconds > 0 ? `${countText(count)} tokens, ${(count / seconds).toPrecision(2)} a second` : "";
}
