// The page's state, and what the reader does with it.

const MOST_COLUMNS_AT_FIRST = 4;
const THEMES = ["light dark", "light", "dark"];

class Report {
  constructor(index) {
    this.index = index;
    this.loaded = new Map();
    this.columns = []; // of each column: its run, its view, its timeline
    this.active = 0;
    this.token = 0;
    this.sharedTokens = 0;
    this.tokenPanel = new TokenPanel(byId("token"), (token) => this.select(this.active, token));
    this.search = new Search(this);
    this.keyboard = new Keyboard(this);
    this.listen();
  }

  async run(number) {
    if (!this.loaded.has(number)) this.loaded.set(number, Run.load(number));
    return this.loaded.get(number);
  }

  /** Show these runs side by side. */
  async show(numbers) {
    const runs = await Promise.all(numbers.map((number) => this.run(number)));
    this.active = Math.min(this.active, runs.length - 1);
    const difference = runs.length > 1 && havePromptInCommon(runs) ? firstDifference(runs) : 0;
    this.difference = runs.length > 1 ? difference : null;
    this.sharedTokens = difference ?? Math.min(...runs.map((run) => run.length - run.promptTokens));
    if (runs.length === 1) this.sharedTokens = 0;
    const heads = byId("heads");
    const texts = byId("columns");
    for (const grid of [heads, texts]) {
      grid.replaceChildren();
      grid.style.setProperty("--columns", String(runs.length));
    }
    this.columns = runs.map((run, column) => this.makeColumn(run, column, heads, texts));
    this.showShared();
    byId("next-difference").hidden = runs.length < 2;
    byId("next-fallen").hidden = !runs.some((run) => run.hasTrace);
    byId("legend-fallen").hidden = byId("next-fallen").hidden;
    const title = this.index.length === 1 ? visible(runs[0].name) : `${countText(this.index.length)} runs`;
    byId("title").textContent = title;
    document.title = `${title} – gen inspect`;
    this.search.mark(byId("query").value);
  }

  makeColumn(run, column, heads, texts) {
    const line = timeline(run, (token) => this.select(column, token));
    heads.append(element("div", { class: "head" }, this.runChooser(run, column), line.chart));
    const container = element("div", { class: "text", role: "listbox", tabindex: "0" });
    const ending = run.isCutOff ? element("p", { class: "note cut-off" }, "The run was cut off here: its record does not end with a “done” line.") : null;
    texts.append(element("div", { class: "column" }, container, ending));
    const first = this.sharedTokens ? this.sharedTokens + run.promptTokens : 0;
    const view = new TextView(container, run, first, run.length, `c${column}`);
    container.addEventListener("click", (event) => this.clicked(event, column));
    return { run, view, line };
  }

  /** What stands above a column: the run's name, or a choice of runs. */
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
      element("button", { type: "button", "aria-label": "Show another run beside it", title: "Another run beside it", onclick: () => this.addColumn(column) }, "+"),
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

  /** The tokens that all runs begin with stand once, above the columns. */
  showShared() {
    const { run } = this.columns[this.active];
    const end = this.sharedTokens ? run.promptTokens + this.sharedTokens : 0;
    const shared = byId("shared");
    this.shared = new TextView(shared, run, 0, end, "shared");
    const words = byId("shared-note");
    words.hidden = this.columns.length < 2;
    words.textContent = this.difference === null ? "The runs are the same."
      : end ? `The same in all runs up to here: ${countText(this.sharedTokens)} tokens.` : "The runs differ from the first token on.";
    for (const { view } of this.columns) view.container.hidden = view.spans.length === 0;
  }

  view(column, token) {
    return this.shared.has(token) ? this.shared : this.columns[column].view;
  }

  /** Choose a token: mark it, bring it into view, and fill the panel. */
  select(column, token, { focus = true } = {}) {
    const { run } = this.columns[column];
    if (!run.length) return this.showRun();
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
    this.columns.forEach(({ line, run: other }, number) => line.mark(number === column ? this.token : Math.min(this.token, other.length - 1)));
    byId("columns").childNodes.forEach((node, number) => node.classList.toggle("active", number === column));
    byId("heads").childNodes.forEach((node, number) => node.classList.toggle("active", number === column));
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

  showRun() {
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

  /** Go to the next of these indices, or the one before; around the end. */
  jump(indices, step, words) {
    if (!indices.length) return this.say(`There is no ${words}.`);
    const next = step > 0 ? indices.find((index) => index > this.token) ?? indices[0]
      : indices.findLast((index) => index < this.token) ?? indices[indices.length - 1];
    this.openTab("token");
    return this.select(this.active, next);
  }

  say(text) {
    byId("status").textContent = text;
  }

  nextSurprise(step) {
    this.jump(this.columns[this.active].run.surprises, step, "token with a logprob");
  }

  nextFallen(step) {
    this.jump(this.columns[this.active].run.fallenAt, step, "token whose likeliest was dropped");
  }

  nextDifference() {
    if (this.columns.length < 2 || this.difference === null) return this.say("The runs are the same.");
    const { run } = this.columns[this.active];
    return this.select(this.active, this.difference + run.promptTokens);
  }

  otherColumn(step) {
    const column = this.active + step;
    if (column < 0 || column >= this.columns.length) return;
    const from = this.columns[this.active].run.promptTokens;
    this.select(column, this.token - from + this.columns[column].run.promptTokens);
  }

  otherLine(step) {
    const view = this.view(this.active, this.token);
    const position = tokenOnNextLine(view.spans, this.token - view.first, step);
    if (position !== this.token - view.first) this.select(this.active, view.first + position);
    else this.select(this.active, this.token + step);
  }

  changeTheme() {
    const root = document.documentElement;
    const next = (THEMES.indexOf(root.dataset.theme ?? THEMES[0]) + 1) % THEMES.length;
    root.dataset.theme = THEMES[next];
    root.style.colorScheme = THEMES[next];
    byId("theme").textContent = ["Theme", "Light", "Dark"][next];
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
    click("next-fallen", () => this.nextFallen(1));
    click("next-difference", () => this.nextDifference());
    click("theme", () => this.changeTheme());
    click("help", () => byId("help-dialog").showModal());
    click("tab-token", () => this.openTab("token"));
    click("tab-run", () => this.openTab("run"));
    click("shared", (event) => this.clicked(event, this.active));
    byId("query").addEventListener("input", () => this.search.mark(byId("query").value));
    byId("search").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => this.keyboard.pressed(event));
  }
}

function runSummary(run) {
  const seed = run.seed === null ? "" : `, seed ${run.seed}`;
  return `${visible(String(run.model))}${seed} · ${countText(run.length)} tokens${run.isCutOff ? " (cut off)" : ""}`;
}

/** A token in words, for those who hear the page. */
function spokenToken(run, index) {
  const logprob = run.logprobs[index];
  const chance = logprob === null ? "" : `, probability ${probabilityText(Math.exp(logprob))}`;
  const fallen = run.fallen[index];
  const fall = fallen ? `, the likeliest, ${quoted(run.piece(fallen[0]))}, was dropped by ${visible(fallen[1])}` : "";
  return `${quoted(run.pieceAt(index))}, ${run.placeOf(index)}${chance}${fall}`;
}

async function open() {
  if (typeof DecompressionStream === "undefined") throw new Error("it is too old to unpack the data (DecompressionStream)");
  const index = await unpacked("index");
  const report = new Report(index);
  const count = index.length <= MOST_COLUMNS_AT_FIRST ? index.length : 1;
  await report.show(Array.from({ length: count }, (_, number) => number));
  await report.select(0, 0, { focus: false });
  document.documentElement.dataset.state = "ready";
}

open().catch((error) => {
  byId("token").replaceChildren(element("p", { class: "failure" }, `This browser cannot show the report: ${error.message}`));
  document.documentElement.dataset.state = "failed";
});
