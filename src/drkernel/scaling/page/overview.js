// The overview: filters, cards and the table of runs; its figures are in figures.js.

function overview(main) {
  const chosen = chosenTasks(),
    shown = shownRuns(),
    p = Number(state.p);
  const options = { p, k: thresholds.indexOf(p), axis: state.axis, view: state.view, baseline: state.baseline };
  const found = reached(options);
  const known = shown.filter((r) => found[r]);
  main.append(filters(chosen.length));
  if (!known.length) {
    main.append(h("p", { class: "empty" }, "No task is left with these filters."));
    return;
  }
  main.append(cards(known, found, options), runTable(known, found, options));

  const [curves, spread, places] = Array.from({ length: 3 }, () => h("div", { class: "chart" }));
  const deep = Math.max(...turns.turn) > 0;
  main.append(
    h(
      "section",
      { "aria-labelledby": "curves" },
      h(
        "div",
        { class: "heading" },
        h("h2", { id: "curves" }, `Fast@${state.p} against budget`),
        choice(
          "Budget",
          [
            ["calls", "judge calls"],
            ["tokens", "tokens"],
            ["seconds", "seconds"],
          ],
          state.axis,
          (axis) => change({ axis }),
        ),
      ),
      curves,
      h(
        "p",
        { class: "caption" },
        `Share of trials whose ${state.view === "best" ? "best completion so far" : "last completion"} is correct, honest and `,
        `at least ${state.p} times as fast as ${baselines[state.baseline]}. Bands: 95 % intervals, tasks resampled.`,
      ),
    ),
  );
  main.append(
    h(
      "div",
      { class: "pair" },
      h(
        "div",
        {},
        h(
          "section",
          { "aria-labelledby": "spread" },
          h("h2", { id: "spread" }, "How fast"),
          legend(known),
          spread,
          h(
            "p",
            { class: "caption" },
            "Share of trials that end at least so many times as fast as the reference: Fast@p for every p.",
          ),
        ),
        deep &&
          h(
            "section",
            { "aria-labelledby": "turns" },
            h("h2", { id: "turns" }, "Turn by turn"),
            legend(known),
            places,
            h(
              "p",
              { class: "caption" },
              `Fast@${state.p} of the completions at each place of their chain, each for itself.`,
            ),
          ),
      ),
      verdicts(known),
    ),
  );
  const grid = families(known, found, chosen, options),
    parts = operators();
  main.append(
    grid && parts && known.length < 5 ? h("div", { class: "pair" }, grid, parts) : h("div", {}, grid, parts),
    taskList(known),
  );
  drawCurves(curves, known, found, options);
  drawDistribution(spread, known, found, options);
  if (deep) drawTurns(places, known, found, options);
}

function filters(left) {
  const off = hidden();
  const levels = [...new Set(tasks.map((task) => task[2]).filter((level) => level !== null))].sort();
  const names = [...new Set(tasks.map((task) => task[1]).filter(Boolean))].sort();
  const toggle = (r) => {
    off.has(r) ? off.delete(r) : off.add(r);
    change({ hide: [...off].sort().join(",") });
  };
  const narrowed = state.level || state.family || state.text || state.hide || state.status;
  return h(
    "div",
    { class: "filters", role: "search" },
    h(
      "div",
      { class: "runs", role: "group", "aria-label": "runs" },
      runs.map((run, r) =>
        h(
          "button",
          {
            type: "button",
            id: `run-${r}`,
            class: `run run-${r % 8}`,
            "aria-pressed": String(!off.has(r)),
            onclick: () => toggle(r),
          },
          h("i", { class: "swatch" }),
          run.name,
        ),
      ),
    ),
    h(
      "div",
      { class: "row" },
      choice(
        "Fast@",
        thresholds.map((p) => [String(p), String(p)]),
        state.p,
        (p) => change({ p }),
      ),
      choice(
        "Answer",
        [
          ["best", "best so far"],
          ["last", "last"],
        ],
        state.view,
        (view) => change({ view }),
      ),
      Object.keys(baselines).length > 1 &&
        menu("Against", Object.entries(baselines), state.baseline, (baseline) => change({ baseline })),
      levels.length > 1 &&
        menu("Level", [["", "all"], ...levels.map((level) => [level, level])], state.level, (level) =>
          change({ level, family: "" }),
        ),
      names.length > 1 &&
        menu("Family", [["", "all"], ...names.map((name) => [name, name])], state.family, (family) =>
          change({ family, level: "" }),
        ),
      narrowed &&
        h(
          "span",
          { class: "left" },
          plural(left, "task"),
          " · ",
          h("a", { href: address({ level: "", family: "", text: "", hide: "", status: "" }) }, "show all"),
        ),
    ),
  );
}

let timer = 0;
function later(action) {
  clearTimeout(timer);
  timer = setTimeout(action, 180);
}

function cards(known, found, { p, k }) {
  const best = (read) => known.reduce((a, b) => (!(read(found[a])[0] >= read(found[b])[0]) ? b : a));
  const card = (title, read, text, interval) => {
    const run = best(read),
      shown = estimate(read(found[run]));
    return h(
      "div",
      { class: `card run-${run % 8}` },
      h("h3", {}, title),
      h("p", { class: "figure" }, text(shown.value)),
      h(
        "p",
        { class: "by" },
        known.length > 1 && [h("i", { class: "swatch" }), runs[run].name, " "],
        h("small", {}, interval(shown)),
      ),
    );
  };
  const worst = known.reduce((a, b) => (found[b].honest[0] < found[a].honest[0] ? b : a));
  const fewest = estimate(found[worst].honest);
  return h(
    "div",
    { class: "cards" },
    card(`Fast@${p}`, (s) => s.fast[k], percent, bounds),
    card("Correct", (s) => s.correct, percent, bounds),
    card("Speed-up where correct", (s) => s.speedup, times, timesBounds),
    h(
      "div",
      { class: `card run-${worst % 8}` },
      h("h3", {}, known.length > 1 ? "Honest completions, fewest" : "Honest completions"),
      h("p", { class: "figure" }, percent(fewest.value)),
      h(
        "p",
        { class: "by" },
        known.length > 1 && [h("i", { class: "swatch" }), runs[worst].name, " "],
        h("small", {}, bounds(fewest)),
      ),
    ),
  );
}

function runTable(known, found, options) {
  const first = known[0];
  const cell = (text, small, bar) =>
    h(
      "td",
      bar === undefined ? {} : { class: "barred", style: { "--share": Number.isFinite(bar) ? bar : 0 } },
      h("b", {}, text),
      h("small", {}, small),
    );
  const changeOf = (r) => found[r].paired[first]?.[options.k];
  const usual = Math.max(...known.map((r) => changeOf(r)?.[3] ?? 0));
  const body = known.map((r) => {
    const s = found[r],
      [correct, honest, speedup] = [s.correct, s.honest, s.speedup].map(estimate);
    const change = changeOf(r) && { ...estimate(changeOf(r)), calls: changeOf(r)[3] };
    const signed = (x) => `${x >= 0 ? "+" : ""}${tenth(x).replace("-", "−")}`;
    const between = (e) => (e.low < e.high ? `[${signed(e.low)}, ${signed(e.high)}] ` : "");
    return h(
      "tr",
      { class: `run-${r % 8}` },
      h(
        "th",
        { scope: "row" },
        h("i", { class: "swatch" }),
        runs[r].name,
        h("small", {}, `${plural(s.trials, "trial")} on ${plural(s.tasks, "task")}`),
      ),
      cell(percent(correct.value), bounds(correct), correct.value),
      s.fast.map(estimate).map((share) => cell(percent(share.value), bounds(share), share.value)),
      cell(times(speedup.value), timesBounds(speedup)),
      cell(percent(honest.value), bounds(honest)),
      known.length > 1 &&
        (change
          ? cell(signed(change.value), between(change) + (change.calls < usual ? `at ${plural(change.calls, "call")}` : ""))
          : h("td", { class: "none" }, r === first ? "reference" : "–")),
      cell(brief(s.calls), `${brief(s.tokens)} tok · ${brief(s.seconds)} s`),
    );
  });
  const chosenP = (p) => (p === options.p ? { class: "chosen", "aria-current": "true" } : {});
  return h(
    "section",
    { "aria-labelledby": "runs" },
    h("h2", { id: "runs" }, "Runs"),
    h(
      "div",
      { class: "wide", tabindex: "0", role: "region", "aria-label": "table of runs" },
      h(
        "table",
        { class: "numbers" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Run"),
            h("th", { scope: "col" }, "Correct"),
            thresholds.map((p) => h("th", { scope: "col", ...chosenP(p) }, `Fast@${p}`)),
            h("th", { scope: "col" }, "Speed-up"),
            h("th", { scope: "col" }, "Honest"),
            known.length > 1 &&
              h(
                "th",
                { scope: "col", title: `Fast@${options.p}, paired by task, at equal judge calls` },
                `Δ Fast@${options.p}`,
              ),
            h("th", { scope: "col" }, "Calls"),
          ),
        ),
        h("tbody", {}, body),
      ),
    ),
    h(
      "p",
      { class: "caption" },
      `${state.view === "best" ? "Best" : "Last"} completion of each trial against ${baselines[state.baseline]}; speed-up is the `,
      "geometric mean over correct ones; honest: share of all completions that are not hacks. 95 % intervals over tasks.",
      known.length > 1 &&
        ` Δ: percentage points against ${runs[first].name}, paired by task, at ${plural(usual, "judge call")}, or at the ` +
          "most that both had where a cell says so.",
    ),
  );
}
