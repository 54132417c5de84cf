// The distances between the distributions of the arms, and the places where they are largest.

import { element } from "./web/elements.js";
import { countText, probabilityText, quoted, visible } from "./web/format.js";

/** Return the elements of the page. */
export function distributionsPage(distributions) {
  const { arms } = distributions;
  return [
    element("h2", {}, "Distances between distributions"),
    element("p", {}, `Along ${visible(distributions.along)}, ${countText(arms[0].tokens)} tokens, over the whole vocabulary. Distances are those from ${visible(distributions.first)}; divergences are in nats.`),
    table(["arm", "kept tokens", "dropped mass", "total variation", "Jensen–Shannon", "KL", "KL back", "same top token"], arms.map(distanceCells)),
    element("p", { class: "note" }, "A KL divergence is infinite where one arm drops a token of the other; the mean leaves such places out, and the share of them is given."),
    ...modelTables(arms),
    ...arms.slice(1).flatMap((arm) => worstPlaces(distributions.first, arm)),
  ];
}

function distanceCells(arm) {
  const cells = [visible(arm.arm), number(arm.kept, 1), number(arm.dropped_mass, 4)];
  if (!arm.total_variation) return [...cells, "", "", "", "", ""];
  return [...cells, ...["total_variation", "jensen_shannon", "kl", "reverse_kl"].map((key) => summary(arm[key])), `${(arm.same_top * 100).toFixed(1)} %`];
}

const number = (value, decimals) => (value === null ? "–" : value.toFixed(decimals));

function summary(values) {
  const mean = values.mean === null ? "–" : values.mean.toFixed(4);
  return values.infinite ? `${mean}, ∞ at ${(values.infinite * 100).toFixed(0)} %` : mean;
}

function table(titles, rows) {
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map((cell, column) => element(column ? "td" : "th", column ? {} : { scope: "row" }, cell)))))));
}

function modelTables(arms) {
  const compared = arms.filter((arm) => arm.models);
  if (!compared.length) return [];
  return [
    element("h2", {}, "The models without chains"),
    table(["arm", "KL, mean", "median", "99 %", "maximum", "same top token", "perplexity", "first model’s"], compared.map(({ arm, models }) => [
      visible(arm), `${models.kl.mean.toFixed(6)} ± ${models.kl.standard_error.toFixed(6)}`, models.kl.median.toFixed(6),
      models.kl.p99.toFixed(6), models.kl.max.toFixed(6), `${(models.same_top * 100).toFixed(2)} %`,
      models.other_perplexity.toFixed(4), models.perplexity.toFixed(4),
    ])),
  ];
}

function worstPlaces(first, arm) {
  return [
    element("h2", {}, `Where ${visible(arm.arm)} is farthest from ${visible(first)}`),
    element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, ["total variation", "text before the token", `tokens, with their probabilities in ${visible(first)} and ${visible(arm.arm)}`].map((title, column) => element("th", { scope: "col", class: column ? "words" : null }, title)))),
      element("tbody", {}, arm.worst.map((place) => element("tr", {},
        element("td", {}, place.total_variation.toFixed(3)),
        element("td", { class: "words" }, `${visible(place.before)} (${visible(place.label)}, token ${countText(place.position)})`),
        element("td", { class: "words" }, place.tokens.map((token) => `${quoted(token.token)} ${probabilityText(token.first)}, ${probabilityText(token.other)}`).join(" · "))))))),
  ];
}
