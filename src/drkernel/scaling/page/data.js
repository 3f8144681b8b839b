// The study: columns with one entry per turn, sorted by task, run, trial and call; sources and evidence stay compressed.
// Nothing is measured here: `figures` has every number for every choice of tasks (scaling/page_figures.py).

const core = JSON.parse(document.getElementById("core").textContent);
const turns = core.columns;
const { runs, tasks, results, reasons, thresholds, baselines } = core;
const count = turns.task.length;

// The turns of task t, run r are order[start] to order[end - 1] of `trials`, each {run, task, trial, from, to}.
const trials = [];
const firstTurn = new Array(tasks.length + 1).fill(count);
for (let i = 0; i < count; i++) {
  const last = trials[trials.length - 1];
  if (last && last.task === turns.task[i] && last.run === turns.run[i] && last.trial === turns.trial[i])
    last.to = i + 1;
  else trials.push({ task: turns.task[i], run: turns.run[i], trial: turns.trial[i], from: i, to: i + 1 });
  if (i < firstTurn[turns.task[i]]) firstTurn[turns.task[i]] = i;
}
const trialsOf = tasks.map(() => []);
for (const trial of trials) trialsOf[trial.task].push(trial);

const statusOf = (i) => reasons[turns.reason[i]][0];
const reasonOf = (i) => reasons[turns.reason[i]][1];
const isOk = (i) => statusOf(i) === "ok";

const STATUSES = Object.keys(STATUS).filter((status) => reasons.some((pair) => pair[0] === status));

let figures = {};
const packedFigures = document.getElementById("figures").textContent.trim();

// What runs have reached on the chosen tasks, a list over runs; null where nothing can be compared.
const reached = ({ view, baseline }) =>
  figures[choiceOfTasks()].runs[baseline].map((run) => run && { ...run, ...run[view] });
const estimate = ([value, low, high]) => ({ value, low, high });

const inflated = new Map();

// The details of a task: {source, turns: [...]} in the order of its turns.
function detailsOf(task) {
  if (!inflated.has(task)) inflated.set(task, inflate(document.getElementById(`task-${task}`).textContent.trim()));
  return inflated.get(task);
}
