// Functions that format numbers and texts for pages.

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

const CONTROL_NAMES = (
  "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
).split(" ");

/** Return the name or code of a control character, which is invisible or reverses the surrounding text. */
function controlPicture(character) {
  const code = character.charCodeAt(0);
  const name = CONTROL_NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  return `\u27e8${name}\u27e9`;
}

/** Return the text with visible control characters. Newlines and tabs are kept. */
export function visible(text) {
  return text.replace(LONE_SURROGATE, "\ufffd").replace(CONTROL, controlPicture);
}

/** Return a token in quotes, on one line. `content` is a string, or a list of bytes that are not UTF-8. */
export function quoted(content) {
  if (typeof content !== "string") return hexadecimal(content);
  return `\u2018${visible(content).replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5")}\u2019`;
}

/** Return bytes as pairs of hexadecimal digits. */
export function hexadecimal(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** Return the bytes of a token. `content` is a string, or a list of bytes that are not UTF-8. */
export function bytesOf(content) {
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}

/** Return a probability with four decimals, or a small probability with a power of ten. */
export function probabilityText(p) {
  if (p === null || p === undefined) return "\u2013";
  if (p === 0 || p >= 0.0001) return p.toFixed(4);
  return p.toExponential(1);
}

/** Return a logit, an entropy or a surprise with this number of decimals. */
export function numberText(value, decimals = 3) {
  return value === null || value === undefined ? "\u2013" : value.toFixed(decimals);
}

const COUNTS = new Intl.NumberFormat("en-US");

/** Return a count with commas between groups of three digits. */
export function countText(count) {
  return COUNTS.format(count);
}

/** Return a step's index in the chain, such as `[0]`, as in `--show-config`; empty for the model and the grammar. */
export function stepLabel(stage) {
  return Number.isInteger(stage.step) ? `[${stage.step}]` : "";
}

/** Return how improbable a token is, as a level from 0 (p >= 0.5) to 4 (p < 0.01); -1 if unknown. */
export function heatLevel(logprob) {
  if (logprob === null) return -1;
  const p = Math.exp(logprob);
  return p >= 0.5 ? 0 : p >= 0.2 ? 1 : p >= 0.05 ? 2 : p >= 0.01 ? 3 : 4;
}
