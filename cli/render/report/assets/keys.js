// What the keys do.

/** Passes keys on to a report. */
class Keyboard {
  constructor(report) {
    this.report = report;
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help-dialog").open) return;
    if (event.target === byId("query")) return this.pressedInSearch(event);
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

  pressedInSearch(event) {
    if (event.key === "Enter") this.report.search.next(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") this.report.view(this.report.active, this.report.token).container.focus();
    else return;
    event.preventDefault();
  }

  /** What each key does. The keys that scroll do so in the panel. */
  actions(isReading) {
    const { report } = this;
    const last = report.columns[report.active].run.length - 1;
    const inText = {
      ArrowUp: () => report.otherLine(-1),
      ArrowDown: () => report.otherLine(1),
      Home: () => report.select(report.active, 0),
      End: () => report.select(report.active, last),
      ArrowLeft: () => report.select(report.active, report.token - 1),
      ArrowRight: () => report.select(report.active, report.token + 1),
    };
    return {
      ...(isReading ? inText : {}),
      n: () => report.nextSurprise(1),
      N: () => report.nextSurprise(-1),
      f: () => report.nextFallen(1),
      F: () => report.nextFallen(-1),
      d: () => report.nextDifference(),
      "[": () => report.otherColumn(-1),
      "]": () => report.otherColumn(1),
      "/": () => {
        byId("query").focus();
        byId("query").select();
      },
      l: () => report.tokenPanel.toggleUnit(),
      t: () => report.changeTheme(),
      "?": () => byId("help-dialog").showModal(),
    };
  }
}
