// Two texts side by side, with the words marked that only one of them has.

import { element } from "./web/elements.js";
import { countText, visible } from "./web/format.js";

const MAX_WORDS = 3000;
const MIN_COMMON_SHARE = 0.3; // below, nearly all words would be marked

/** Return the words of a text with the spaces before them. */
function wordsOf(text) {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}

/** Return the words of each text, and whether the other text has them, too, in the same order. */
export function wordDifferences(first, second) {
  const a = wordsOf(first);
  const b = wordsOf(second);
  if (a.length > MAX_WORDS || b.length > MAX_WORDS) return [a, b].map((words) => words.map((word) => ({ word, isCommon: true })));
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const isEqual = a[i].trim() === b[j].trim();
      lengths[i * width + j] = isEqual ? 1 + lengths[(i + 1) * width + j + 1] : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const common = [new Set(), new Set()];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i].trim() === b[j].trim()) {
      common[0].add(i);
      common[1].add(j);
      i += 1;
      j += 1;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return [a, b].map((words, side) => words.map((word, index) => ({ word, isCommon: common[side].has(index) })));
}

/** Return the paragraph of a text. Words that the other text does not have are marked. */
export function passage(words) {
  return element("p", { class: "passage" }, words.map(({ word, isCommon }) => {
    const space = word.match(/^\s*/)[0];
    return isCommon || !word.trim() ? visible(word) : [space, element("mark", { class: "only" }, visible(word.slice(space.length)))];
  }));
}

/** Return the words of a text without marks. */
export function unmarked(text) {
  return wordsOf(text).map((word) => ({ word, isCommon: true }));
}

/** Return the text of an arm, prompt and seed; undefined if there is none. */
export function findText(result, prompt, arm, seed) {
  return result.texts.find((text) => text.prompt === prompt && text.arm === arm && text.seed === seed);
}

/** Return a choice with a label. */
export function choice(label, values, selected, changed) {
  const list = element("select", {}, values.map(([value, name]) => element("option", { value, selected: value === selected }, name)));
  list.addEventListener("change", () => changed(list.value));
  return element("label", {}, label, list);
}

/** The names of all arms, as the values of a choice. */
export function armChoices(result) {
  return result.arms.map((arm) => [arm.name, visible(arm.name)]);
}

/** The page of pairs. */
export class TextsPage {
  constructor(result, panel) {
    this.result = result;
    this.panel = panel;
    this.arms = [result.arms[0].name, result.arms[1].name];
    this.prompt = result.prompts[0].id;
    this.seed = result.prompts[0].seeds[0];
  }

  show() {
    const { result } = this;
    const { seeds } = result.prompts.find((prompt) => prompt.id === this.prompt);
    const changeSeed = (value) => {
      this.seed = Number(value);
      this.show();
    };
    const changePrompt = (value) => {
      const number = seeds.indexOf(this.seed);
      this.prompt = value;
      this.seed = result.prompts.find((prompt) => prompt.id === value).seeds[number];
      this.show();
    };
    const changeArm = (side) => (value) => {
      this.arms[side] = value;
      this.show();
    };
    const prompts = result.prompts.map((prompt) => [prompt.id, `${prompt.id}: ${visible(prompt.text).slice(0, 60)}`]);
    const texts = this.arms.map((arm) => findText(result, this.prompt, arm, this.seed));
    const words = wordDifferences(texts[0]?.text ?? "", texts[1]?.text ?? "");
    const common = words[0].filter((word) => word.isCommon).length;
    const isMarked = common >= MIN_COMMON_SHARE * Math.max(...words.map((side) => side.length));
    this.panel.replaceChildren(
      element("h2", {}, "Texts of one prompt and seed"),
      element("div", { class: "choices" },
        choice("Prompt", prompts, this.prompt, changePrompt),
        choice("Seed", seeds.map((seed) => [String(seed), String(seed)]), String(this.seed), changeSeed),
        choice("Left", armChoices(result), this.arms[0], changeArm(0)),
        choice("Right", armChoices(result), this.arms[1], changeArm(1))),
      element("p", { class: "given" }, visible(result.prompts.find((prompt) => prompt.id === this.prompt).text)),
      element("div", { class: "pair" }, texts.map((text, side) => element("article", {},
        element("h3", {}, visible(this.arms[side])),
        text ? passage(isMarked ? words[side] : unmarked(text.text)) : element("p", { class: "note" }, "There is no such text."),
        text ? element("p", { class: "note" }, `${countText(text.tokens)} tokens, ended by ${text.finish_reason}`) : null))),
      element("p", { class: "note" }, isMarked ? "Words that only one text has are marked." : "The texts have few words in common; differences are not marked."),
    );
  }
}
