// Stop strings and bans in fields of lines, as a person writes them.

const SIGNS = { n: "\n", t: "\t" };

function unescaped(line) {
  return line.replace(/\\(n|t|\\)/g, (_, sign) => SIGNS[sign] ?? "\\");
}

function escaped(text) {
  return text.replace(/\\/g, "\\\\").replace(/\n/g, "\\n").replace(/\t/g, "\\t");
}

/** Return the strings in a field with one on each line. */
export function readStrings(text) {
  return text.split("\n").filter(Boolean).map(unescaped);
}

/** Return the text of a field for a setting: a string, a list of strings, or none. */
export function stringsText(value) {
  return (typeof value === "string" ? [value] : (value ?? [])).map(escaped).join("\n");
}

/**
 * Return the bans in a field, as a preset has them: a line is a phrase, a regex between slashes, or JSON. Raises an error
 * that names the line.
 */
export function readBans(text) {
  return text.split("\n").flatMap((line, index) => {
    if (!line) return [];
    if (/^\/.+\/$/.test(line)) return [{ regex: line.slice(1, -1) }];
    if (!/^[{"]/.test(line)) return [unescaped(line)];
    try {
      return [JSON.parse(line)];
    } catch (error) {
      throw new Error(`Bans, line ${index + 1}: this is not JSON`, { cause: error });
    }
  });
}

/** Return the text of a field for bans of a preset: a ban, a list of bans, or none. */
export function bansText(value) {
  return [value ?? []].flat().map((ban) => {
    if (typeof ban === "string") return /^[/{"]/.test(ban) ? JSON.stringify(ban) : escaped(ban);
    const isRegex = Object.keys(ban).length === 1 && typeof ban.regex === "string" && ban.regex && !ban.regex.includes("\n");
    return isRegex ? `/${ban.regex}/` : JSON.stringify(ban);
  }).join("\n");
}
