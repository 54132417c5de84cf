// The state of the page, and the reactions to the reader's clicks and keys.

import { makeTimeline } from "./web/charts.js";
import { byId, element } from "./web/elements.js";
import { countText, probabilityText, quoted, visible } from "./web/format.js";
import { unpacked } from "./web/packed.js";
import { changeTheme } from "./web/theme.js";
import { TokenPanel } from "./web/token_panel.js";
import { Keyboard } from "./keys.js";
import { runPanel } from "./run_panel.js";
import { firstDifference, havePromptInCommon, Run } from "./runs.js";
import { Search } from "./search.js";
import { TextView, tokenOnNextLine } from "./text_view.js";

const MAX_INITIAL_COLUMNS = 4;

/** The page: columns of runs, the selected token, and the panel with its details. */
class Report {
  constructor(index) {
    this.index = index;
    this.loaded = new Map();
    this.columns = []; // for each column: run, view and timeline
    this.active = 0; // index of the column with the selected token
    this.token = 0; // index of the selected token in its run
    this.sharedTokens = 0; // number of tokens after the prompt that all runs begin with
    this.tokenPanel = new TokenPanel(byId("token"), (token) => this.select(this.active, token));
    this.search = new Search(this);
    this.keyboard = new Keyboard(this);
    this.listen();
  }

  /** Return a run; load it at the first call. */
  async run(number) {
    if (!this.loaded.has(number)) this.loaded.set(number, Run.load(number));
    return this.loaded.get(number);
  }

  /** Show runs next to each other. `numbers` are indices of runs. */
  async show(numbers) {
    const runs = await Promise.all(numbers.map((number) => this.run(number)));
    this.active = Math.min(this.active, runs.length - 1);
    const difference = runs.length > 1 && havePromptInCommon(runs) ? firstDifference(runs) : 0;
    this.difference = runs.length > 1 ? difference : null;
    this.sharedTokens = difference ?? Math.min(...runs.map((run) => run.length - run.promptTokens));
    if (runs.length === 1) this.sharedTokens = 0;
    const headers = byId("column-headers");
    const texts = byId("columns");
    for (const grid of [headers, texts]) {
      grid.replaceChildren();
      grid.style.setProperty("--columns", String(runs.length));
    }
    this.columns = runs.map((run, column) => this.makeColumn(run, column, headers, texts));
    this.showShared();
    byId("next-difference").hidden = runs.length < 2;
    byId("next-dropped").hidden = !runs.some((run) => run.hasTrace);
    byId("legend-dropped").hidden = byId("next-dropped").hidden;
    byId("legend-returned").hidden = runs.every((run) => !Object.keys(run.returns).length);
    const title = this.index.length === 1 ? visible(runs[0].name) : `${countText(this.index.length)} runs`;
    byId("title").textContent = title;
    document.title = `${title} – gen inspect`;
    this.search.mark(byId("query").value);
  }

  makeColumn(run, column, headers, texts) {
    const timeline = makeTimeline(run, (token) => this.select(column, token));
    headers.append(element("div", { class: "column-header" }, this.runChooser(run, column), timeline.chart));
    const container = element("div", { class: "text", role: "listbox", tabindex: "0" });
    const ending = run.isCutOff ? element("p", { class: "note cut-off" }, "The run was cut off here: its record does not end with a “done” line.") : null;
    texts.append(element("div", { class: "column" }, container, ending));
    const first = this.sharedTokens ? this.sharedTokens + run.promptTokens : 0;
    const view = new TextView(container, run, first, run.length, `c${column}`);
    container.addEventListener("click", (event) => this.clicked(event, column));
    return { run, view, timeline };
  }

  /** Return the header of a column: a summary of the run, and a choice of runs if there are several. */
  runChooser(run, column) {
    if (this.index.length === 1) return element("p", { class: "note" }, runSummary(run));
    const choice = element("select", { "aria-label": `Run of column ${column + 1}` },
      this.index.map((entry, number) => element("option", { value: number, selected: number === run.number }, visible(entry.name))));
    choice.addEventListener("change", () => {
      const numbers = this.columns.map((other) => other.run.number);
      numbers[column] = Number(choice.value);
      this.change(numbers);
    });
    const buttons = element("span", { class: "buttons" },
      element("button", { type: "button", "aria-label": "Show another run next to this one", title: "Show another run next to this one", onclick: () => this.addColumn(column) }, "+"),
      element("button", { type: "button", class: "remove", "aria-label": "Remove this column", title: "Remove this column", onclick: () => this.removeColumn(column) }, "\u00d7"));
    return element("div", { class: "chooser" }, choice, buttons, element("p", { class: "note" }, runSummary(run)));
  }

  addColumn(column) {
    const numbers = this.columns.map((other) => other.run.number);
    const unused = this.index.findIndex((_, number) => !numbers.includes(number));
    numbers.splice(column + 1, 0, Math.max(unused, 0));
    this.change(numbers);
  }

  removeColumn(column) {
    const numbers = this.columns.map((other) => other.run.number);
    if (numbers.length > 1) numbers.splice(column, 1);
    this.change(numbers);
  }

  async change(numbers) {
    await this.show(numbers);
    this.select(this.active, this.token);
  }

  /** Show the tokens that all runs begin with once, above the columns. */
  showShared() {
    const { run } = this.columns[this.active];
    const end = this.sharedTokens ? run.promptTokens + this.sharedTokens : 0;
    const shared = byId("shared");
    this.shared = new TextView(shared, run, 0, end, "shared");
    const note = byId("shared-note");
    note.hidden = this.columns.length < 2;
    note.textContent = this.difference === null ? "The runs are the same."
      : end ? `The same in all runs up to here: ${countText(this.sharedTokens)} tokens.` : "The runs differ from their first token.";
    for (const { view } of this.columns) view.container.hidden = view.spans.length === 0;
  }

  /** Return the view that shows a token: the view of the shared tokens, or the view of the column. */
  view(column, token) {
    return this.shared.has(token) ? this.shared : this.columns[column].view;
  }

  /** Select a token: mark it, scroll to it, and show its details in the panel. */
  select(column, token, { focus = true } = {}) {
    const { run } = this.columns[column];
    if (!run.length) return this.showRunPanel();
    if (column !== this.active) {
      this.active = column;
      if (this.sharedTokens) this.showShared();
      this.search.mark(byId("query").value, false);
    }
    this.token = Math.max(0, Math.min(token, run.length - 1));
    for (const old of document.querySelectorAll(".t.selected")) {
      old.classList.remove("selected");
      old.setAttribute("aria-selected", "false");
    }
    const view = this.view(column, this.token);
    const span = view.span(this.token);
    span.classList.add("selected");
    span.setAttribute("aria-selected", "true");
    span.setAttribute("aria-label", spokenToken(run, this.token));
    view.container.setAttribute("aria-activedescendant", span.id);
    span.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (focus && !byId("query").matches(":focus")) view.container.focus({ preventScroll: true });
    else byId("status").textContent = spokenToken(run, this.token);
    this.columns.forEach(({ timeline, run: other }, number) => timeline.mark(number === column ? this.token : Math.min(this.token, other.length - 1)));
    byId("columns").childNodes.forEach((node, number) => node.classList.toggle("active", number === column));
    byId("column-headers").childNodes.forEach((node, number) => node.classList.toggle("active", number === column));
    if (this.runInPanel !== run) this.fillRunPanel(run);
    return this.tokenPanel.show(run, this.token);
  }

  fillRunPanel(run) {
    this.runInPanel = run;
    byId("run").replaceChildren(...runPanel(run, (token) => {
      this.select(this.active, token);
      this.openTab("token");
    }).filter(Boolean));
  }

  showRunPanel() {
    byId("token").replaceChildren(element("p", { class: "note" }, "The run has no tokens."));
    this.fillRunPanel(this.columns[this.active].run);
    this.openTab("run");
  }

  openTab(name) {
    for (const tab of ["token", "run"]) {
      byId(tab).hidden = tab !== name;
      byId(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
      byId(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
    }
  }

  /**
   * Select the next token of a list (`step` 1) or the previous one (-1). After the last token comes the first one.
   * If the list is empty, a screen reader says that there is no token of this description.
   */
  jump(indices, step, description) {
    if (!indices.length) return this.announce(`There is no ${description}.`);
    const next = step > 0 ? indices.find((index) => index > this.token) ?? indices[0]
      : indices.findLast((index) => index < this.token) ?? indices[indices.length - 1];
    this.openTab("token");
    return this.select(this.active, next);
  }

  /** Let screen readers say a text. */
  announce(text) {
    byId("status").textContent = text;
  }

  nextSurprise(step) {
    this.jump(this.columns[this.active].run.surprises, step, "token with a logprob");
  }

  nextDropped(step) {
    this.jump(this.columns[this.active].run.droppedTopIndices, step, "token for which a step dropped the most likely one");
  }

  nextDifference() {
    if (this.columns.length < 2 || this.difference === null) return this.announce("The runs are the same.");
    const { run } = this.columns[this.active];
    return this.select(this.active, this.difference + run.promptTokens);
  }

  /** Select the token at the same position in the column to the right (`step` 1) or to the left (-1). */
  moveToColumn(step) {
    const column = this.active + step;
    if (column < 0 || column >= this.columns.length) return;
    const { promptTokens } = this.columns[this.active].run;
    this.select(column, this.token - promptTokens + this.columns[column].run.promptTokens);
  }

  /** Select the nearest token in the next line (`step` 1) or the previous one (-1). */
  moveToLine(step) {
    const view = this.view(this.active, this.token);
    const position = tokenOnNextLine(view.spans, this.token - view.first, step);
    if (position !== this.token - view.first) this.select(this.active, view.first + position);
    else this.select(this.active, this.token + step);
  }

  clicked(event, column) {
    const span = event.target.closest(".t");
    if (!span) return;
    this.openTab("token");
    this.select(column, span.tokenIndex);
  }

  listen() {
    const click = (id, action) => byId(id).addEventListener("click", action);
    click("next-surprise", () => this.nextSurprise(1));
    click("next-dropped", () => this.nextDropped(1));
    click("next-difference", () => this.nextDifference());
    click("theme", changeTheme);
    click("help", () => byId("help-dialog").showModal());
    click("tab-token", () => this.openTab("token"));
    click("tab-run", () => this.openTab("run"));
    click("shared", (event) => this.clicked(event, this.active));
    byId("query").addEventListener("input", () => this.search.mark(byId("query").value));
    byId("search").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => this.keyboard.handle(event));
  }
}

/** Return model, seed and length of a run in one line. */
function runSummary(run) {
  const seed = run.seed === null ? "" : `, seed ${run.seed}`;
  return `${visible(String(run.model))}${seed} · ${countText(run.length)} tokens${run.isCutOff ? " (cut off)" : ""}`;
}

/** Return a description of a token for screen readers. */
function spokenToken(run, index) {
  const logprob = run.logprobs[index];
  const probability = logprob === null ? "" : `, probability ${probabilityText(Math.exp(logprob))}`;
  const dropped = run.droppedTop[index];
  const drop = dropped ? `, the most likely token, ${quoted(run.contentOf(dropped[0]))}, was dropped by ${visible(dropped[1])}` : "";
  return `${quoted(run.contentAt(index))}, ${run.positionText(index)}${probability}${drop}`;
}

/** Unpack the index, and show the first runs. */
async function open() {
  if (typeof DecompressionStream === "undefined") throw new Error("it is too old to unpack the data (DecompressionStream)");
  const index = await unpacked("index");
  const report = new Report(index);
  const count = index.length <= MAX_INITIAL_COLUMNS ? index.length : 1;
  await report.show(Array.from({ length: count }, (_, number) => number));
  await report.select(0, 0, { focus: false });
  document.documentElement.dataset.state = "ready";
}

open().catch((error) => {
  byId("token").replaceChildren(element("p", { class: "failure" }, `This browser cannot show the report: ${error.message}`));
  document.documentElement.dataset.state = "failed";
});
