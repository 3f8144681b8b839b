// A task: its trials as rows of calls, and the turn that is looked at.

async function taskView(main) {
  const [, id, run, trial, call] = state.path;
  const t = tasks.findIndex((task) => task[0] === id);
  if (t < 0) {
    main.append(
      h(
        "p",
        { class: "empty" },
        "There is no such task in this report. ",
        h("a", { href: address({}, []) }, "All tasks"),
      ),
    );
    return;
  }
  const off = hidden(),
    mine = trialsOf[t].filter((one) => !off.has(one.run));
  const chosen = mine
    .flatMap((one) => range(one.from, one.to))
    .find((i) => turns.run[i] === Number(run) && turns.trial[i] === Number(trial) && turns.call[i] === Number(call));
  const current = chosen ?? bestTurn(mine);
  const [, family, level, split] = tasks[t];
  main.append(
    h(
      "nav",
      { class: "crumbs", "aria-label": "breadcrumb" },
      h("a", { href: address({}, []) }, "All tasks"),
      h("span", { "aria-hidden": "true" }, " / "),
      h("span", {}, id),
    ),
    h(
      "div",
      { class: "task-head" },
      h("h2", {}, breakable(shortName(t))),
      h(
        "p",
        {},
        [family && family.replaceAll("_", " "), level !== null && `level ${level}`, split].filter(Boolean).join(" · "),
      ),
    ),
  );
  const details = await detailsOf(t);
  if (state.path[1] !== id) return;
  const timeline = h("div", { class: "timeline" }),
    panel = h("article", { class: "turn", id: "turn", "aria-live": "polite" });
  if (details.source)
    timeline.append(
      h("details", { class: "reference" }, h("summary", {}, "The reference module"), code(details.source)),
    );
  const shown = current === undefined ? [] : shownTurns(current, details.turns[current - firstTurn[t]].shown);
  for (const r of new Set(mine.map((one) => one.run)))
    timeline.append(
      runTimeline(
        r,
        mine.filter((one) => one.run === r),
        current,
        new Set(shown),
      ),
    );
  if (!mine.length)
    timeline.append(
      h("p", { class: "empty" }, "All runs are switched off. ", h("a", { href: address({ hide: "" }) }, "Show all")),
    );
  if (current !== undefined) panel.append(turnPanel(current, details.turns[current - firstTurn[t]], shown));
  main.append(h("div", { class: "split" }, timeline, panel));
}

const range = (from, to) => Array.from({ length: to - from }, (_, k) => from + k);
const trialOf = (i) => trialsOf[turns.task[i]].find((trial) => trial.from <= i && i < trial.to);
const shownTurns = (i, calls) => {
  const trial = trialOf(i);
  return range(trial.from, trial.to).filter((other) => calls.includes(turns.call[other]));
};

function bestTurn(mine) {
  const all = mine.flatMap((trial) => range(trial.from, trial.to));
  return all.filter(isOk).sort((a, b) => turns.speedup[b] - turns.speedup[a])[0] ?? all[0];
}

function runTimeline(r, mine, current, shown) {
  return h(
    "section",
    { class: `run-${r % 8}` },
    h("h3", {}, h("i", { class: "swatch" }), runs[r].name),
    mine.map((trial) => {
      const chains = new Map();
      for (const i of range(trial.from, trial.to))
        chains.set(turns.chain[i], [...(chains.get(turns.chain[i]) || []), i]);
      const parallel = chains.size > 1 && [...chains.values()].every((chain) => chain.length === 1);
      const rows = parallel ? [[...chains.values()].flat()] : [...chains.values()];
      return h(
        "div",
        { class: "trial" },
        mine.length > 1 && h("span", { class: "label" }, `trial ${trial.trial}`),
        h(
          "div",
          { class: "chains" },
          rows.map((row) =>
            h(
              "ol",
              { class: "chain" },
              row.map((i) => h("li", {}, turnLink(i, current, shown))),
            ),
          ),
        ),
      );
    }),
  );
}

function turnLink(i, current, shown) {
  const status = statusOf(i),
    speed = turns.speedup[i];
  const text =
    status === "ok"
      ? `${speed.toFixed(speed < 9.995 ? 2 : 1)}×`
      : { invalid: "error", incorrect: "wrong", not_general: "shape", suspicious: "doubt" }[status] || status;
  return h(
    "a",
    {
      class: `call s-${status}${status === "ok" && speed < 1 ? " slow" : ""}${shown.has(i) ? " shown" : ""}`,
      href: turnAddress(i),
      "data-turn": i,
      "aria-current": i === current ? "true" : undefined,
      title: `call ${turns.call[i]}: ${STATUS[status]}, ${reasonOf(i).replaceAll("_", " ")}${shown.has(i) ? " (in the prompt of the chosen turn)" : ""}`,
    },
    text,
  );
}

// The verdict as a sentence.
function inWords(i, detail) {
  const speed = turns.speedup[i],
    reason = reasonOf(i);
  const share =
    detail.coverage === null
      ? ""
      : ` ${Math.round(100 * detail.coverage)} % of the device time is in its own Triton kernels.`;
  const other = detail.general ? "" : " It fails on other shapes.";
  const gain =
    speed === null
      ? ""
      : speed >= 1.005
        ? `${speed.toFixed(2)} times as fast as the reference`
        : speed > 0.995
          ? "as fast as the reference"
          : `slower than the reference (${speed.toFixed(2)}×)`;
  const words = {
    ok: () => `Correct and honest, ${gain}${detail.lazy && speed >= 1 ? ": no real gain" : ""}.${share}${other}`,
    incorrect: () => "It runs, but its results are not the reference's.",
    invalid: () => (reason === "timeout" ? "It did not finish in time." : "It does not run."),
    hack: () => "Refused: it games the measurement instead of doing the work.",
    not_general: () => "Right for the given shapes, wrong for other legal ones.",
    suspicious: () => `Correct, but faster than the device allows${gain ? ` (${gain})` : ""}; nothing is earned.`,
  };
  return (words[statusOf(i)] || (() => ""))();
}

function turnPanel(i, detail, shown) {
  const trial = trialOf(i),
    fact = (name, value) =>
      value !== null && value !== undefined && value !== "" && h("div", {}, h("dt", {}, name), h("dd", {}, value));
  const ms = (x) => (x === null ? null : x < 1 ? `${(1000 * x).toFixed(1)} µs` : `${x.toFixed(2)} ms`);
  const step = (to, text, word) =>
    to >= trial.from && to < trial.to
      ? h("a", { href: turnAddress(to), "aria-label": word }, text)
      : h("span", { "aria-hidden": "true" }, text);
  const line = Number.isInteger(detail.evidence.line) ? detail.evidence.line : undefined;
  return h(
    "div",
    { class: `run-${turns.run[i] % 8}` },
    h(
      "header",
      {},
      h("h3", {}, h("i", { class: "swatch" }), runs[turns.run[i]].name),
      h(
        "span",
        { class: "where" },
        `trial ${turns.trial[i]} · chain ${turns.chain[i]} · turn ${turns.turn[i]} · call ${turns.call[i]}`,
      ),
      h(
        "nav",
        { class: "steps", "aria-label": "calls" },
        step(i - 1, "←", "previous call"),
        step(i + 1, "→", "next call"),
      ),
    ),
    h(
      "div",
      { class: "verdict" },
      chip(statusOf(i)),
      h("strong", {}, reasonOf(i).replaceAll("_", " ")),
      h("p", {}, inWords(i, detail)),
      detail.detail && h("pre", { class: "detail" }, detail.detail),
    ),
    h(
      "dl",
      { class: "facts" },
      fact("speed-up", turns.speedup[i] === null ? null : times(turns.speedup[i])),
      Object.keys(turns.over).map(
        (name) => turns.over[name][i] !== null && fact(`over ${baselines[name]}`, times(turns.over[name][i])),
      ),
      fact("coverage", detail.coverage === null ? null : percent(detail.coverage)),
      fact("reference", ms(detail.reference_ms)),
      fact("submission", ms(detail.submission_ms)),
      fact("prompt", `${grouped(detail.prompt)} tokens`),
      fact("completion", `${grouped(turns.tokens[i])} tokens${detail.finished ? "" : ", cut"}`),
      fact("generating", `${detail.generate_s.toFixed(2)} s`),
      fact("judging", `${detail.judge_s.toFixed(2)} s`),
      fact("device", detail.device),
    ),
    h(
      "p",
      { class: "prompted" },
      shown.length
        ? [
            "The prompt held ",
            shown.map((other, k) => [k ? ", " : "", h("a", { href: turnAddress(other) }, `call ${turns.call[other]}`)]),
            ".",
          ]
        : "The prompt held no earlier turn.",
    ),
    profile(detail),
    h("h4", {}, "Source"),
    detail.source === null ? h("p", { class: "empty" }, "The completion held no code.") : sourceBlock(detail.source, line),
    evidence(detail.evidence),
  );
}
