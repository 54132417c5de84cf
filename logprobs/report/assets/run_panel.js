// The panel of a run: its origin and settings, its means, and its most surprising tokens.

import { element, factList, tokenName } from "./web/elements.js";
import { countText, numberText, probabilityText, visible } from "./web/format.js";
import { section, withoutTrace } from "./web/token_panel.js";

const LISTED_SURPRISES = 10;

/** Return the elements of the panel. A click on a token calls `select` with its index. */
export function runPanel(run, select) {
  return [
    element("h2", {}, visible(run.name)),
    factList([
      ["Model", visible(String(run.model))],
      ["Seed", run.seed === null ? "not recorded" : String(run.seed)],
      ["Tokens", tokenCounts(run)],
      ["Ended", run.isCutOff ? "the run was cut off: its record does not end with a “done” line" : visible(run.finish ?? "complete")],
      ["Logprobs of", run.source],
      ...means(run),
    ]),
    section("Repeat this run", commandLine(run)),
    section("Most surprising", surpriseList(run, select)),
    run.hasTrace ? section("Most likely token dropped", droppedTopList(run, select)) : run.length ? withoutTrace() : null,
    section("Settings", settings(run)),
  ];
}

function tokenCounts(run) {
  const written = countText(run.length - run.promptTokens);
  return run.promptTokens ? `${written} written, ${countText(run.promptTokens)} of the prompt` : written;
}

function means(run) {
  const written = run.logprobs.slice(run.promptTokens).filter((logprob) => logprob !== null);
  const entropies = run.entropies.slice(run.promptTokens).filter((entropy) => entropy !== null);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return [
    ["Mean surprise", written.length ? `${numberText(-mean(written))} nats, perplexity ${numberText(Math.exp(-mean(written)), 2)}` : null],
    ["Mean entropy", entropies.length ? `${numberText(mean(entropies))} nats` : null],
  ];
}

function commandLine(run) {
  if (run.command === null) return element("p", { class: "note" }, "The run does not record its command.");
  const code = element("code", { class: "command", tabindex: "0" }, visible(run.command));
  const copy = element("button", { type: "button", class: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(run.command);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Selected";
    }
  });
  return element("div", { class: "command-line" }, code, copy);
}

/** Return a button that selects a token. */
function tokenButton(run, index, select) {
  return element("button", { type: "button", class: "jump", onclick: () => select(index) }, tokenName(run.contentAt(index)));
}

function surpriseList(run, select) {
  const listed = run.bySurprise().slice(0, LISTED_SURPRISES);
  if (!listed.length) return element("p", { class: "note" }, "The run has no logprobs.");
  return element("ol", { class: "jumps" }, listed.map((index) => element("li", {},
    tokenButton(run, index, select), element("span", { class: "note" }, ` ${probabilityText(Math.exp(run.logprobs[index]))}, ${run.positionText(index)}`))));
}

function droppedTopList(run, select) {
  if (!run.droppedTopIndices.length) return element("p", { class: "note" }, "No step dropped the most likely token.");
  const byStage = new Map();
  for (const index of run.droppedTopIndices) {
    const stage = run.droppedTop[index][1];
    byStage.set(stage, [...(byStage.get(stage) ?? []), index]);
  }
  return element("ul", { class: "jumps" }, Array.from(byStage, ([stage, indices]) => element("li", {},
    element("button", { type: "button", class: "jump", onclick: () => select(indices[0]) }, visible(stage)),
    element("span", { class: "note" }, ` ${countText(indices.length)} of ${countText(run.length - run.promptTokens)} tokens`))));
}

function settings(run) {
  const entries = Object.entries(run.settings ?? {});
  const shown = entries.map(([name, value]) => [visible(name), name === "chain" && Array.isArray(value) ? chainList(value) : settingText(value)]);
  const versions = Object.entries(run.versions ?? {}).map(([name, version]) => `${visible(name)} ${visible(String(version))}`).join(", ");
  const pairs = [...shown, ["versions", versions || null]];
  return pairs.length > 1 || versions ? factList(pairs) : element("p", { class: "note" }, "The run does not record its settings.");
}

function chainList(chain) {
  return element("ol", { class: "chain", start: "0" }, chain.map((step) => {
    if (step === null || typeof step !== "object") return element("li", {}, settingText(step));
    return Object.entries(step).map(([name, parameters]) => element("li", {}, element("b", {}, visible(name)), " ",
      Object.entries(parameters ?? {}).map(([key, value]) => `${visible(key)} ${settingText(value)}`).join(", ")));
  }));
}

function settingText(value) {
  return visible(typeof value === "string" ? value : JSON.stringify(value));
}
