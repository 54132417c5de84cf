// The messages of a chat, from which the chat template makes the text.

import { element } from "./web/elements.js";
import { thoughtName } from "./texts.js";

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

  /** The messages that have a content, as the server reads them. */
  get sent() {
    const shown = this.messages.filter(({ role, content, reasoning_content: thought }) => content !== "" || thought || role === "system");
    return shown.map((message) => ({ ...message, thoughtTokens: undefined })); // which JSON leaves out
  }

  /** Add the answer of the model, with the reasoning before it. */
  addAnswer(content, reasoning, thoughtTokens) {
    this.messages.push({ role: "assistant", content, ...(reasoning ? { reasoning_content: reasoning, thoughtTokens } : {}) });
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
    const content = this.field(message, "content", `Message ${index + 1}`);
    const thought = message.reasoning_content === undefined ? null : element("details", {},
      element("summary", {}, thoughtName(message.thoughtTokens ?? 0)), this.field(message, "reasoning_content", `Thought of message ${index + 1}`));
    const remove = element("button", { type: "button", class: "small", "aria-label": `Remove message ${index + 1}`, onclick: () => {
      this.messages.splice(index, 1);
      this.render();
      this.changed();
    } }, "\u00d7");
    return element("li", { class: "message" }, element("div", { class: "message-head" }, role, remove), thought, content);
  }

  /** Return the field for a text of a message. */
  field(message, name, label) {
    const field = element("textarea", { rows: "2", "aria-label": label });
    field.value = message[name];
    field.addEventListener("input", () => {
      message[name] = field.value;
      this.changed();
    });
    return field;
  }
}
