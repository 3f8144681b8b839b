// The curves of a run, small and many: each panel has an axis of its own.

const PANELS = [
  ["Reward", "mean over turns; validation at the last turn", ["reward", "trained/reward", "validation/reward"]],
  ["Correct", "share of turns; validation at the last turn and after a single try",
    ["correct", "validation/correct", "validation/first/correct"]],
  ["Fast@1.2", "share that is correct and 1.2 times as fast", ["fast@1.2", "validation/fast@1.2", "validation/first/fast@1.2"]],
  ["Speed-up and coverage", "means over correct turns", ["speedup", "coverage"]],
  ["Hacks and lazy", "shares of turns", ["hack", "lazy", "validation/hack"]],
  ["Groups", "shares of the groups of a step", ["groups/all_solved", "groups/none_solved", "groups/with_signal", "groups/dropped"]],
  ["Supervised loss", "nats per token, of what is held out", ["held_out"]],
  ["Entropy", "nats per token", ["entropy"]],
  ["Gradient norm", "before clipping", ["grad_norm"]],
  ["Learning rate", "", ["lr"]],
  ["Kept", "shares that train", ["kept", "zero_variance/kept", "prs/kept", "mrs/kept"]],
  ["Completion", "tokens", ["length/completion", "length/completion_max"]],
  ["Cut or without code", "shares of turns", ["truncated", "no_code"]],
  ["Seconds of a step", "by part",
    ["time/generate", "time/judge", "time/update", "time/prepare", "time/rollout", "time/sync", "time/validation"]],
];

const numberOf = (value) => (typeof value === "number" ? value : NaN);
const short = (x) =>
  !Number.isFinite(x) ? "–" : x === 0 ? "0" : Math.abs(x) < 1e-3 || Math.abs(x) >= 1e5 ? x.toExponential(1) : `${+x.toPrecision(3)}`;

// [{name, points: [{x, value, low, high}]}] of those metrics that the run has.
function seriesOf(names) {
  return names
    .map((name) => ({
      name,
      points: core.metrics
        .map((line) => ({
          x: line.step,
          value: numberOf(line[name]),
          low: numberOf(line[`${name}/low`]),
          high: numberOf(line[`${name}/high`]),
        }))
        .filter((point) => Number.isFinite(point.value)),
    }))
    .filter((one) => one.points.length);
}

function curvesSection() {
  const grid = h("div", { class: "panels" });
  for (const [title, note, names] of PANELS) {
    const series = seriesOf(names);
    if (series.length) grid.append(panelOf(title, note, series));
  }
  const rest = [...new Set(core.metrics.flatMap(Object.keys))].filter((name) => name !== "step" && seriesOf([name]).length).sort();
  const other = h("div", {});
  const draw = (name) => other.replaceChildren(panelOf(name, "", seriesOf([name])));
  if (rest.length) draw(rest[0]);
  return h(
    "section",
    {},
    h("h2", {}, "Curves"),
    grid,
    h("details", { class: "any" }, h("summary", {}, "Any other metric"),
      menu("metric", rest.map((name) => [name, name]), rest[0], draw), other),
  );
}

// One panel: its lines, and under the pointer the values of a step.
function panelOf(title, note, series) {
  const WIDTH = 380, HEIGHT = 190, left = 46, right = 10, top = 10, bottom = 24;
  const points = series.flatMap((one) => one.points);
  const xs = points.map((point) => point.x);
  const values = points.flatMap((point) => [point.value, point.low, point.high]).filter(Number.isFinite);
  let low = Math.min(0, ...values), high = Math.max(...values, low);
  if (low === high) high = low + 1;
  const first = Math.min(...xs), last = Math.max(...xs);
  const X = (x) => left + (last === first ? 0.5 : (x - first) / (last - first)) * (WIDTH - left - right);
  const Y = (y) => top + (1 - (y - low) / (high - low)) * (HEIGHT - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const part of [0, 0.5, 1]) {
    const y = low + part * (high - low);
    picture.append(
      svg("line", { class: part ? "grid" : "axis", x1: left, x2: WIDTH - right, y1: Y(y), y2: Y(y) }),
      svg("text", { class: "tick", x: left - 6, y: Y(y) + 4, "text-anchor": "end" }, short(y)),
    );
  }
  for (const x of new Set([first, last]))
    picture.append(svg("text", { class: "tick", x: X(x), y: HEIGHT - 8, "text-anchor": x === first ? "start" : "end" }, `${x}`));
  if (core.best)
    if (core.best.step >= first && core.best.step <= last)
      picture.append(svg("line", { class: "mark", x1: X(core.best.step), x2: X(core.best.step), y1: top, y2: HEIGHT - bottom }));
  series.forEach((one, k) => {
    const path = one.points.map((point, i) => `${i ? "L" : "M"}${X(point.x).toFixed(1)},${Y(point.value).toFixed(1)}`).join("");
    picture.append(svg("path", { class: `curve run-${k % 8}`, d: path }));
    for (const point of one.points) {
      if (Number.isFinite(point.low))
        picture.append(svg("line", { class: `interval run-${k % 8}`, x1: X(point.x), x2: X(point.x), y1: Y(point.low), y2: Y(point.high) }));
      if (one.points.length < 30) picture.append(svg("circle", { class: `dot run-${k % 8}`, cx: X(point.x), cy: Y(point.value), r: 2.4 }));
    }
  });
  const legend = h("p", { class: "legend" });
  const guide = svg("line", { class: "guide", y1: top, y2: HEIGHT - bottom, visibility: "hidden" });
  picture.append(guide);
  const tell = (x) =>
    legend.replaceChildren(
      h("span", {}, `step ${x}`),
      ...series.map((one, k) => {
        const point = one.points.find((each) => each.x === x);
        return h("span", { class: `run-${k % 8}` }, h("i", { class: "swatch" }), `${one.name} `, h("b", {}, point ? short(point.value) : "–"));
      }),
    );
  const steps = [...new Set(xs)];
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), mouse = ((event.clientX - box.left) / box.width) * WIDTH;
    const x = steps.reduce((best, each) => (Math.abs(X(each) - mouse) < Math.abs(X(best) - mouse) ? each : best), steps[0]);
    guide.setAttribute("x1", X(x));
    guide.setAttribute("x2", X(x));
    guide.setAttribute("visibility", "visible");
    tell(x);
  });
  picture.addEventListener("pointerleave", () => {
    guide.setAttribute("visibility", "hidden");
    tell(last);
  });
  picture.addEventListener("click", (event) => {
    const at = Number(legend.firstChild.textContent.slice(5));
    const file = core.files.findIndex((each) => each.kind === "step" && each.step === at);
    if (file >= 0) location.hash = `${fileName(core.files[file])}`;
  });
  tell(last);
  return h("figure", { class: "panel" }, h("h3", {}, title, note && h("small", {}, ` ${note}`)), h("div", { class: "chart" }, picture), legend);
}
