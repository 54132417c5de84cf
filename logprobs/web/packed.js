// The data in the elements of a page that is one file.

import { byId } from "./elements.js";

/** Return the data in an element of the page; null if the element is empty. */
export async function unpacked(id) {
  const text = byId(id).textContent;
  if (!text) return null;
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
