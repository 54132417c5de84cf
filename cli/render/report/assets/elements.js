// Elements are made one by one, and texts are text nodes: what a model wrote is never markup.

const SVG = "http://www.w3.org/2000/svg";

function byId(id) {
  return document.getElementById(id);
}

function fill(node, attributes, children) {
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

/** An HTML element. An attribute `onclick` and the like is a listener. */
function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A token in quotes, whose direction of writing does not change what stands around it. */
function tokenName(piece) {
  return element("bdi", { class: "name" }, quoted(piece));
}

/** A list of facts: pairs of a title and a text, element or list of these. */
function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== undefined);
  return element("dl", { class: "facts" }, rows.map(([title, value]) => [element("dt", {}, title), element("dd", {}, value)]));
}
