// The list of stories: those of the browser, and those that are only in the folder of the server.

import { byId, element } from "./web/elements.js";
import { countText, visible } from "./web/format.js";

const MAX_TITLE = 50;

/** Return the title of a story: the one that a person gave it, or the beginning of its text. */
export function titleOf({ title, text }) {
  if (title) return title;
  const line = text.trim().split("\n", 1)[0];
  return line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE)}\u2026` : line || "Untitled";
}

/** The dialog "Stories". `stories` does what a person wants. */
export class StoryList {
  constructor(stories) {
    this.stories = stories;
    this.page = stories.page;
    this.found = []; // the stories of the browser and of the folder
    this.last = null; // the story that the button "Continue" opens
    this.page.click("stories", () => this.open());
    this.page.click("new-story", () => this.leave(() => stories.begin({})));
    this.page.click("continue-story", () => this.leave(() => stories.open(this.last.id)));
    byId("story-search").addEventListener("input", () => this.search());
  }

  async open() {
    byId("story-search").value = "";
    this.tell("");
    byId("stories-dialog").showModal();
    await this.stories.save();
    await this.load();
  }

  async load() {
    const { store, folder, story } = this.stories;
    const [kept, files, taken] = await Promise.all([this.stories.listStories(), folder.list().catch(() => []), store.taken()]);
    const known = new Set(kept.filter(({ deleted }) => !deleted).map(({ file }) => file?.name));
    const others = files.filter(({ name }) => !known.has(name)).map(({ name, words, modified }) => ({ fileName: name, title: name, text: null, words, when: modified * 1000, deleted: null }));
    const shown = kept.map((other) => (other.id === story.id ? story : { ...other, isTaken: taken.has(other.id) }));
    this.found = [...shown, ...others].filter((other) => !other.isEmpty || other.title || other === story).toSorted((first, second) => second.when - first.when);
    await this.search();
  }

  /** Show the stories that have the words of the search. Texts that are only in the folder are read for it. */
  async search() {
    this.render();
    if (!byId("story-search").value.trim()) return;
    const unread = this.found.filter(({ fileName, words, text }) => fileName && words !== null && text === null);
    await Promise.all(unread.map(async (story) => {
      story.text = ""; // is read once
      story.text = (await this.stories.folder.read(story.fileName).catch(() => story)).text;
    }));
    if (unread.length) this.render();
  }

  render() {
    const wanted = byId("story-search").value.trim().toLowerCase();
    const matches = this.found.filter(({ title, text }) => `${title ?? ""}\n${text ?? ""}`.toLowerCase().includes(wanted));
    const deleted = matches.filter((story) => story.deleted);
    const stories = matches.filter((story) => !story.deleted);
    byId("story-list").replaceChildren(...stories.map((story) => this.item(story)));
    byId("deleted-list").replaceChildren(...deleted.map((story) => this.deletedItem(story)));
    byId("deleted").hidden = deleted.length === 0;
    byId("no-story").hidden = stories.length > 0;
  }

  item(story) {
    const title = visible(titleOf(story));
    const isShown = story === this.stories.story;
    const facts = [story.words === null ? "not readable" : `${countText(story.words)} ${story.words === 1 ? "word" : "words"}`, new Date(story.when).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })];
    if (story.fileName) facts.push("in the folder only");
    if (this.stories.isOnlyInTab(story)) facts.push("in this tab only");
    if (story.isTaken && !isShown) facts.push("open in another tab");
    const name = element("button", { type: "button", class: "word", "data-id": story.id ?? null, "aria-current": isShown ? "true" : null, onclick: () => this.leave(() => (story.fileName ? this.stories.openFile(story.fileName) : this.stories.open(story.id))) }, element("bdi", {}, title));
    const action = (words, act) => element("button", { type: "button", class: "small", "aria-label": `${words} ${title}`, onclick: () => this.page.attempt(act) }, words);
    const isFree = isShown || !story.isTaken;
    return element("li", {}, element("div", { class: "story-name" }, name, element("span", { class: "note" }, facts.join(" \u00b7 "))),
      isFree ? action("Rename", () => this.askForTitle(story, name)) : "",
      action("Duplicate", () => this.act(() => this.stories.duplicate(story))),
      isFree ? action("Delete", () => this.delete(story)) : "");
  }

  deletedItem(story) {
    const title = visible(titleOf(story));
    return element("li", {}, element("bdi", { class: "story-name" }, title),
      element("button", { type: "button", class: "small", "aria-label": `Restore ${title}`, onclick: () => this.page.attempt(() => this.act(() => this.stories.undelete(story))) }, "Restore"));
  }

  /** Let a person type a title in the place of the old one. */
  askForTitle(story, button) {
    const field = element("input", { type: "text", "aria-label": "New title", value: story.title ?? "", placeholder: titleOf(story), maxlength: "200" });
    let hasEnded = false;
    const end = (isWanted) => {
      if (hasEnded) return; // a field that is removed loses the focus
      hasEnded = true;
      field.replaceWith(button);
      if (isWanted) this.page.attempt(() => this.act(() => this.stories.rename(story, field.value)));
      else button.focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      end(event.key === "Enter");
    });
    field.addEventListener("blur", () => end(true));
    button.replaceWith(field);
    field.focus();
    field.select();
  }

  /** Do something that returns the id of a story. That story gets the focus if its button is gone. */
  async act(work) {
    let id;
    try {
      id = await work();
    } finally {
      await this.load();
    }
    if (document.activeElement === document.body) byId("story-list").querySelector(`[data-id="${id}"]`)?.focus();
  }

  async delete(listed) {
    let story;
    await this.act(async () => { story = await this.stories.delete(listed); });
    this.tell(`\u201c${titleOf(story)}\u201d is deleted. `, element("button", { type: "button", id: "undelete", onclick: () => this.page.attempt(async () => {
      this.tell("");
      await this.act(() => this.stories.undelete(story));
      this.tell(`\u201c${titleOf(story)}\u201d is back.`);
    }) }, "Undo"));
    if (document.activeElement === document.body) byId("undelete").focus(); // a person may be typing by now
  }

  tell(sentence, ...others) {
    byId("story-note").replaceChildren(visible(sentence), ...others);
  }

  /** Close the list, and show another story. */
  async leave(show) {
    byId("stories-dialog").close();
    const focused = document.activeElement;
    await this.page.attempt(show);
    if (document.activeElement === focused) this.stories.focusText(); // else a person has gone on elsewhere
  }

  /** Offer the story that was open last, if the tab has no text. */
  async offerLast() {
    const { store, story } = this.stories;
    const button = byId("continue-story");
    button.hidden = true;
    if (this.page.writer.tokens.length || !store) return;
    const taken = await store.taken();
    const last = (await store.list()).find((other) => other.words && !other.deleted && !taken.has(other.id));
    if (!last || this.stories.story !== story) return;
    button.hidden = false;
    button.replaceChildren("Continue ", element("bdi", {}, visible(titleOf(last))));
    this.last = last;
  }
}
