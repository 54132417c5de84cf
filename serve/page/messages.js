// The messages of a chat, from which the chat template makes the text.

import { element } from "./web/elements.js";

const ROLES = ["system", "user", "assistant"];

/** The list of messages. `changed` is called when a person has changed it. */
export class MessageList {
  constructor(list, addButton, changed) {
    this.list = list;
    this.changed = changed;
    this.messages = [];
    addButton.addEventListener("click", () => {
      const last = this.messages.at(-1)?.role;
      this.messages.push({ role: last === "user" ? "assistant" : "user", content: "" });
      this.render();
      this.list.lastElementChild.querySelector("textarea").focus();
      this.changed();
    });
  }

  show(messages) {
    this.messages = messages.map((message) => ({ ...message }));
    this.render();
  }

  /** Add the answer of the model. */
  addAnswer(content) {
    this.messages.push({ role: "assistant", content });
    this.render();
    this.changed();
  }

  render() {
    this.list.replaceChildren(...this.messages.map((message, index) => this.item(message, index)));
  }

  item(message, index) {
    const role = element("select", { "aria-label": `Role of message ${index + 1}` }, ROLES.map((name) => element("option", { value: name }, name)));
    role.value = message.role;
    role.addEventListener("change", () => {
      message.role = role.value;
      this.changed();
    });
    const content = element("textarea", { rows: "2", "aria-label": `Message ${index + 1}` });
    content.value = message.content;
    content.addEventListener("input", () => {
      message.content = content.value;
      this.changed();
    });
    const remove = element("button", { type: "button", class: "small", "aria-label": `Remove message ${index + 1}`, onclick: () => {
      this.messages.splice(index, 1);
      this.render();
      this.changed();
    } }, "\u00d7");
    return element("li", { class: "message" }, element("div", { class: "message-head" }, role, remove), content);
  }
}
