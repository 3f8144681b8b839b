// What the address says: #/task/ID/run/trial/call?run=..&family=.. ; every view can be shared as a link.

const DEFAULTS = {
  hide: "",
  level: "",
  family: "",
  status: "",
  text: "",
  p: "1.2",
  axis: "calls",
  view: "best",
  baseline: "eager",
  sort: "task",
  order: "up",
};

let state = { ...DEFAULTS, path: [] };

function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  state = { ...DEFAULTS, path: path.split("/").filter(Boolean).map(decoded) };
  for (const [key, value] of new URLSearchParams(query || "")) if (key in DEFAULTS) state[key] = value;
  if (!thresholds.includes(Number(state.p))) state.p = DEFAULTS.p;
  if (!(state.baseline in baselines)) state.baseline = DEFAULTS.baseline;
  if (state.family) state.level = "";
  if (!(choiceOfTasks() in figures)) state.level = state.family = "";
}

// The key of `figures`: all tasks, those of one level, or those of one family.
const choiceOfTasks = () =>
  state.family ? `family=${state.family}` : state.level ? `level=${state.level}` : "";

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// The address of this state with some changes; only what differs from the defaults is in it.
function address(changes = {}, path = state.path) {
  const query = new URLSearchParams();
  const next = { ...state, ...changes };
  for (const key of Object.keys(DEFAULTS)) if (String(next[key]) !== DEFAULTS[key]) query.set(key, next[key]);
  const text = query.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

const taskAddress = (task) => address({}, ["task", tasks[task][0]]);
const turnAddress = (i) => address({}, ["task", tasks[turns.task[i]][0], turns.run[i], turns.trial[i], turns.call[i]]);

// A changed filter replaces the address, so that "back" leaves the view and not the last letter typed.
function change(changes) {
  const focus = document.activeElement,
    mark = focus && focus.id;
  history.replaceState(null, "", address(changes));
  show();
  if (mark) {
    const again = document.getElementById(mark);
    if (again && again !== document.activeElement) again.focus();
  }
}

const hidden = () => new Set(state.hide.split(",").filter(Boolean).map(Number));
const shownRuns = () => {
  const off = hidden();
  const on = runs.map((_, r) => r).filter((r) => !off.has(r));
  return on.length ? on : runs.map((_, r) => r);
};

// The tasks of the chosen level or family, and those of them that the table lists.
const chosenTasks = () =>
  range(0, tasks.length).filter(
    (t) => (!state.level || String(tasks[t][2]) === state.level) && (!state.family || tasks[t][1] === state.family),
  );
const listedTasks = () => {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  return chosenTasks().filter((t) => {
    const name = `${tasks[t][0]} ${tasks[t][1]}`.toLowerCase();
    return words.every((word) => name.includes(word));
  });
};
