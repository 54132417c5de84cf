// Charts: the entropy of all tokens of a run, the entropy after each stage, and the draw of a token.

import { svgElement } from "./elements.js";
import { countText, numberText, quoted, stepLabel, visible } from "./format.js";

const CHART_HEIGHT = 100;
const MAX_BARS = 600;

/** Return a chart of the entropy and surprise of all tokens. A click calls `select` with the index of a token. */
export function makeTimeline(run, select) {
  const width = Math.max(run.length, 1);
  const step = Math.max(1, Math.ceil(run.length / MAX_BARS));
  const maxEntropy = run.entropies.reduce((maximum, value) => Math.max(maximum, value ?? 0), 0);
  const maxSurprise = run.logprobs.reduce((maximum, value) => Math.max(maximum, -(value ?? 0)), 0);
  const top = Math.max(maxEntropy, Math.min(maxSurprise, 12), 1e-9);
  const y = (value) => CHART_HEIGHT * (1 - (0.92 * Math.min(value, top)) / top);
  const curve = [];
  const bars = [];
  for (let start = 0; start < run.length; start += step) {
    const entropies = run.entropies.slice(start, start + step).filter((value) => value !== null);
    const surprises = run.logprobs.slice(start, start + step).filter((value) => value !== null);
    const middle = Math.min(start + step / 2, width);
    if (entropies.length) {
      const mean = entropies.reduce((sum, value) => sum + value, 0) / entropies.length;
      curve.push(`${middle.toFixed(1)} ${y(mean).toFixed(1)}`);
    }
    if (surprises.length) bars.push(`M${middle.toFixed(1)} ${CHART_HEIGHT}V${y(-Math.min(...surprises)).toFixed(1)}`);
  }
  const marker = svgElement("path", { class: "marker", d: "" });
  const chart = svgElement(
    "svg",
    { class: "timeline", viewBox: `0 0 ${width} ${CHART_HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Surprise and entropy of ${countText(run.length)} tokens; maximum entropy ${numberText(maxEntropy)} nats` },
    svgElement("path", { class: "bars", d: bars.join("") }),
    svgElement("path", { class: "curve", d: curve.length ? `M${curve.join("L")}` : "" }),
    svgElement("path", { class: "ticks", d: run.droppedTopIndices.map((index) => `M${index + 0.5} 0v7`).join("") }),
    marker,
  );
  chart.addEventListener("click", (event) => {
    const box = chart.getBoundingClientRect();
    const index = Math.floor(((event.clientX - box.left) / box.width) * run.length);
    select(Math.max(0, Math.min(index, run.length - 1)));
  });
  return { chart, mark: (index) => marker.setAttribute("d", `M${index + 0.5} 0V${CHART_HEIGHT}`) };
}

const CURVE_HEIGHT = 96;
const CURVE_TOP = 22;
const CURVE_BOTTOM = 80;

/** Return a chart of the entropy after each stage. The steps have their indices; a table has their names. */
export function entropyCurve(stages) {
  const entropies = stages.map((stage) => stage.entropy ?? null);
  const maximum = Math.max(...entropies.map((value) => value ?? 0), 1e-9);
  const x = (stage) => `${(((stage + 0.5) / stages.length) * 100).toFixed(2)}%`;
  const y = (value) => CURVE_BOTTOM - ((CURVE_BOTTOM - CURVE_TOP) * value) / maximum;
  const parts = [svgElement("line", { class: "axis", x1: "0", x2: "100%", y1: CURVE_BOTTOM, y2: CURVE_BOTTOM })];
  entropies.forEach((value, stage) => {
    if (value === null) return;
    const before = entropies[stage - 1] ?? null;
    if (before !== null) {
      parts.push(svgElement("line", { class: "curve", x1: x(stage - 1), y1: y(before), x2: x(stage), y2: y(value) }));
    }
    parts.push(svgElement("circle", { class: "point", cx: x(stage), cy: y(value), r: 3 }));
    parts.push(svgElement("text", { x: x(stage), y: y(value) - 8, class: "value" }, numberText(value, 2)));
    parts.push(svgElement("text", { x: x(stage), y: CURVE_HEIGHT - 3, class: "tick" }, stepLabel(stages[stage])));
  });
  const description = stages.map((stage) => `${stepLabel(stage)} ${visible(stage.name)}: ${numberText(stage.entropy)}`.trim()).join(", ");
  return svgElement("svg", { class: "entropy", height: CURVE_HEIGHT, role: "img", "aria-label": `Entropy in nats after each stage. ${description}` }, parts);
}

const DRAW_TOP = 20;
const DRAW_HEIGHT = 30;
const LABEL_CHARACTER_WIDTH = 6.5;

/**
 * Return a bar from 0 to 1 with the intervals of the candidates, and the random number u.
 * `width` is the width of the bar in pixels. An interval has a label if the label fits.
 */
export function drawBar(trace, run, intervals, width) {
  const percent = (share) => `${(Math.max(0, Math.min(share, 1)) * 100).toFixed(3)}%`;
  const { u, low, high } = trace.draw;
  const parts = [svgElement("rect", { class: "others", x: 0, y: DRAW_TOP, width: "100%", height: DRAW_HEIGHT })];
  intervals.forEach((interval, number) => {
    if (interval.candidate === null) return;
    const size = interval.high - interval.low;
    const kind = interval.candidate.isChosen ? "chosen" : number % 2 ? "odd" : "even";
    parts.push(svgElement("rect", { class: `part ${kind}`, x: percent(interval.low), y: DRAW_TOP, width: percent(size), height: DRAW_HEIGHT }));
    const label = quoted(run.contentOf(interval.candidate.id));
    if (size * width >= label.length * LABEL_CHARACTER_WIDTH) {
      parts.push(svgElement("svg", { x: percent(interval.low), y: DRAW_TOP, width: percent(size), height: DRAW_HEIGHT },
        svgElement("text", { x: "50%", y: DRAW_HEIGHT / 2 + 4, class: `label ${kind}` }, label)));
    }
  });
  parts.push(svgElement("line", { class: "needle", x1: percent(u), x2: percent(u), y1: DRAW_TOP - 5, y2: DRAW_TOP + DRAW_HEIGHT + 5 }));
  const anchor = u < 0.1 ? "start" : u > 0.9 ? "end" : "middle";
  parts.push(svgElement("text", { class: "u", x: percent(u), y: DRAW_TOP - 8, "text-anchor": anchor }, `u = ${u.toFixed(4)}`));
  const bottom = DRAW_TOP + DRAW_HEIGHT + 17;
  parts.push(svgElement("text", { class: "tick", x: "0", y: bottom, "text-anchor": "start" }, "0"));
  parts.push(svgElement("text", { class: "tick", x: "100%", y: bottom, "text-anchor": "end" }, "1"));
  const description = `The draw: u = ${u.toFixed(4)} lies in ${low.toFixed(4)} to ${high.toFixed(4)}`;
  return svgElement("svg", { class: "draw", height: bottom + 4, role: "img", "aria-label": description }, parts);
}
