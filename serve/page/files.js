// Files: the export of a story, and what is read from files.

import { makeToken, pendingToken, sharedLength, textOf, TextTree } from "./texts.js";

const FORMAT = "gen serve page";
const VERSION = 1;
const MAX_TITLE = 200; // as the field has it
const MAX_SEED = 2 ** 32 - 1;
const MAX_LENGTH = 2 ** 31 - 1;
const MAX_SAMPLES = 16;

/** Let the browser save a text as a file. */
export function download(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Let a person choose a file, and call `use` with it. */
export function listenToFiles(input, use) {
  input.addEventListener("change", () => {
    const [file] = input.files;
    input.value = "";
    if (file) use(file);
  });
}

/** Return the tokens of a tree by their numbers. */
export function tokensOf(tree) {
  const tokens = new Map();
  for (const node of tree.nodes.values()) {
    for (const token of node.ownTokens) tokens.set(token.uid, token); // its parent has the others
  }
  return tokens;
}

/** Return the object of an exported file. It has no key. Without details, tokens lose their traces and alternatives. */
export function exportData(title, tree, settings, { hasDetails = false } = {}) {
  const tokens = Array.from(tokensOf(tree).values(), (token) => (hasDetails ? token : withoutDetails(token)));
  return { format: FORMAT, version: VERSION, title, current: tree.current.id, settings, nodes: tree.asRecords(), tokens };
}

/** Return the facts of a token that the text, its tint and its continuation need. */
function withoutDetails(token) {
  const isText = String(token.bytes) === String(new TextEncoder().encode(token.text));
  const rounded = (value) => (Number.isFinite(value) ? Number(value.toFixed(4)) : undefined);
  return {
    ...token, trace: undefined, token: undefined, top_logprobs: undefined, logprobs_from: undefined, // which JSON leaves out
    logprob: rounded(token.logprob), entropy: rounded(token.entropy),
    event: token.event === "prompt" ? undefined : token.event, bytes: isText ? undefined : token.bytes,
  };
}

/** Return a token of a file with what `withoutDetails` leaves out. */
function withDetails(token) {
  if (typeof token?.text !== "string") return token;
  return { ...token, event: token.event ?? "prompt", logprob: token.logprob ?? null, bytes: token.bytes ?? Array.from(new TextEncoder().encode(token.text)) };
}

/** Return the pieces of which the text was made, each with the other versions of it that the tree has. */
export function piecesOf(tree) {
  const { current } = tree;
  const path = [];
  for (let node = current; node; node = node.parent) {
    if (sharedLength(node.tokens, current.tokens) === node.tokens.length) path.unshift(node);
  }
  let start = 0;
  return path.flatMap((node) => {
    const from = start;
    const text = textOf(node.tokens.slice(from));
    if (!text) return [];
    start = node.tokens.length;
    const siblings = node.parent?.tokens.length === from ? node.parent.children : [];
    const others = siblings.filter((other) => other !== node && other.shared === from);
    return [{ text, alternatives: others.map((other) => textOf(other.tokens.slice(from))).filter(Boolean) }];
  });
}

/** Return a tree of pieces, as `piecesOf` makes them. */
export function treeOfPieces(pieces) {
  const tree = new TextTree();
  for (const { text, alternatives = [] } of pieces) {
    const { current } = tree;
    const place = { start: textOf(current.tokens).length, rest: 0, seed: null };
    for (const other of [text, ...alternatives]) {
      const tokens = [...current.tokens, pendingToken(other)];
      if (alternatives.length) tree.insert(current, "generated", tokens, { start: null, done: null, place });
      else tree.insert(current, "opened", tokens);
    }
    [tree.current] = current.children;
  }
  return tree;
}

/** Return the story of an exported file; null if another program wrote it. Raises an error with a sentence if it is damaged. */
export function readExport(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    return null;
  }
  return data?.format === FORMAT ? readData(data) : null;
}

/** Return the title, the tree and the settings of an exported object. Raises an error with a sentence if it is none. */
export function readData(data) {
  if (data?.format !== FORMAT) throw new Error("it was not exported by this page");
  if (data.version !== VERSION) throw new Error(`its version is ${String(data.version)}, and this page reads version ${VERSION}`);
  if (!Array.isArray(data.nodes) || !Array.isArray(data.tokens)) throw new Error("it has no texts");
  // The file's numbers are replaced, so that they differ from those of all tokens of this tab.
  const tokens = new Map();
  for (const token of data.tokens.map(withDetails)) {
    checkToken(token);
    tokens.set(token.uid, makeToken(token));
  }
  for (const node of data.nodes) {
    const isNode = Number.isInteger(node?.id) && (node.parent === null || Number.isInteger(node.parent)) && typeof node.kind === "string" && Array.isArray(node.uids) && [node.start, node.end].every(isCount) && isRun(node.run);
    if (!isNode) throw new Error("one of its texts is damaged");
  }
  const tree = TextTree.fromRecords(data.nodes.map((node) => ({ ...node, run: node.run ?? null })), tokens, data.current);
  return { title: typeof data.title === "string" ? data.title.slice(0, MAX_TITLE) : null, tree, settings: checkedSettings(data.settings) };
}

function isCount(value) {
  return value === undefined || (Number.isInteger(value) && value >= 0);
}

function checkToken(token) {
  const isNumberOrNull = (value) => value === null || value === undefined || typeof value === "number";
  const isToken = token !== null && typeof token === "object" && (token.id === null || Number.isInteger(token.id)) &&
    typeof token.text === "string" && Number.isInteger(token.uid) && ["prompt", "token"].includes(token.event) &&
    areBytes(token.bytes) && isLength(token.added, token.bytes) && isNumberOrNull(token.logprob) && isNumberOrNull(token.entropy) && (!token.trace || isTrace(token.trace)) &&
    (token.returns === undefined || (Array.isArray(token.returns) && token.returns.every((item) => typeof item?.text === "string" && isTextOrNull(item.ban))));
  if (!isToken) throw new Error("one of its tokens is damaged");
}

function isLength(value, list) {
  return value === undefined || (Number.isInteger(value) && value >= 0 && value <= list.length);
}

function isTextOrNull(value) {
  return value === null || value === undefined || typeof value === "string";
}

/** Return whether a value is the first and the last line of a generation, as far as the page reads them. */
function isRun(run) {
  if (run === null || run === undefined) return true;
  const isLine = (line, event) => line === null || line === undefined || (line.event === event && isTextOrNull(line.command) && isTextOrNull(line.finish_reason));
  const isPlace = (place) => place === undefined || (["start", "rest"].every((name) => Number.isInteger(place?.[name])) && (place.seed === null || Number.isInteger(place.seed)));
  return typeof run === "object" && isLine(run.start, "start") && isLine(run.done, "done") && isPlace(run.place);
}

function areBytes(value) {
  return Array.isArray(value) && value.every((byte) => Number.isInteger(byte) && byte >= 0 && byte <= 255);
}

function isTrace({ stages, candidates, draw }) {
  const isNumberOrNull = (value) => value === null || typeof value === "number";
  const areNumbers = (values) => Array.isArray(values) && values.length === stages.length && values.every(isNumberOrNull);
  return Array.isArray(stages) && stages.length > 0 && stages.every((stage) => typeof stage?.name === "string" && Number.isInteger(stage.kept) && isNumberOrNull(stage.entropy) && isTextOrNull(stage.note)) &&
    Array.isArray(candidates) && candidates.every((item) => Number.isInteger(item?.id) && areBytes(item.bytes) && areNumbers(item.logits) && areNumbers(item.probs) &&
      (item.dropped_by === null || (Number.isInteger(item.dropped_by) && item.dropped_by in stages))) &&
    (draw === null || draw === undefined || ["u", "low", "high"].every((name) => typeof draw[name] === "number"));
}

function isMessage(message) {
  const { role, content, reasoning_content: thought = "", thoughtTokens = 0 } = message ?? {};
  return [role, content, thought].every((text) => typeof text === "string") && Number.isInteger(thoughtTokens);
}

/** Return the settings of a file; values of other types, and numbers out of range, are left out. */
function checkedSettings(settings) {
  const areSteps = (value) => Array.isArray(value) && value.every((step) => typeof step?.name === "string" && step.parameters !== null && typeof step.parameters === "object");
  const isFrom = (min, max) => (value) => Number.isInteger(value) && value >= min && value <= max;
  const checks = {
    model: (value) => typeof value === "string",
    steps: areSteps,
    otherSteps: areSteps,
    changed: (value) => Array.isArray(value),
    fileName: (value) => typeof value === "string",
    seed: isFrom(-1, MAX_SEED),
    length: isFrom(1, MAX_LENGTH),
    samples: isFrom(1, MAX_SAMPLES),
    grammar: (value) => typeof value === "string",
    grammarKind: (value) => typeof value === "string",
    stop: (value) => typeof value === "string",
    bans: (value) => typeof value === "string",
    rules: (value) => value !== null && typeof value === "object",
    guidanceScale: Number.isFinite,
    negativePrompt: (value) => typeof value === "string",
    guidanceModel: (value) => value === null || typeof value === "string",
    preset: (value) => typeof value === "string",
    base: (value) => value === null || typeof value === "string",
    measure: (value) => typeof value === "string",
    context: (value) => value !== null && typeof value === "object",
    usesTemplate: (value) => typeof value === "boolean",
    opening: (value) => value === null || typeof value === "string",
    messages: (value) => Array.isArray(value) && value.every(isMessage),
  };
  return Object.fromEntries(Object.entries(settings ?? {}).filter(([name, value]) => checks[name]?.(value)));
}

/** Return the lines of a text's last run, as `gen run --format jsonl` writes them, for a report. */
export function linesOf(tree) {
  const run = tree.lastRun;
  const start = run?.start ?? { event: "start", model: "?" };
  const lines = tree.current.tokens.flatMap(({ returns = [], ...token }, index) => [...returns, { ...token, index, id: token.id ?? undefined }]);
  return [start, ...lines, run?.done ?? { event: "done", finish_reason: "interrupted" }];
}
