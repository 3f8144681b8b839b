// The table of tasks: for each run the best speed-up that a trial of it reached, and how its completions were judged.

function taskList(known) {
  const rows = listedTasks().map((t) => taskRow(t, known)).filter((row) => !state.status || row.counts[state.status]);
  const key = sortKey(known),
    sign = state.order === "up" ? 1 : -1;
  rows.sort((a, b) => {
    const x = key(a),
      y = key(b);
    return (x < y ? -sign : x > y ? sign : 0) || a.t - b.t;
  });
  const body = h("tbody", {});
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Find tasks  /",
    "aria-label": "find tasks",
    value: state.text,
    oninput: (event) => later(() => change({ text: event.target.value })),
  });
  const head = (name, text, extra = {}) => {
    const on = state.sort === name,
      order = on && state.order === "up" ? "down" : !on && !["task", "family", "level"].includes(name) ? "down" : "up";
    return h(
      "th",
      { scope: "col", "aria-sort": on ? (state.order === "up" ? "ascending" : "descending") : "none", ...extra },
      h(
        "button",
        { type: "button", id: `sort-${name}`, onclick: () => change({ sort: name, order }) },
        text,
        h("i", { "aria-hidden": "true" }, on ? (state.order === "up" ? " ↑" : " ↓") : ""),
      ),
    );
  };
  const leveled = tasks.some((task) => task[2] !== null);
  const draw = ({ t, best, counts, total }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("a", { href: taskAddress(t) }, breakable(shortName(t)))),
      h("td", { class: "family" }, tasks[t][1].replaceAll("_", " ")),
      leveled && h("td", { class: "level" }, tasks[t][2] ?? "–"),
      known.map((r) => h("td", { class: "best" }, best.get(r))),
      h("td", { class: "strip-cell" }, strip(counts, total)),
    );
  const table = h(
    "table",
    { class: "tasks" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        head("task", "Task"),
        head("family", "Family", { class: "family" }),
        leveled && head("level", "Level"),
        known.map((r) => head(`run${r}`, [h("i", { class: "swatch" }), runs[r].name], { class: `run-${r % 8}` })),
        head("correct", "All completions"),
      ),
    ),
    body,
  );
  return h(
    "section",
    { "aria-labelledby": "tasks" },
    h(
      "div",
      { class: "heading" },
      h("h2", { id: "tasks" }, "Tasks ", h("small", {}, grouped(rows.length))),
      choice(
        "With",
        [["", "any verdict"], ...STATUSES.map((status) => [status, STATUS[status]])],
        state.status,
        (status) => change({ status }),
      ),
      search,
    ),
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "table of tasks" }, table),
    lazily(rows, draw, body),
  );
}

const shortName = (t) => tasks[t][0].replace(/^generated\//, "").replace(/\/[0-9a-f]{8}$/, "");

// A chain of operators may break after each.
const breakable = (name) => name.split("+").map((part, k) => (k ? ["+", h("wbr"), part] : part));

function taskRow(t, known) {
  const counts = {},
    best = new Map(),
    value = new Map();
  for (const r of known) {
    const found = results[t][r];
    const top = found?.best ?? -1;
    for (const status in found?.counts) counts[status] = (counts[status] || 0) + found.counts[status];
    value.set(r, top);
    best.set(
      r,
      top >= 0
        ? h("b", { class: top >= Number(state.p) ? "fast" : top < 1 ? "slow" : "" }, times(top))
        : found
          ? chip(found.usual)
          : "–",
    );
  }
  const total = Object.values(counts).reduce((a, b) => a + b, 0);
  return { t, counts, total, best, value };
}

function sortKey(known) {
  if (state.sort === "level") return (row) => tasks[row.t][2] ?? -1;
  if (state.sort === "family") return (row) => tasks[row.t][1];
  if (state.sort === "correct") return (row) => (row.counts.ok || 0) / (row.total || 1);
  const run = known.find((r) => `run${r}` === state.sort);
  return run === undefined ? (row) => tasks[row.t][0] : (row) => row.value.get(run);
}

function strip(counts, total) {
  const said = STATUSES.filter((status) => counts[status]);
  const words = said.map((status) => `${counts[status]} ${STATUS[status]}`).join(", ");
  return h(
    "span",
    { class: "strip", role: "img", "aria-label": words, title: words },
    said.map((status) => h("i", { class: `s-${status}`, style: { "flex-grow": counts[status] / total } })),
  );
}
