// The settings of requests: the chain, and what applies besides it.

import { byId } from "./web/elements.js";
import { visible } from "./web/format.js";
import { Catalogue, ChainEditor } from "./chain.js";
import { readInteger, readNumber, setProblem } from "./fields.js";
import { listenToFiles } from "./files.js";
import { GrammarField } from "./grammar.js";
import { PresetControls } from "./presets.js";
import { afterPause, LostError } from "./server.js";
import { bansText, readBans, readStrings, stringsText } from "./text_rules.js";
import { MEASURES } from "./tints.js";

const RANDOM_SEED = -1;
const SEED_COUNT = 2 ** 32;
const CHECK_MILLISECONDS = 300;
const WITH_CONTROLS = new Set(["seed", "max_tokens", "stop", "system", "grammar", "bans", "guidance", "memory", "authors_note", "world_info"]);
const SETTING_OF_CONTROL = { seed: "seed", length: "max_tokens", samples: "samples", "stop-strings": "stop", bans: "bans", "guidance-scale": "guidance", "negative-prompt": "guidance" };

/** The column "Settings". `page` is the page. */
export class Settings {
  constructor(page) {
    this.page = page;
    this.guidanceModel = null; // the model that a preset names for guidance, which requests cannot name
    this.changed = new Set(); // the settings that a person has changed since the preset was chosen
    this.grammar = new GrammarField({ field: byId("grammar"), kind: byId("grammar-kind"), names: byId("grammar-names"), note: byId("grammar-note") }, page.server, { typed: () => this.changed.add("grammar"), changed: () => this.chainChanged() });
    this.presets = new PresetControls({ choice: byId("preset"), notes: byId("import-notes") }, page.server, { apply: (steps, settings) => this.applyPreset(steps, settings), attempt: (action) => page.attempt(action) });
    this.checkBansSoon = afterPause(CHECK_MILLISECONDS, () => this.checkBans());
    byId("bans").addEventListener("input", () => this.checkBansSoon());
    page.click("import-preset", () => byId("preset-file").click());
    page.click("save-preset", () => this.savePreset());
    listenToFiles(byId("preset-file"), (file) => page.attempt(() => page.readInTurn(async () => this.presets.read(file.name, await file.text()))));
    for (const [id, name] of Object.entries(SETTING_OF_CONTROL)) {
      byId(id).addEventListener("input", () => {
        this.settingChanged(name);
        if (name === "guidance") this.chainChanged();
      });
    }
  }

  /** Show what the server has: samplers, presets, grammars, and its own chain. */
  load(samplers, presets, grammars, { steps, settings }) {
    const catalogue = new Catalogue(samplers);
    this.presets.showList(presets);
    this.grammar.showNames(grammars);
    const parse = async (text) => (await this.page.server.json("/gen/chain", { chain: text })).steps;
    this.chain = new ChainEditor(byId("chain"), catalogue, { list: "Chain", add: "Add sampler", notation: "Notation" }, { changed: () => this.chainChanged(), parse });
    this.otherChain = new ChainEditor(byId("other-chain"), catalogue, { list: "Compared steps", add: "Add a compared step", notation: "Compared steps in notation" }, { changed: () => this.page.stories.saveSoon(), parse });
    this.otherChain.show(steps);
    this.page.context.ofServer = settings;
    this.applyPreset(steps, settings);
  }

  /** Return the settings of requests. Raises an error if the seed or the length is wrong. */
  read() {
    const { seed, length } = this.numbers();
    const wrong = [byId("seed"), byId("length"), byId("samples"), byId("guidance-scale"), byId("bans")].find((field) => field.validationMessage);
    if (wrong) throw new Error(wrong.validationMessage);
    return {
      chain: this.chain.notation || "dist",
      seed,
      max_tokens: length,
      stop: readStrings(byId("stop-strings").value), // also if it is empty: otherwise the server's own would apply
      bans: readBans(byId("bans").value),
      rules: this.rules,
      opening: byId("uses-template").checked ? this.page.chat.opening : null,
      guidance: this.guidance(),
      grammar: this.grammar.value,
      ...this.page.context.requestFields,
    };
  }

  /** Return the guidance of requests. The scale 1 is sent, too: otherwise the server's own would apply. */
  guidance() {
    const scale = readNumber(byId("guidance-scale"), "The scale of guidance") ?? 1;
    return scale === 1 ? { scale } : { scale, negative_prompt: byId("negative-prompt").value };
  }

  showGuidance(guidance) {
    byId("guidance-scale").value = String(guidance?.scale ?? 1);
    byId("negative-prompt").value = guidance?.negative_prompt ?? "";
    this.guidanceModel = guidance?.model ?? null;
    byId("guidance-note").textContent = this.guidanceModel === null ? "" : visible(`The model of guidance, ${this.guidanceModel}, applies if the server was started with it.`);
  }

  /** Return the seed, the length and the number of texts; null, and a marked field, for one that is wrong. */
  numbers() {
    return {
      seed: readInteger(byId("seed"), "The seed"),
      length: readInteger(byId("length"), "The number of tokens"),
      samples: readInteger(byId("samples"), "The number of texts"),
      guidanceScale: readNumber(byId("guidance-scale"), "The scale of guidance"),
    };
  }

  /** Return seeds for this number of texts: that of the field and the next ones, without those that were used. */
  seeds(count, used = new Set()) {
    const { seed } = this.numbers();
    const [drawn] = crypto.getRandomValues(new Uint32Array(1));
    const seeds = [];
    for (let next = seed === RANDOM_SEED ? drawn : seed; seeds.length < count; next = (next + 1) % SEED_COUNT) {
      if (!used.has(next)) seeds.push(next);
    }
    return seeds;
  }

  applyPreset(steps, settings) {
    this.chain.show(steps);
    if (Number.isInteger(settings.seed)) byId("seed").value = String(settings.seed);
    if (settings.max_tokens > 0) byId("length").value = String(settings.max_tokens);
    byId("stop-strings").value = stringsText(settings.stop);
    byId("bans").value = bansText(settings.bans);
    this.checkBansSoon();
    const rules = Object.fromEntries(Object.entries(settings).filter(([name]) => !WITH_CONTROLS.has(name)));
    if (rules.phases) rules.phases = [...rules.phases.slice(0, -1), {}]; // the cards are the chain of the last phase
    this.showRules(rules);
    this.showGuidance(settings.guidance);
    this.grammar.setPreset(settings.grammar ?? null);
    this.page.context.showPreset(settings);
    if (settings.system && !this.page.chat.messages.messages.length) this.page.chat.messages.show([{ role: "system", content: settings.system }]);
    this.changed.clear();
    this.chainChanged();
  }

  /** Show the rules of a preset that have no controls here. They apply, and name what may differ from the chain. */
  showRules(rules) {
    this.rules = rules;
    const set = Object.entries(rules).filter(([, value]) => value !== null);
    byId("rules-note").textContent = set.length ? visible(`Of the preset: ${set.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("; ")}`) : "";
  }

  chainChanged() {
    this.page.details.nextToken.markStale();
    this.page.details.updateNext.call();
    this.page.stories.saveSoon();
  }

  /** Say what is wrong in the field of bans while a person writes them. The server knows what a ban may be. */
  async checkBans() {
    const field = byId("bans");
    const text = field.value;
    let problem = null;
    try {
      const bans = readBans(text);
      if (bans.length) await this.page.server.json("/gen/presets/text", { chain: "dist", settings: { bans } });
    } catch (error) {
      if (!(error instanceof LostError)) problem = error.message.replace(/^preset: /, "");
    }
    if (field.value !== text) return;
    setProblem(field, problem);
    byId("bans-note").textContent = visible(problem ?? "");
  }

  settingChanged(name) {
    this.changed.add(name);
    this.numbers();
    this.page.stories.saveSoon();
  }

  async savePreset() {
    await this.settle();
    const { seed, max_tokens, stop, bans, guidance } = this.read();
    const savedGuidance = guidance.scale === 1 ? null : { ...guidance, ...(this.guidanceModel === null ? {} : { model: this.guidanceModel }) };
    const values = { seed, max_tokens, stop: stop.length ? stop : null, bans: bans.length ? bans : null, guidance: savedGuidance, grammar: this.grammar.presetValue, ...this.page.context.presetValues };
    const changed = Object.fromEntries(Object.entries(values).filter(([name]) => this.changed.has(name)));
    return this.presets.save(this.chain.notation || "dist", changed, this.chain.steps.filter((step) => !step.isOn).map((step) => step.name));
  }

  /** Wait until what was just typed is read. Raises an error if any setting is wrong. */
  async settle() {
    await Promise.all([this.chain.settle(), this.grammar.checkSoon.settled(), this.checkBansSoon.settled(), this.page.chat.renderTemplateSoon.settled()]);
    if (this.grammar.problem !== null) throw new Error(`The grammar is wrong: ${this.grammar.problem}`);
    this.read(); // raises an error if the seed or the length is wrong
  }

  state() {
    return {
      model: this.page.model,
      steps: this.chain.steps,
      otherSteps: this.otherChain.steps,
      ...this.numbers(),
      changed: Array.from(this.changed),
      grammar: byId("grammar").value,
      grammarKind: byId("grammar-kind").value,
      stop: byId("stop-strings").value,
      bans: byId("bans").value,
      rules: this.rules,
      negativePrompt: byId("negative-prompt").value,
      guidanceModel: this.guidanceModel,
      context: this.page.context.fields,
      ...this.presets.state,
      measure: byId("measure").value,
      usesTemplate: byId("uses-template").checked,
      opening: this.page.chat.opening,
      messages: this.page.chat.messages.messages,
      decide: this.page.decisions.state,
    };
  }

  applyState(state) {
    if (state.decide) this.page.decisions.state = state.decide;
    if (state.steps) this.chain.show(state.steps);
    if (state.otherSteps) this.otherChain.show(state.otherSteps);
    if (Number.isInteger(state.seed)) byId("seed").value = String(state.seed);
    if (Number.isInteger(state.length)) byId("length").value = String(state.length);
    if (Number.isInteger(state.samples)) byId("samples").value = String(state.samples);
    this.changed = new Set(state.changed);
    if (state.stop !== undefined) byId("stop-strings").value = state.stop;
    if (state.bans !== undefined) byId("bans").value = state.bans;
    this.checkBansSoon();
    if (state.rules !== undefined) this.showRules(state.rules);
    this.page.context.show(state.context ?? {});
    this.showGuidance({ scale: state.guidanceScale, negative_prompt: state.negativePrompt, model: state.guidanceModel });
    if (state.preset !== undefined) this.presets.restore(state);
    if (Object.hasOwn(MEASURES, state.measure ?? "")) this.page.details.tint(state.measure);
    if (state.messages) this.page.chat.messages.show(state.messages);
    byId("uses-template").checked = Boolean(state.usesTemplate);
    this.page.chat.opening = state.opening ?? null;
    byId("chat").hidden = !state.usesTemplate;
    this.grammar.set(state.grammar ?? "", state.grammarKind ?? "auto");
  }
}
