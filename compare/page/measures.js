// The measures of texts: a plot of the intervals of all arms, and what is shown about their differences.

import { element, svgElement } from "./web/elements.js";
import { countText, visible } from "./web/format.js";

const ROW_HEIGHT = 22;

/** Return the elements of the page. */
export function measuresPage(result) {
  return [
    element("h2", {}, "What was compared"),
    element("dl", { class: "arms" }, result.arms.map((arm) => [
      element("dt", {}, visible(arm.name)),
      element("dd", {}, `${visible(arm.summary)}${arm.has_chance_steps ? " (a step depends on random numbers; distances are those of the first seed)" : ""} · ${visible(arm.model)}`),
    ])),
    element("p", {}, `${countText(result.prompts.length)} prompts with ${countText(result.prompts[0].seeds.length)} seeds each. Texts of one prompt and seed are pairs.`),
    element("p", {}, element("code", {}, visible(result.command ?? ""))),
    element("h2", {}, "Measures of the texts"),
    element("p", {}, intervalNote(result)),
    result.measures.map((measure) => measureRow(measure)),
  ].flat();
}

function intervalNote(result) {
  const differences = result.adjustment === null ? "" : ` Intervals of differences are ${(result.difference_level * 100).toFixed(2)} % intervals (${result.adjustment}).`;
  return `A dot is a mean, and a line is its ${(result.level * 100).toFixed(0)} % interval. Intervals hold for ${result.holds_for}.${differences}`;
}

function measureRow(measure) {
  return element("div", { class: "measure", "data-measure": measure.name },
    element("div", {}, element("h3", {}, measure.title), element("p", { class: "note" }, measure.meaning)),
    intervalPlot(measure),
    element("ul", {}, measure.differences.map((difference) => element("li", { class: difference.shown ? "shown" : "not-shown" }, differenceText(measure, difference)))));
}

/** Return the difference of an arm in words; if none is shown, what more pairs would show. */
export function differenceText(measure, difference) {
  const number = (value) => value.toFixed(measure.decimals);
  const name = visible(difference.arm);
  if (difference.shown) {
    const direction = difference.mean > 0 ? "higher" : "lower";
    return `${name} is ${direction} by ${number(Math.abs(difference.mean))} (${number(difference.low)} to ${number(difference.high)})`;
  }
  const visibleSize = Math.abs(difference.mean) >= 0.5 * 10 ** -measure.decimals;
  const more = difference.needed_pairs === null || !visibleSize ? "" : `; ${countText(difference.needed_pairs)} pairs would show one of ${number(Math.abs(difference.mean))}`;
  return `${name}: no difference is shown${more}`;
}

/** Return a drawing of the interval of each arm, on one scale. */
function intervalPlot(measure) {
  const arms = measure.arms.filter((arm) => arm !== null);
  const low = Math.min(...arms.map((arm) => arm.low));
  const high = Math.max(...arms.map((arm) => arm.high));
  const x = (value) => `${(30 + (high > low ? (value - low) / (high - low) : 0) * 55).toFixed(3)}%`;
  const parts = arms.map((arm, row) => {
    const y = row * ROW_HEIGHT + ROW_HEIGHT / 2;
    return [
      svgElement("line", { class: "axis", x1: "30%", x2: "85%", y1: y, y2: y }),
      svgElement("text", { class: "arm-name", x: 0, y: y + 4 }, shortened(visible(arm.arm))),
      svgElement("line", { class: "interval", x1: x(arm.low), x2: x(arm.high), y1: y, y2: y }),
      svgElement("circle", { class: "mean", cx: x(arm.mean), cy: y, r: 5 }),
      svgElement("text", { x: "100%", y: y + 4, "text-anchor": "end" }, arm.mean.toFixed(measure.decimals)),
    ];
  });
  const description = arms.map((arm) => `${arm.arm} ${arm.mean.toFixed(measure.decimals)}, from ${arm.low.toFixed(measure.decimals)} to ${arm.high.toFixed(measure.decimals)}`).join("; ");
  return svgElement("svg", { class: "plot", height: arms.length * ROW_HEIGHT, role: "img", "aria-label": `${measure.title}: ${description}` }, parts);
}

function shortened(name) {
  return name.length > 20 ? `${name.slice(0, 19)}…` : name;
}
