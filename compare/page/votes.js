// Blind votes: two texts without the names of their arms. The votes are kept in the file of the page.

import { armChoices, choice, findText, passage, unmarked } from "./texts.js";
import { byId, element } from "./web/elements.js";
import { countText, visible } from "./web/format.js";

const Z = 1.959964; // the quantile of the normal distribution for an interval of 95 %

/** Return the interval of 95 % of a share, by Wilson's formula. */
export function shareInterval(hits, count) {
  if (!count) return [0, 1];
  const share = hits / count;
  const center = share + (Z * Z) / (2 * count);
  const half = Z * Math.sqrt((share * (1 - share)) / count + (Z * Z) / (4 * count * count));
  const scale = 1 + (Z * Z) / count;
  return [Math.max((center - half) / scale, 0), Math.min((center + half) / scale, 1)];
}

/** Return a value as the text of the element that holds data, as `unpacked` reads it. */
async function packedText(value) {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** Return items in random order. */
function shuffled(items) {
  const order = [...items];
  for (let last = order.length - 1; last > 0; last -= 1) {
    const other = crypto.getRandomValues(new Uint32Array(1))[0] % (last + 1);
    [order[last], order[other]] = [order[other], order[last]];
  }
  return order;
}

/** The page of votes. A vote has `prompt, seed, arms` (left, right) and `choice`: the name of an arm, or null for a tie. */
export class VotesPage {
  constructor(result, votes, panel, source) {
    this.result = result;
    this.votes = votes;
    this.panel = panel;
    this.source = source;
    this.arms = [result.arms[0].name, result.arms[1].name];
    this.isVoting = false;
    this.hasUnsaved = false;
    window.addEventListener("beforeunload", (event) => {
      if (this.hasUnsaved) event.preventDefault();
    });
    this.showCounts();
  }

  /** Return the votes between the two chosen arms. */
  get ownVotes() {
    return this.votes.filter((vote) => [...vote.arms].sort().join("\n") === [...this.arms].sort().join("\n"));
  }

  showCounts() {
    this.isVoting = false;
    const { result, ownVotes } = this;
    const changeArm = (side) => (value) => {
      this.arms[side] = value;
      this.showCounts();
    };
    const isPair = this.arms[0] !== this.arms[1];
    this.panel.replaceChildren(
      element("h2", {}, "Blind votes"),
      element("p", {}, "Two texts of the same prompt and seed are shown in random places, without the names of their arms. Vote for the one you prefer; the names and counts are shown afterwards."),
      element("div", { class: "choices" },
        choice("One arm", armChoices(result), this.arms[0], changeArm(0)),
        choice("Other arm", armChoices(result), this.arms[1], changeArm(1))),
      element("p", { id: "vote-counts" }, isPair ? this.countsText(ownVotes) : "Choose two different arms."),
      element("div", { class: "votes" },
        element("button", { type: "button", id: "start-votes", disabled: !isPair, onclick: () => this.start() }, "Vote"),
        element("button", { type: "button", id: "save-votes", disabled: !this.votes.length, onclick: () => this.save() }, "Save the page with its votes")),
      element("p", { class: "note" }, "Votes are lost when the page is closed, unless the page is saved. They say which texts this reader prefers, of these prompts."),
    );
  }

  countsText(votes) {
    if (!votes.length) return "There are no votes between these arms.";
    const [first, second] = this.arms.map((arm) => votes.filter((vote) => vote.choice === arm).length);
    const ties = votes.length - first - second;
    const counts = `${countText(votes.length)} votes: ${countText(first)} for ${visible(this.arms[0])}, ${countText(second)} for ${visible(this.arms[1])}, ${countText(ties)} for neither.`;
    if (!(first + second)) return counts;
    const percent = (share) => (share * 100).toFixed(0);
    const [low, high] = shareInterval(first, first + second);
    const verdict = low > 0.5 ? `${visible(this.arms[0])} is preferred.` : high < 0.5 ? `${visible(this.arms[1])} is preferred.` : "No preference is shown.";
    return `${counts} Without ties, ${visible(this.arms[0])} has ${percent(first / (first + second))} % (95 % interval: ${percent(low)} to ${percent(high)} %). ${verdict}`;
  }

  start() {
    const done = new Set(this.ownVotes.map((vote) => `${vote.prompt}\n${vote.seed}`));
    const pairs = this.result.prompts.flatMap(({ id, seeds }) => seeds.map((seed) => ({ prompt: id, seed })));
    this.queue = shuffled(pairs.filter(({ prompt, seed }) => !done.has(`${prompt}\n${seed}`) && this.arms.every((arm) => findText(this.result, prompt, arm, seed))));
    this.next();
  }

  /** Show the next pair; the counts if there is none. */
  next() {
    this.pair = this.queue.pop();
    if (!this.pair) {
      this.showCounts();
      byId("status").textContent = "There is no other pair.";
      return;
    }
    this.isVoting = true;
    this.pair.arms = shuffled(this.arms);
    const { prompt, seed, arms } = this.pair;
    const texts = arms.map((arm) => unmarked(findText(this.result, prompt, arm, seed).text));
    const button = (id, key, name, action) => element("button", { type: "button", id, "aria-keyshortcuts": key, onclick: action }, `${name} `, element("kbd", {}, key));
    this.panel.replaceChildren(
      element("h2", {}, "Which text do you prefer?"),
      element("p", { class: "given" }, visible(this.result.prompts.find(({ id }) => id === prompt).text)),
      element("div", { class: "pair" }, texts.map((words, index) => element("article", {}, element("h3", {}, index ? "Right" : "Left"), passage(words)))),
      element("div", { class: "votes" },
        button("vote-left", "1", "Left", () => this.vote(arms[0])),
        button("vote-right", "2", "Right", () => this.vote(arms[1])),
        button("vote-tie", "0", "Equal", () => this.vote(null)),
        button("vote-skip", "s", "Skip", () => this.next()),
        button("vote-end", "q", "Show the counts", () => this.showCounts())),
      element("p", { class: "note" }, `${countText(this.ownVotes.length)} votes, ${countText(this.queue.length)} pairs after this one`),
    );
  }

  vote(arm) {
    this.votes.push({ ...this.pair, choice: arm });
    this.hasUnsaved = true;
    this.next();
  }

  /** Do what a key stands for. Return whether it stands for something. */
  press(key) {
    if (!this.isVoting) return false;
    const actions = { 1: "vote-left", 2: "vote-right", 0: "vote-tie", s: "vote-skip", q: "vote-end" };
    if (!(key in actions)) return false;
    byId(actions[key]).click();
    return true;
  }

  /** Save a copy of the page's file with all votes. */
  async save() {
    const data = await packedText(this.votes);
    const html = this.source.replace(/(<script type="application\/octet-stream" id="votes">)[^<]*/, (_, start) => start + data);
    const link = element("a", { href: URL.createObjectURL(new Blob([html], { type: "text/html" })), download: decodeURIComponent(location.pathname.split("/").pop()) || "report.html" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    this.hasUnsaved = false;
  }
}
