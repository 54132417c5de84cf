// A chat: its messages, and the text that the chat template makes of them.

import { byId } from "./web/elements.js";
import { MessageList } from "./messages.js";
import { afterPause } from "./server.js";
import { isReasoning, partsOf, textOf } from "./texts.js";

/** Return the text with which both texts begin. */
function sharedBeginning(first, second) {
  let length = 0;
  while (length < first.length && first[length] === second[length]) length += 1;
  return first.slice(0, length);
}

/** The messages, if the text is that of a chat. `page` is the page. */
export class Chat {
  constructor(page) {
    this.page = page;
    this.opening = null; // the text of the chat template before the answer; null without a template
    this.messages = new MessageList(byId("message-list"), byId("add-message"), () => this.messagesChanged());
    this.renderTemplateSoon = afterPause(300, () => page.inBackground(() => this.renderTemplate()));
    page.click("keep-answer", () => this.keepAnswer());
    byId("uses-template").addEventListener("change", () => this.toggleTemplate());
  }

  messagesChanged() {
    this.page.stories.saveSoon();
    if (byId("uses-template").checked) this.renderTemplateSoon();
  }

  toggleTemplate() {
    const isOn = byId("uses-template").checked;
    byId("chat").hidden = !isOn;
    if (isOn && !this.messages.messages.some((message) => message.role === "user")) {
      this.messages.show([...this.messages.messages, { role: "user", content: this.page.writer.tokens.some((token) => token.event === "token") ? "" : textOf(this.page.writer.tokens) }]);
    }
    this.messagesChanged();
  }

  /** Show the text that the chat template makes of the messages. */
  async renderTemplate() {
    const messages = this.messages.sent;
    if (!messages.length || this.page.writer.isWriting) return;
    const asked = messages.at(-1).role === "assistant" ? messages.slice(0, -1) : messages;
    // With a memory, even an empty one, the oldest turns are left out if there is no room for all.
    const story = { memory: "", ...this.page.context.fields, max_tokens: this.page.settings.numbers().length ?? 0 };
    const render = async (chat) => (chat.length ? (await this.page.server.json("/gen/context", { messages: chat, ...story })).prompt : "");
    const [prompt, unanswered] = await Promise.all([render(messages), render(asked)]);
    this.opening = sharedBeginning(prompt, unanswered);
    if (prompt === textOf(this.page.writer.tokens)) return;
    this.page.details.closeWhy();
    this.page.writer.endBurst();
    this.page.writer.type([]);
    this.page.writer.replace(0, 0, prompt);
    this.page.writing.showText();
    this.page.editor.moveCursor();
    await this.page.writer.tokenize();
  }

  /** Add what the model has written after the template to the messages. */
  keepAnswer() {
    const { tokens, tree } = this.page.writer;
    const first = tokens.findIndex((token) => token.event === "token");
    if (first < 0) return;
    const written = tokens.slice(first);
    const { reasoning, answer } = partsOf(written, tree.lastRun?.start?.reasoning?.tags);
    this.messages.addAnswer(answer, reasoning, written.filter(isReasoning).length);
  }
}
