// Drawings: the entropy along a run, the entropy from stage to stage, and the draw.

const CHART_HEIGHT = 100;
const MOST_BARS = 600;

/** Entropy and surprise along a run. A click chooses the token there. `select` gets its index. */
function timeline(run, select) {
  const width = Math.max(run.length, 1);
  const step = Math.max(1, Math.ceil(run.length / MOST_BARS));
  const highest = run.entropies.reduce((high, value) => Math.max(high, value ?? 0), 0);
  const deepest = run.logprobs.reduce((deep, value) => Math.max(deep, -(value ?? 0)), 0);
  const top = Math.max(highest, Math.min(deepest, 12), 1e-9);
  const y = (value) => CHART_HEIGHT * (1 - (0.92 * Math.min(value, top)) / top);
  const line = [];
  const bars = [];
  for (let start = 0; start < run.length; start += step) {
    const entropies = run.entropies.slice(start, start + step).filter((value) => value !== null);
    const surprises = run.logprobs.slice(start, start + step).filter((value) => value !== null);
    const middle = Math.min(start + step / 2, width);
    if (entropies.length) {
      const mean = entropies.reduce((sum, value) => sum + value, 0) / entropies.length;
      line.push(`${middle.toFixed(1)} ${y(mean).toFixed(1)}`);
    }
    if (surprises.length) bars.push(`M${middle.toFixed(1)} ${CHART_HEIGHT}V${y(-Math.min(...surprises)).toFixed(1)}`);
  }
  const marker = shape("path", { class: "marker", d: "" });
  const chart = shape(
    "svg",
    { class: "timeline", viewBox: `0 0 ${width} ${CHART_HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Surprise and entropy of ${countText(run.length)} tokens; entropy at most ${numberText(highest)} nats` },
    shape("path", { class: "bars", d: bars.join("") }),
    shape("path", { class: "curve", d: line.length ? `M${line.join("L")}` : "" }),
    shape("path", { class: "ticks", d: run.fallenAt.map((index) => `M${index + 0.5} 0v7`).join("") }),
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
const CURVE_FLOOR = 80;

/** The entropy after each stage, with its place in the chain; the names stand in the table below. */
function entropyCurve(stages) {
  const known = stages.map((stage) => stage.entropy ?? null);
  const highest = Math.max(...known.map((value) => value ?? 0), 1e-9);
  const x = (stage) => `${(((stage + 0.5) / stages.length) * 100).toFixed(2)}%`;
  const y = (value) => CURVE_FLOOR - ((CURVE_FLOOR - CURVE_TOP) * value) / highest;
  const parts = [shape("line", { class: "axis", x1: "0", x2: "100%", y1: CURVE_FLOOR, y2: CURVE_FLOOR })];
  known.forEach((value, stage) => {
    if (value === null) return;
    const before = known[stage - 1] ?? null;
    if (before !== null) {
      parts.push(shape("line", { class: "curve", x1: x(stage - 1), y1: y(before), x2: x(stage), y2: y(value) }));
    }
    parts.push(shape("circle", { class: "point", cx: x(stage), cy: y(value), r: 3 }));
    parts.push(shape("text", { x: x(stage), y: y(value) - 8, class: "value" }, numberText(value, 2)));
    parts.push(shape("text", { x: x(stage), y: CURVE_HEIGHT - 3, class: "tick" }, placeInChain(stages[stage])));
  });
  const words = stages.map((stage) => `${placeInChain(stage)} ${visible(stage.name)}: ${numberText(stage.entropy)}`.trim()).join(", ");
  return shape("svg", { class: "entropy", height: CURVE_HEIGHT, role: "img", "aria-label": `Entropy in nats after each stage. ${words}` }, parts);
}

const DRAW_TOP = 20;
const DRAW_HEIGHT = 30;
const LABEL_CHARACTER_WIDTH = 6.5;

/**
 * The candidates as parts of a bar from 0 to 1, and the number u that was drawn. `width`: that of the bar, in pixels;
 * a part has a label if it has room for it.
 */
function drawBar(trace, run, intervals, width) {
  const percent = (share) => `${(Math.max(0, Math.min(share, 1)) * 100).toFixed(3)}%`;
  const { u, low, high } = trace.draw;
  const parts = [shape("rect", { class: "others", x: 0, y: DRAW_TOP, width: "100%", height: DRAW_HEIGHT })];
  intervals.forEach((interval, number) => {
    if (interval.candidate === null) return;
    const size = interval.high - interval.low;
    const kind = interval.candidate.isChosen ? "chosen" : number % 2 ? "odd" : "even";
    parts.push(shape("rect", { class: `part ${kind}`, x: percent(interval.low), y: DRAW_TOP, width: percent(size), height: DRAW_HEIGHT }));
    const label = quoted(run.piece(interval.candidate.id));
    if (size * width >= label.length * LABEL_CHARACTER_WIDTH) {
      parts.push(shape("svg", { x: percent(interval.low), y: DRAW_TOP, width: percent(size), height: DRAW_HEIGHT },
        shape("text", { x: "50%", y: DRAW_HEIGHT / 2 + 4, class: `label ${kind}` }, label)));
    }
  });
  parts.push(shape("line", { class: "needle", x1: percent(u), x2: percent(u), y1: DRAW_TOP - 5, y2: DRAW_TOP + DRAW_HEIGHT + 5 }));
  const anchor = u < 0.1 ? "start" : u > 0.9 ? "end" : "middle";
  parts.push(shape("text", { class: "u", x: percent(u), y: DRAW_TOP - 8, "text-anchor": anchor }, `u = ${u.toFixed(4)}`));
  const bottom = DRAW_TOP + DRAW_HEIGHT + 17;
  parts.push(shape("text", { class: "tick", x: "0", y: bottom, "text-anchor": "start" }, "0"));
  parts.push(shape("text", { class: "tick", x: "100%", y: bottom, "text-anchor": "end" }, "1"));
  const words = `The draw: u = ${u.toFixed(4)} lies in ${low.toFixed(4)} to ${high.toFixed(4)}`;
  return shape("svg", { class: "draw", height: bottom + 4, role: "img", "aria-label": words }, parts);
}
