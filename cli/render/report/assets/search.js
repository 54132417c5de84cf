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

/** The matches in the runs of a report, and the one that the reader is at. */
class Search {
  constructor(report) {
    this.report = report;
    this.matches = [];
    this.match = -1;
  }

  /** Mark the matches of a text, and go to the first one from the chosen token on if `goes`. */
  mark(query, goes = true) {
    for (const old of document.querySelectorAll(".t.match")) old.classList.remove("match");
    this.matches = this.report.columns.flatMap(({ run }, column) => matchesIn(run, query)
      .map((indices) => ({ column, indices }))
      .filter(({ indices }) => column === this.report.active || !this.report.shared.has(indices[0])));
    for (const { column, indices } of this.matches) {
      for (const index of indices) this.report.view(column, index).span(index)?.classList.add("match");
    }
    this.match = -1;
    byId("matches").textContent = query ? (this.matches.length ? countText(this.matches.length) : "none") : "";
    if (query && goes) this.next(1, true);
  }

  /** Go to the next match, or the one before; the first time to the first one from the chosen token on. */
  next(step, isFirst = false) {
    if (!this.matches.length) return;
    if (isFirst) {
      const here = this.matches.findIndex(({ column, indices }) => column === this.report.active && indices.at(-1) >= this.report.token);
      this.match = Math.max(here, 0);
    } else this.match = (this.match + step + this.matches.length) % this.matches.length;
    const { column, indices } = this.matches[this.match];
    const number = this.match;
    this.report.select(column, indices[0], { focus: false });
    this.match = number;
    byId("matches").textContent = `${countText(number + 1)} of ${countText(this.matches.length)}`;
  }
}
