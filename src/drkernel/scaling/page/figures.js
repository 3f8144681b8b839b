// The figures of the overview: curves, distributions, verdicts, operators, families.

function drawCurves(box, known, found, { p, k, axis }) {
  const series = known.map((r) => {
    const { budgets, estimates, curves } = found[r];
    const points = budgets[axis].map((x, i) => ({ x, ...estimate(estimates[curves[axis][k][i]]) }));
    return { run: r, name: runs[r].name, points };
  });
  const spent = series.flatMap((one) => one.points.map((point) => point.x));
  const calls = axis === "calls",
    log = Math.max(...spent) > (calls ? 8 : 6 * Math.min(...spent));
  const words = {
    calls: ["judge calls per task", "judge call"],
    tokens: ["generated tokens per task", "token"],
    seconds: ["seconds of generating and judging per task", "second"],
  }[axis];
  lineChart(box, {
    series,
    log,
    step: !calls,
    tall: true,
    ticks: (low, high) => ticksOf(axis, low, high, log),
    label: { title: `Fast@${p} against ${words[0]}`, x: words[0], number: brief },
    describe: (x) => (calls ? plural(x, words[1]) : `${brief(x)} ${words[1]}s`),
  });
}

function drawDistribution(box, known, found, { p, baseline }) {
  const series = known.map((r) => ({
    run: r,
    name: runs[r].name,
    points: found[r].distribution.map((value, i) => ({ x: core.speedups[i], value, low: NaN, high: NaN })),
  }));
  lineChart(box, {
    series,
    log: true,
    plain: true,
    ticks: () => TICKS_SPEED,
    marks: [p],
    label: { title: "Fast@p for every p", x: `speed-up p over ${baselines[baseline]}`, number: (x) => `${x}×` },
    describe: (x) => `at least ${x.toFixed(2)}×`,
  });
}

function drawTurns(box, known, found, { k }) {
  const series = known.map((r) => ({
    run: r,
    name: runs[r].name,
    points: found[r].turns[k].map((e, place) => e && { x: place + 1, ...estimate(e) }).filter(Boolean),
  }));
  const most = Math.max(...series.map((one) => one.points.length));
  lineChart(box, {
    series,
    log: most > 10,
    plain: true,
    ticks: (low, high) => ticksOf("calls", low, high, most > 10),
    label: { title: "Fast@p of each turn", x: "turn of the chain", number: brief },
    describe: (x) => `turn ${x}`,
  });
}

// Which reasons the judge gave, as a share of each run's completions.
function verdicts(known) {
  const said = figures[choiceOfTasks()].verdicts;
  const row = (r, k) =>
    said[r].rows.find(([status, reason]) => status === reasons[k][0] && reason === reasons[k][1]) || [...reasons[k], 0, 0];
  const share = (r, k) => row(r, k)[3];
  const largest = (k) => Math.max(...known.map((r) => share(r, k)));
  const order = reasons
    .map((_, k) => k)
    .filter((k) => largest(k) > 0)
    .sort((a, b) => largest(b) - largest(a));
  const scale = Math.max(...order.map(largest)),
    name = (k) => [chip(reasons[k][0]), " ", reasons[k][1].replaceAll("_", " ")];
  if (known.length > 3)
    return h(
      "section",
      { "aria-labelledby": "verdicts" },
      h("h2", { id: "verdicts" }, "What the verdicts say"),
      legend(known),
      heatTable(
        "Verdict",
        known,
        order.slice(0, 18).map((k) => [name(k), known.map((r) => share(r, k))]),
        scale,
        true,
      ),
      h("p", { class: "caption" }, "Percent of each run's completions, all turns."),
    );
  return h(
    "section",
    { "aria-labelledby": "verdicts" },
    h("h2", { id: "verdicts" }, "What the verdicts say"),
    legend(known),
    h(
      "div",
      { class: "reasons" },
      order.slice(0, 14).map((k) =>
        h(
          "div",
          { class: "reason" },
          h("div", { class: "name" }, name(k)),
          h(
            "div",
            { class: "bars" },
            known.map((r) =>
              h(
                "div",
                { class: `run-${r % 8}`, title: `${runs[r].name}: ${row(r, k)[2]} of ${said[r].total} completions` },
                h("i", { class: "bar", style: { width: `${(78 * share(r, k)) / scale}%` } }),
                h("small", {}, percent(share(r, k))),
              ),
            ),
          ),
        ),
      ),
    ),
    h("p", { class: "caption" }, "Share of each run's completions, all turns."),
  );
}

const legend = (known) =>
  known.length > 1 &&
  h(
    "p",
    { class: "legend" },
    known.map((r) => h("span", { class: `run-${r % 8}` }, h("i", { class: "swatch" }), runs[r].name)),
  );

const chip = (status) => h("span", { class: `chip s-${status}` }, STATUS[status] || status);

// The operators of generated tasks by how often a trial solves a task that holds them, the hardest first.
function operators() {
  const rows = figures[choiceOfTasks()].operators;
  if (rows.length < 2) return null;
  const list = () => later(() => document.getElementById("tasks").scrollIntoView());
  return h(
    "section",
    { "aria-labelledby": "operators" },
    h("h2", { id: "operators" }, "Operators, hardest first"),
    h(
      "div",
      { class: "reasons operators" },
      rows
        .slice(0, 12)
        .map(([name, size, share]) =>
          h(
            "div",
            { class: "reason" },
            h(
              "div",
              { class: "name" },
              h("a", { href: address({ text: name }), onclick: list }, name.replaceAll("_", " ")),
              h("small", {}, plural(size, "task")),
            ),
            h(
              "div",
              { class: "bars" },
              h(
                "div",
                {},
                h("i", { class: "bar", style: { width: `${84 * share}%` } }),
                h("small", {}, percent(share)),
              ),
            ),
          ),
        ),
    ),
    h(
      "p",
      { class: "caption" },
      "Share of trials, of all runs, with a correct completion among the tasks that hold the operator.",
    ),
  );
}

// Families by runs; a family's name chooses it.
function families(known, found, chosen, { k }) {
  const names = [...new Set(chosen.map((t) => tasks[t][1]).filter(Boolean))].sort();
  if (names.length < 2) return null;
  const rows = names.map((name) => [
    [
      h("a", { href: address({ family: name, level: "" }) }, name.replaceAll("_", " ")),
      " ",
      h("small", {}, chosen.filter((t) => tasks[t][1] === name).length),
    ],
    known.map((r) => found[r].families[name]?.[k] ?? NaN),
  ]);
  return h(
    "section",
    { "aria-labelledby": "families" },
    h("h2", { id: "families" }, `Fast@${state.p} by family`),
    heatTable("Family, tasks", known, rows, 1),
    h("p", { class: "caption" }, "Percent of trials."),
  );
}

// Rows of [name, a share for each run] as a heat map; the strongest colour is `most`.
function heatTable(title, known, rows, most, bare = false) {
  const cell = (share) =>
    Number.isFinite(share)
      ? h(
          "td",
          { class: share > 0.55 * most ? "heat strong" : "heat", style: { "--share": (share / most).toFixed(3) } },
          most < 1 ? tenth(share) : `${Math.round(100 * share)}`,
        )
      : h("td", { class: "heat none" }, "–");
  return h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": title },
    h(
      "table",
      { class: bare ? "heatmap bare" : "heatmap" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}, title),
          known.map((r) =>
            h(
              "th",
              { class: `run-${r % 8}`, title: runs[r].name, "aria-label": runs[r].name },
              h("i", { class: "swatch" }),
              !bare && runs[r].name,
            ),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map(([name, shares]) => h("tr", {}, h("th", { scope: "row" }, name), shares.map(cell))),
      ),
    ),
  );
}
