// Functions that create elements of a page. All text becomes text nodes, so that no output of a model is markup.

import { quoted } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

/** Set the attributes of an element, add its children, and return it. */
function assemble(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

/** Return a new HTML element. Attributes that begin with `on`, such as `onclick`, are listeners. */
export function element(tag, attributes = {}, ...children) {
  return assemble(document.createElement(tag), attributes, children);
}

/** Return a new SVG element. */
export function svgElement(tag, attributes = {}, ...children) {
  return assemble(document.createElementNS(SVG, tag), attributes, children);
}

/** Return an element with a token in quotes. Its writing direction does not affect the surrounding text. */
export function tokenName(content) {
  return element("bdi", { class: "name" }, quoted(content));
}

/** Return a list of facts. Each pair has a title, and a text, an element or a list of texts and elements. */
export function factList(pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== undefined);
  return element("dl", { class: "facts" }, rows.map(([title, value]) => [element("dt", {}, title), element("dd", {}, value)]));
}
