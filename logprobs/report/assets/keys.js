// The actions of keys.

import { byId } from "./web/elements.js";
import { changeTheme } from "./web/theme.js";

/** A keyboard handler that calls methods of a report. */
export class Keyboard {
  constructor(report) {
    this.report = report;
  }

  handle(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help-dialog").open) return;
    if (event.target === byId("query")) return this.handleInSearch(event);
    if (event.target.closest("select, input")) return;
    if (event.target.closest("[role=tab]") && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
      const name = byId("token").hidden ? "token" : "run";
      this.report.openTab(name);
      byId(`tab-${name}`).focus();
      return event.preventDefault();
    }
    const isReading = event.target === document.body || event.target.closest(".texts") !== null;
    const action = this.actions(isReading)[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  handleInSearch(event) {
    if (event.key === "Enter") this.report.search.next(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") this.report.view(this.report.active, this.report.token).container.focus();
    else return;
    event.preventDefault();
  }

  /** Return the action of each key. Keys that scroll select tokens in the text, but scroll in the panel. */
  actions(isReading) {
    const { report } = this;
    const last = report.columns[report.active].run.length - 1;
    const inText = {
      ArrowUp: () => report.moveToLine(-1),
      ArrowDown: () => report.moveToLine(1),
      Home: () => report.select(report.active, 0),
      End: () => report.select(report.active, last),
      ArrowLeft: () => report.select(report.active, report.token - 1),
      ArrowRight: () => report.select(report.active, report.token + 1),
    };
    return {
      ...(isReading ? inText : {}),
      n: () => report.nextSurprise(1),
      N: () => report.nextSurprise(-1),
      f: () => report.nextDropped(1),
      F: () => report.nextDropped(-1),
      d: () => report.nextDifference(),
      "[": () => report.moveToColumn(-1),
      "]": () => report.moveToColumn(1),
      "/": () => {
        byId("query").focus();
        byId("query").select();
      },
      l: () => report.tokenPanel.toggleUnit(),
      t: changeTheme,
      "?": () => byId("help-dialog").showModal(),
    };
  }
}
