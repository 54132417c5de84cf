// The state of the report: its pages, and the reactions to clicks and keys.

import { distributionsPage } from "./distributions.js";
import { measuresPage } from "./measures.js";
import { TextsPage } from "./texts.js";
import { VotesPage } from "./votes.js";
import { byId, element } from "./web/elements.js";
import { countText } from "./web/format.js";
import { unpacked } from "./web/packed.js";
import { changeTheme } from "./web/theme.js";

// The document as it is in the file. The script is its last element, so only the end tags are missing.
const SOURCE = `<!doctype html>\n${document.documentElement.outerHTML}\n`;
const PAGES = ["measures", "distributions", "texts", "votes"];

const panelOf = (name) => byId(name === "votes" ? "votes-panel" : name);

function openPage(name) {
  for (const page of PAGES) {
    panelOf(page).hidden = page !== name;
    byId(`tab-${page}`).setAttribute("aria-selected", String(page === name));
    byId(`tab-${page}`).tabIndex = page === name ? 0 : -1;
  }
}

/** Open the page of the next tab (`step` 1) or the previous one (-1). */
function movePage(step) {
  const shown = PAGES.filter((page) => !byId(`tab-${page}`).hidden);
  const current = shown.findIndex((page) => !panelOf(page).hidden);
  const next = shown[(current + step + shown.length) % shown.length];
  openPage(next);
  byId(`tab-${next}`).focus();
}

function listen(votes) {
  for (const page of PAGES) byId(`tab-${page}`).addEventListener("click", () => openPage(page));
  byId("theme").addEventListener("click", changeTheme);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, input")) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.target.closest("[role=tab]") && event.key in steps) movePage(steps[event.key]);
    else if (event.key === "t") changeTheme();
    else if (byId("votes-panel").hidden || !votes.press(event.key)) return;
    event.preventDefault();
  });
}

async function open() {
  if (typeof DecompressionStream === "undefined") throw new Error("it is too old to unpack the data (DecompressionStream)");
  const [result, kept] = await Promise.all([unpacked("result"), unpacked("votes")]);
  const names = result.arms.map((arm) => arm.name);
  byId("title").textContent = `${names.slice(0, 3).join(", ")}${names.length > 3 ? " …" : ""}: ${countText(result.texts.length)} texts`;
  document.title = `${byId("title").textContent} – gen compare`;
  byId("measures").append(...measuresPage(result));
  byId("tab-distributions").hidden = result.distributions === null;
  if (result.distributions !== null) byId("distributions").append(...distributionsPage(result.distributions));
  new TextsPage(result, byId("texts")).show();
  listen(new VotesPage(result, kept, byId("votes-panel"), SOURCE));
  document.documentElement.dataset.state = "ready";
}

open().catch((error) => {
  byId("measures").replaceChildren(element("p", { class: "failure" }, `This browser cannot show the report: ${error.message}`));
  document.documentElement.dataset.state = "failed";
});
