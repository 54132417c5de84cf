// Where a text may stop: at the end of a sentence or of a paragraph.

const ABBREVIATION = /(?:^|[\s(])(?:\p{Lu}|Mr|Mrs|Ms|Dr|St|Prof)\.\s*$/u;
const sentences = new Intl.Segmenter(undefined, { granularity: "sentence" });

/** Return the length of the first sentence, once another one has begun; null before. */
function sentenceLength(text) {
  let end = 0;
  for (const { segment, index } of sentences.segment(text)) {
    if (end) return end;
    const sentence = text.slice(0, index + segment.length);
    if (sentence.trim() && !ABBREVIATION.test(sentence)) end = sentence.trimEnd().length;
  }
  return null;
}

/** Return the length of the first paragraph, once it has ended; null before. */
function paragraphLength(text) {
  const paragraph = /^\s*\S[^\n]*(?=\n)/.exec(text);
  return paragraph && paragraph[0].trimEnd().length;
}

/** The names of the places, and functions that return the length of a text that is complete; null if it is not. */
export const STOPS = { length: () => null, sentence: sentenceLength, paragraph: paragraphLength };
