// Line charts with bands, drawn as SVG at the width that there is.

const TICKS_SPEED = [0.5, 0.8, 1, 1.2, 1.5, 2, 3, 5, 8];

function ticksOf(axis, low, high, log) {
  if (axis === "calls" && high <= 10) return Array.from({ length: high }, (_, k) => k + 1);
  if (!log) {
    const rough = (high - low) / 5,
      power = 10 ** Math.floor(Math.log10(rough || 1));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || 1;
    const all = [];
    for (let x = Math.ceil(low / step) * step; x <= high + 1e-9; x += step) all.push(+x.toPrecision(6));
    return axis === "calls" ? all.filter(Number.isInteger) : all;
  }
  const ladder =
    axis === "calls"
      ? Array.from({ length: 12 }, (_, k) => 2 ** k)
      : Array.from({ length: 12 }, (_, k) => [1, 2, 5].map((m) => m * 10 ** (k - 3))).flat();
  const inside = ladder.filter((x) => x >= low * 0.999 && x <= high * 1.001);
  if (axis === "calls" && high > 1.3 * inside[inside.length - 1]) inside.push(high);
  return inside.length > 8 ? inside.filter((x) => /^[1]/.test(x.toExponential())) : inside;
}

// [top, step] of an axis of shares.
function shareAxis(values) {
  const most = Math.max(0.05, ...values.filter(Number.isFinite));
  return (
    [
      [0.1, 0.02],
      [0.2, 0.05],
      [0.3, 0.05],
      [0.4, 0.1],
      [0.6, 0.1],
      [0.8, 0.2],
      [1, 0.2],
    ].find(([top]) => most <= top) || [1, 0.2]
  );
}

// series: [{run, name, points: [{x, value, low, high}]}]; step draws what is held until the next point. A curve ends
// with its last one.
function lineChart(box, { series, log, ticks, label, describe, step, marks, tall, plain }) {
  const width = Math.max(280, box.clientWidth),
    narrow = width < 560;
  const height = tall ? Math.min(430, Math.max(280, width * 0.42)) : Math.min(330, Math.max(260, width * 0.5));
  const pad = { left: 44, right: narrow || plain ? 14 : 150, top: 14, bottom: 44 };
  const all = series.flatMap((one) => one.points);
  box.replaceChildren();
  if (!all.length) {
    box.append(h("p", { class: "empty" }, "Nothing to draw with these filters."));
    return;
  }
  const xs = all.map((point) => point.x),
    low = Math.min(...xs),
    high = Math.max(...xs, low + 1e-9);
  const [top, rise] = shareAxis(all.map((point) => (Number.isFinite(point.high) ? point.high : point.value)));
  const to = log ? Math.log : (x) => x;
  const X = (x) => pad.left + ((to(x) - to(low)) / (to(high) - to(low) || 1)) * (width - pad.left - pad.right);
  const Y = (y) => height - pad.bottom - (y / top) * (height - pad.top - pad.bottom);
  const trace = (points, key) =>
    points
      .map((point, k) => {
        const x = X(point.x).toFixed(1),
          y = Y(point[key]).toFixed(1);
        return k && step ? `H${x}V${y}` : `${k ? "L" : "M"}${x},${y}`;
      })
      .join("");
  const band = (points) => {
    const kept = points.filter((point) => Number.isFinite(point.low));
    if (kept.length < 2) return "";
    const back = [...kept].reverse();
    const under = back
      .map((point, k) => {
        const x = X(point.x).toFixed(1),
          y = Y(point.low).toFixed(1);
        return k && step ? `V${y}H${x}` : `L${x},${y}`;
      })
      .join("");
    return `${trace(kept, "high")}${under}Z`;
  };

  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": label.title,
    class: series.length > 3 && "many",
  });
  for (let k = 0; k <= Math.round(top / rise); k++) {
    const y = k * rise;
    picture.append(
      svg("line", { class: k ? "grid" : "axis", x1: pad.left, x2: width - pad.right, y1: Y(y), y2: Y(y) }),
      svg("text", { class: "tick", x: pad.left - 8, y: Y(y) + 4, "text-anchor": "end" }, `${+(100 * y).toFixed(1)}%`),
    );
  }
  let free = -Infinity;
  for (const x of ticks(low, high))
    picture.append(
      svg("line", { class: "notch", x1: X(x), x2: X(x), y1: height - pad.bottom, y2: height - pad.bottom + 5 }),
      svg(
        "text",
        { class: "tick", x: X(x), y: height - pad.bottom + 19, "text-anchor": "middle" },
        X(x) > free ? ((free = X(x) + 30), label.number(x)) : "",
      ),
    );
  picture.append(
    svg(
      "text",
      { class: "axis-name", x: (pad.left + width - pad.right) / 2, y: height - 6, "text-anchor": "middle" },
      label.x,
    ),
  );
  for (const x of marks || [])
    if (x >= low && x <= high)
      picture.append(svg("line", { class: "mark", x1: X(x), x2: X(x), y1: pad.top, y2: height - pad.bottom }));
  for (const one of series)
    if (one.points.length) picture.append(svg("path", { class: `band run-${one.run % 8}`, d: band(one.points) }));
  for (const one of series) {
    if (!one.points.length) continue;
    picture.append(
      svg("path", { class: `curve run-${one.run % 8}${one.run > 7 ? " dashed" : ""}`, d: trace(one.points, "value") }),
    );
    if (one.points.length === 1 || (one.points.length < 10 && !step))
      for (const point of one.points)
        picture.append(svg("circle", { class: `dot run-${one.run % 8}`, cx: X(point.x), cy: Y(point.value), r: 2.6 }));
  }
  if (!narrow && !plain)
    endLabels(
      picture,
      series.filter((one) => one.points.length),
      X,
      Y,
      width - pad.right + 10,
      height - pad.bottom,
    );
  box.append(picture);
  hover(box, picture, { series, X, Y, pad, width, height, step, describe });
}

// Names at the ends of their curves, pushed apart where they would touch.
function endLabels(picture, series, X, Y, edge, floor) {
  const placed = series
    .map((one) => ({ one, y: Y(one.points[one.points.length - 1].value) }))
    .sort((a, b) => a.y - b.y);
  for (let k = 1; k < placed.length; k++) placed[k].y = Math.max(placed[k].y, placed[k - 1].y + 15);
  for (let k = placed.length - 1; k >= 0; k--)
    placed[k].y = Math.min(placed[k].y, k === placed.length - 1 ? floor : placed[k + 1].y - 15);
  for (const { one, y } of placed) {
    const name = one.name.length > 20 ? `${one.name.slice(0, 19)}…` : one.name;
    picture.append(
      svg("text", { class: `end run-${one.run % 8}`, x: edge, y: y + 4 }, name, svg("title", {}, one.name)),
    );
  }
}

function hover(box, picture, { series, X, Y, pad, width, height, step, describe }) {
  const places = [...new Set(series.flatMap((one) => one.points.map((point) => point.x)))].sort((a, b) => a - b);
  const guide = svg("line", { class: "guide", y1: pad.top, y2: height - pad.bottom, visibility: "hidden" });
  const note = h("div", { class: "note", hidden: true });
  picture.append(guide);
  box.append(note);
  const at = (one, x) => {
    const past = one.points.filter((point) => point.x <= x),
      point = past[past.length - 1];
    return point && (point.x === x || (step && past.length < one.points.length)) ? point : null;
  };
  picture.addEventListener("pointermove", (event) => {
    const mouse = event.clientX - picture.getBoundingClientRect().left;
    const x = places.reduce(
      (best, place) => (Math.abs(X(place) - mouse) < Math.abs(X(best) - mouse) ? place : best),
      places[0],
    );
    guide.setAttribute("x1", X(x));
    guide.setAttribute("x2", X(x));
    guide.setAttribute("visibility", "visible");
    const rows = series
      .map((one) => [one, at(one, x)])
      .filter(([, point]) => point)
      .sort((a, b) => b[1].value - a[1].value);
    note.replaceChildren(
      h("strong", {}, describe(x)),
      ...rows.map(([one, point]) =>
        h(
          "div",
          { class: `run-${one.run % 8}` },
          h("i", { class: "swatch" }),
          h("span", {}, one.name),
          h("b", {}, percent(point.value)),
          h("small", {}, bounds(point)),
        ),
      ),
    );
    note.hidden = false;
    const left = X(x) + 14,
      room = note.offsetWidth;
    note.style.setProperty("left", `${left + room > width ? Math.max(0, X(x) - room - 14) : left}px`);
  });
  picture.addEventListener("pointerleave", () => {
    note.hidden = true;
    guide.setAttribute("visibility", "hidden");
  });
}
