// Search in the texts of the runs that are shown.

/** The matches of a text in a run, as lists of the indices of tokens. Upper and lower case are alike. */
function matchesIn(run, query) {
  const wanted = query.toLowerCase();
  if (!wanted) return [];
  const parts = run.texts.map((text) => text.toLowerCase());
  const ends = [];
  let length = 0;
  for (const part of parts) ends.push((length += part.length));
  const text = parts.join("");
  const matches = [];
  let token = 0;
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    while (ends[token] <= at) token += 1;
    const indices = [token];
    for (let next = token; ends[next] < at + wanted.length; ) indices.push((next += 1));
    matches.push(indices);
  }
  return matches;
}
