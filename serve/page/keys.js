// The keys, and the list of them in the help.

import { byId, element } from "./web/elements.js";

// `where`: `story` for a key that a field other than the text has for itself, `outside` for one that a field would take as a letter.
const KEYS = [
  { names: ["Ctrl+Enter"], does: "write on at the end of the text", run: (page) => page.writing.generate() },
  { names: ["Ctrl+Shift+Enter"], does: "continue from the cursor; what follows stays in Branches", run: (page) => page.writing.continueHere() },
  { names: ["Alt+S"], does: "rewrite the selection", run: (page) => page.writing.rewriteSelection() },
  { names: ["Alt+R"], does: "retry: another text in the same place", run: (page) => page.writing.retry() },
  { names: ["Alt+,"], does: "the alternative before", run: (page) => page.writing.alternatives.turn(-1) },
  { names: ["Alt+."], does: "the next alternative", run: (page) => page.writing.alternatives.turn(1) },
  { names: ["Alt+W"], does: "accept a word of what was generated", run: (page) => page.writing.alternatives.acceptWord() },
  { names: ["Alt+L"], does: "accept a line", run: (page) => page.writing.alternatives.acceptLine() },
  { names: ["Alt+A"], does: "accept the rest", run: (page) => page.writing.alternatives.acceptRest() },
  { names: ["Escape"], does: "stop; close the details of a token", run: (page) => page.stopOrClose() },
  { names: ["Ctrl+Z"], where: "story", does: "undo a generation, or what was typed", run: (page) => page.writing.undo() },
  { names: ["Ctrl+Shift+Z", "Ctrl+Y"], where: "story", does: "redo", run: (page) => page.writing.redo() },
  { names: ["Alt+I"], does: "why the token at the cursor was chosen", run: (page) => page.details.openWhy(page.editor.tokenAt(page.editor.cursor)) },
  { names: ["Alt+C"], does: "the calm view: the text without panels, and back", run: (page) => page.view.toggleCalm() },
  { names: ["?"], where: "outside", does: "these keys; in the text, Ctrl+/", run: (page) => page.showHelp() },
  { names: ["Ctrl+/"], run: (page) => page.showHelp() },
];
const CODES = { Comma: ",", Period: ".", Slash: "/" };

/** Let the keys act on the page, and list them in the help. */
export function listenToKeys(page) {
  document.addEventListener("keydown", (event) => {
    const name = nameOf(event);
    const key = KEYS.find(({ names }) => names.includes(name));
    if (!key || event.defaultPrevented || document.querySelector("dialog[open]") || !isPlace(key.where, event.target, page.editor.area)) return;
    event.preventDefault();
    page.attempt(() => key.run(page));
  });
  byId("keys").prepend(...KEYS.filter(({ does }) => does).flatMap(({ names, does }) => [
    element("dt", {}, names[0].split("+").map((part) => [element("kbd", {}, part), " "])), element("dd", {}, does)]));
}

function isPlace(where, target, text) {
  const isField = target.matches("input, textarea, select");
  return !where || !isField || (where === "story" && target === text);
}

/** Return the name of a key with those held down, such as `Ctrl+Shift+Z`. */
function nameOf(event) {
  const isPlain = /^[!-~]$/.test(event.key);
  const key = isPlain || !event.altKey ? event.key : (CODES[event.code] ?? event.code.replace("Key", "")); // Alt makes other letters on a Mac
  const isShifted = event.shiftKey && key !== "?";
  return [(event.ctrlKey || event.metaKey) && "Ctrl", event.altKey && "Alt", isShifted && "Shift", key.length === 1 ? key.toUpperCase() : key].filter(Boolean).join("+");
}
