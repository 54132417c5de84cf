// The search in the texts of the runs on the page.

import { byId } from "./web/elements.js";
import { countText } from "./web/format.js";

/** Return the matches of a query in a run, each as a list of token indices. Upper and lower case are equal. */
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

/** The matches of a query in the runs of a report, and the current match. */
export class Search {
  constructor(report) {
    this.report = report;
    this.matches = [];
    this.current = -1; // index in `matches`; -1 if there is none
  }

  /** Mark all matches of a query. If `moves` is true, go to the first match at or after the selected token. */
  mark(query, moves = true) {
    for (const old of document.querySelectorAll(".t.match")) old.classList.remove("match");
    this.matches = this.report.columns.flatMap(({ run }, column) => matchesIn(run, query)
      .map((indices) => ({ column, indices }))
      .filter(({ indices }) => column === this.report.active || !this.report.shared.has(indices[0])));
    for (const { column, indices } of this.matches) {
      for (const index of indices) this.report.view(column, index).span(index)?.classList.add("match");
    }
    this.current = -1;
    byId("matches").textContent = query ? (this.matches.length ? countText(this.matches.length) : "none") : "";
    if (query && moves) this.next(1, true);
  }

  /**
   * Go to the next match (`step` 1) or the previous one (-1). If `isFirst` is true, go to the first match at or after
   * the selected token.
   */
  next(step, isFirst = false) {
    if (!this.matches.length) return;
    if (isFirst) {
      const nearest = this.matches.findIndex(({ column, indices }) => column === this.report.active && indices.at(-1) >= this.report.token);
      this.current = Math.max(nearest, 0);
    } else this.current = (this.current + step + this.matches.length) % this.matches.length;
    const { column, indices } = this.matches[this.current];
    const number = this.current;
    this.report.select(column, indices[0], { focus: false });
    this.current = number; // select() may have marked the matches again
    byId("matches").textContent = `${countText(number + 1)} of ${countText(this.matches.length)}`;
  }
}
