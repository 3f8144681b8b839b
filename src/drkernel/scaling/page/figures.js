// The figures of the overview: curves, distributions, verdicts, operators, families.

function drawCurves(box, known, chosen, options) {
  const spent = known.flatMap((r) =>
    trialsFor(r, chosen, options.baseline)
      .flat()
      .map((trial) => [r, standing(trial, "last", options.axis, "eager").map((step) => step.spent)]),
  );
  if (!spent.length) {
    lineChart(box, { series: [] });
    return;
  }
  const ends = new Map(
    known.map((r) => [
      r,
      Math.max(0, ...spent.filter(([run]) => run === r).map(([, costs]) => costs[costs.length - 1])),
    ]),
  );
  const most = Math.max(...ends.values());
  if (!(most > 0)) {
    lineChart(box, { series: [] });
    return;
  }
  const least = Math.max(1e-3, Math.min(...spent.map(([, costs]) => costs[0])));
  const calls = options.axis === "calls";
  const budgets = calls
    ? Array.from({ length: most }, (_, k) => k + 1)
    : Array.from({ length: 33 }, (_, k) => least * (most / least) ** (k / 32));
  const series = known.map((r) => {
    const end = ends.get(r),
      mine = end > 0 ? [...budgets.filter((budget) => budget < end), end] : [];
    return {
      run: r,
      name: runs[r].name,
      points: curve(r, chosen, options, mine).map((e, k) => ({ x: mine[k], ...e })),
    };
  });
  const words = {
    calls: ["judge calls per task", "judge call"],
    tokens: ["generated tokens per task", "token"],
    seconds: ["seconds of generating and judging per task", "second"],
  }[options.axis];
  const log = most > (calls ? 8 : 6 * least);
  lineChart(box, {
    series,
    log,
    step: !calls,
    tall: true,
    ticks: (low, high) => ticksOf(options.axis, low, high, log),
    label: { title: `Fast@${options.p} against ${words[0]}`, x: words[0], number: brief },
    describe: (x) => (calls ? plural(x, words[1]) : `${brief(x)} ${words[1]}s`),
  });
}

function drawSpread(box, known, chosen, options) {
  const ps = Array.from({ length: 61 }, (_, k) => 0.5 * 16 ** (k / 60));
  const series = known.map((r) => {
    const groups = trialsFor(r, chosen, options.baseline),
      all = groups.flat().length;
    const ends = groups
      .flat()
      .map((trial) => standing(trial, options.view, "calls", options.baseline).pop())
      .filter((end) => end.correct);
    return {
      run: r,
      name: runs[r].name,
      points: all
        ? ps.map((x) => ({ x, value: ends.filter((end) => end.speedup >= x).length / all, low: NaN, high: NaN }))
        : [],
    };
  });
  lineChart(box, {
    series,
    log: true,
    plain: true,
    ticks: () => TICKS_SPEED,
    marks: [options.p],
    label: { title: "Fast@p for every p", x: `speed-up p over ${baselines[options.baseline]}`, number: (x) => `${x}×` },
    describe: (x) => `at least ${x.toFixed(2)}×`,
  });
}

function drawTurns(box, known, chosen, options) {
  const series = known.map((r) => ({
    run: r,
    name: runs[r].name,
    points: perTurn(r, chosen, options)
      .map((e, k) => ({ x: k + 1, ...e }))
      .filter((e) => e.samples),
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

// Which reasons the judge gave, as a share of each run's answers.
function verdicts(known, chosen) {
  const inside = new Set(chosen),
    counts = new Map(known.map((r) => [r, new Array(reasons.length).fill(0)]));
  for (let i = 0; i < count; i++)
    if (inside.has(turns.task[i]) && counts.has(turns.run[i])) counts.get(turns.run[i])[turns.reason[i]]++;
  const totals = new Map(known.map((r) => [r, counts.get(r).reduce((a, b) => a + b, 0)]));
  const share = (r, k) => counts.get(r)[k] / (totals.get(r) || 1);
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
      h("p", { class: "caption" }, "Percent of each run's answers, all turns."),
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
                { class: `run-${r % 8}`, title: `${runs[r].name}: ${counts.get(r)[k]} of ${totals.get(r)} answers` },
                h("i", { class: "bar", style: { width: `${(78 * share(r, k)) / scale}%` } }),
                h("small", {}, percent(share(r, k))),
              ),
            ),
          ),
        ),
      ),
    ),
    h("p", { class: "caption" }, "Share of each run's answers, all turns."),
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
function operators(known, chosen) {
  const found = new Map();
  for (const t of chosen) {
    const name = tasks[t][0].match(/^generated\/([^/]+)\//);
    const mine = trialsOf[t].filter((trial) => known.includes(trial.run));
    if (!name || !mine.length) continue;
    const right = mine.filter((trial) => range(trial.from, trial.to).some(isOk)).length;
    for (const part of new Set(name[1].split("+"))) {
      const row = found.get(part) || { part, tasks: 0, right: 0, trials: 0 };
      found.set(part, { part, tasks: row.tasks + 1, right: row.right + right, trials: row.trials + mine.length });
    }
  }
  const rows = [...found.values()].sort((a, b) => a.right / a.trials - b.right / b.trials);
  if (rows.length < 2) return null;
  return h(
    "section",
    { "aria-labelledby": "operators" },
    h("h2", { id: "operators" }, "Operators, hardest first"),
    h(
      "div",
      { class: "reasons operators" },
      rows
        .slice(0, 12)
        .map((row) =>
          h(
            "div",
            { class: "reason" },
            h(
              "div",
              { class: "name" },
              h("a", { href: address({ text: row.part }) }, row.part.replaceAll("_", " ")),
              h("small", {}, plural(row.tasks, "task")),
            ),
            h(
              "div",
              { class: "bars" },
              h(
                "div",
                {},
                h("i", { class: "bar", style: { width: `${(84 * row.right) / row.trials}%` } }),
                h("small", {}, percent(row.right / row.trials)),
              ),
            ),
          ),
        ),
    ),
    h(
      "p",
      { class: "caption" },
      "Share of trials, of all runs shown, with a correct answer among the tasks that hold the operator.",
    ),
  );
}

// Families by runs; a family's name chooses it.
function families(known, chosen, options) {
  const names = [...new Set(chosen.map((t) => tasks[t][1]).filter(Boolean))].sort();
  if (names.length < 2) return null;
  const k = thresholds.indexOf(options.p);
  const share = (r, mine) => {
    const ends = trialsFor(r, mine, options.baseline)
      .flat()
      .map((trial) => standing(trial, options.view, "calls", options.baseline).pop());
    return ends.filter((end) => end.correct && end.speedup >= thresholds[k]).length / ends.length;
  };
  const rows = names.map((name) => {
    const mine = chosen.filter((t) => tasks[t][1] === name);
    return [
      [h("a", { href: address({ family: name }) }, name.replaceAll("_", " ")), " ", h("small", {}, mine.length)],
      known.map((r) => share(r, mine)),
    ];
  });
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
