// Numbers and texts as the page shows them.

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

const CONTROL_NAMES = (
  "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
).split(" ");

/** A control character by its name or code: terminals obey them, and some reverse the text around them. */
function controlPicture(character) {
  const code = character.charCodeAt(0);
  const name = CONTROL_NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  return `\u27e8${name}\u27e9`;
}

/** The text with its control characters made visible. Line ends and tabs stay. */
function visible(text) {
  return text.replace(LONE_SURROGATE, "\ufffd").replace(CONTROL, controlPicture);
}

/** A token in quotes, on one line. `piece` is a text, or a list of bytes that are not UTF-8. */
function quoted(piece) {
  if (typeof piece !== "string") return hexadecimal(piece);
  return `\u2018${visible(piece).replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5")}\u2019`;
}

/** Bytes as pairs of hexadecimal digits. */
function hexadecimal(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** The bytes of a token. */
function bytesOf(piece) {
  return typeof piece === "string" ? new TextEncoder().encode(piece) : piece;
}

/** A probability with four decimals; a small one with two digits. */
function probabilityText(p) {
  if (p === null || p === undefined) return "\u2013";
  if (p === 0 || p >= 0.0001) return p.toFixed(4);
  return p.toExponential(1);
}

/** A logit, an entropy or a surprise with this many decimals. */
function numberText(value, decimals = 3) {
  return value === null || value === undefined ? "\u2013" : value.toFixed(decimals);
}

/** A count with a comma after each three digits. */
function countText(count) {
  return count.toLocaleString("en-US");
}

/** A step's place in the chain, counted as `--show-config` and messages count; nothing for the model and the grammar. */
function placeInChain(stage) {
  return Number.isInteger(stage.step) ? `[${stage.step}]` : "";
}

/** How improbable: 0 (a half or more) to 4 (less than a hundredth); -1 if unknown. */
function heat(logprob) {
  if (logprob === null) return -1;
  const p = Math.exp(logprob);
  return p >= 0.5 ? 0 : p >= 0.2 ? 1 : p >= 0.05 ? 2 : p >= 0.01 ? 3 : 4;
}
