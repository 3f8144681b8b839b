// The measures of scaling/measures.py and the resampling of scaling/intervals.py, to the digit.

const RESAMPLES = 1000;
const Z95 = 1.96;
const weightsOf = new Map();

function mulberry32(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return (t ^ (t >>> 14)) >>> 0;
  };
}

function resamples(n) {
  if (!weightsOf.has(n)) {
    const next = mulberry32(0);
    const weights = Array.from({ length: RESAMPLES }, () => {
      const row = new Uint16Array(n);
      for (let i = 0; i < n; i++) row[Math.floor((next() * n) / 4294967296)]++;
      return row;
    });
    if (weightsOf.size > 8) weightsOf.clear();
    weightsOf.set(n, weights);
  }
  return weightsOf.get(n);
}

function quantile(sorted, q) {
  const place = q * (sorted.length - 1),
    low = Math.floor(place);
  return low + 1 < sorted.length ? sorted[low] + (place - low) * (sorted[low + 1] - sorted[low]) : sorted[low];
}

function wilson(share, samples, z = Z95) {
  const spread = z * Math.sqrt((share * (1 - share)) / samples + (z * z) / (4 * samples * samples));
  const centre = share + (z * z) / (2 * samples),
    width = 1 + (z * z) / samples;
  return [Math.max(0, (centre - spread) / width), Math.min(1, (centre + spread) / width)];
}

// By how much the mean of such sizes in [0, 1] may be less or more: see scaling/intervals.py.
function unsure(sizes) {
  const some = sizes.filter((x) => x > 1e-9).length,
    share = some / sizes.length,
    [low, high] = wilson(share, sizes.length);
  const each = (sizes.reduce((a, b) => a + b, 0) + Z95 * Z95) / (some + Z95 * Z95);
  return [each * (share - low), each * (high - share)];
}

// sums[m][task] and numbers[m][task] -> {value, low, high} for each measure m.
function bootstrap(sums, numbers, share = true) {
  const weights = sums.length ? resamples(sums[0].length) : [];
  let bottoms = null;
  return sums.map((sum, m) => {
    const number = numbers[m],
      n = sum.length;
    if (!bottoms || number !== numbers[m - 1])
      bottoms = weights.map((row) => {
        let all = 0;
        for (let t = 0; t < n; t++) all += row[t] * number[t];
        return all;
      });
    const total = number.reduce((a, b) => a + b, 0),
      value = sum.reduce((a, b) => a + b, 0) / total;
    const drawn = new Float64Array(RESAMPLES);
    let kept = 0;
    for (let k = 0; k < RESAMPLES; k++) {
      if (!(bottoms[k] > 0)) continue;
      const row = weights[k];
      let top = 0;
      for (let t = 0; t < n; t++) top += row[t] * sum[t];
      drawn[kept++] = top / bottoms[k];
    }
    const sorted = drawn.subarray(0, kept).sort();
    let low = quantile(sorted, 0.025),
      high = quantile(sorted, 0.975);
    const clusters = number.filter((x) => x > 0).length;
    if (share && low === high && clusters) [low, high] = wilson(value, clusters);
    else if (share && clusters > 1) {
      const hits = Array.from(sum, (x, t) => x / number[t]).filter(Number.isFinite);
      low = Math.max(0, Math.min(low, value - unsure(hits.map((x) => 1 - x))[1]));
      high = Math.min(1, Math.max(high, value + unsure(hits)[1]));
    } else if (clusters < 2) low = high = NaN;
    return { value, low, high, samples: total };
  });
}

// What a trial stands at after each call: [{spent, correct, speedup}], its best so far or its last.
function standing(trial, view, axis, baseline) {
  const steps = [];
  let spent = 0,
    correct = false,
    speedup = 0;
  for (let i = trial.from; i < trial.to; i++) {
    spent += axis === "calls" ? 1 : axis === "tokens" ? turns.tokens[i] : turns.seconds[i];
    const ok = isOk(i),
      speed = ok ? speedOf(i, baseline) : 0;
    if (view === "last") {
      correct = ok;
      speedup = speed;
    } else {
      correct ||= ok;
      if (ok && !(speed <= speedup)) speedup = speed;
    }
    steps.push({ spent, correct, speedup });
  }
  return steps;
}

function stateAt(steps, budget) {
  let state = null;
  for (const step of steps) {
    if (step.spent > budget) break;
    state = step;
  }
  return state;
}

// The most that a trial of a run has cost, and the largest budget that both of two runs had.
const reach = (run, axis) =>
  trials
    .filter((trial) => trial.run === run)
    .reduce((most, trial) => Math.max(most, standing(trial, "last", axis, "eager").pop().spent), 0);
const commonReach = (first, run, axis) => Math.min(reach(first, axis), reach(run, axis));

const lacks = new Map();

// {tasks, runs} that another baseline leaves out: tasks with a correct answer, of any run, that lacks the figure; runs
// that are right somewhere and have no figure at all.
function lacking(baseline) {
  if (!lacks.has(baseline)) {
    const right = Array.from({ length: count }, (_, i) => i).filter(isOk);
    const has = (i) => Number.isFinite(speedOf(i, baseline));
    const compared = new Set(right.filter(has).map((i) => turns.run[i]));
    const gone = right.filter((i) => !has(i));
    lacks.set(baseline, {
      tasks: new Set(gone.filter((i) => compared.has(turns.run[i])).map((i) => turns.task[i])),
      runs: new Set(gone.map((i) => turns.run[i]).filter((run) => !compared.has(run))),
    });
  }
  return lacks.get(baseline);
}

// The trials of a run on the chosen tasks, task by task; with another baseline the same tasks for all runs.
function trialsFor(run, chosen, baseline = "eager") {
  const out = baseline === "eager" ? { tasks: new Set(), runs: new Set() } : lacking(baseline);
  if (out.runs.has(run)) return [];
  return chosen
    .filter((task) => !out.tasks.has(task))
    .map((task) => trialsOf[task].filter((trial) => trial.run === run))
    .filter((mine) => mine.length);
}

// Fast@p at each budget.
function curve(run, chosen, { p, axis, view, baseline }, budgets) {
  const groups = trialsFor(run, chosen, baseline);
  const sums = budgets.map(() => new Float64Array(groups.length));
  const numbers = groups.map((mine) => mine.length);
  groups.forEach((mine, t) =>
    mine.forEach((trial) => {
      const steps = standing(trial, view, axis, baseline);
      let state = null,
        next = 0;
      budgets.forEach((budget, b) => {
        while (next < steps.length && steps[next].spent <= budget) state = steps[next++];
        if (state && state.correct && state.speedup >= p) sums[b][t]++;
      });
    }),
  );
  return groups.length
    ? bootstrap(
        sums,
        budgets.map(() => numbers),
      )
    : [];
}

// The end of every trial: correct, Fast@p for all p, geometric mean, honest, costs.
function summary(run, chosen, { view, baseline }) {
  const groups = trialsFor(run, chosen, baseline);
  if (!groups.length) return null;
  const zeros = () => new Float64Array(groups.length);
  const number = zeros(),
    correct = zeros(),
    logs = zeros(),
    right = zeros(),
    honest = zeros(),
    calls = zeros();
  const costs = { tokens: zeros(), seconds: zeros() },
    fast = thresholds.map(zeros);
  groups.forEach((mine, t) =>
    mine.forEach((trial) => {
      const end = standing(trial, view, "calls", baseline).pop();
      number[t]++;
      correct[t] += end.correct;
      thresholds.forEach((p, k) => {
        fast[k][t] += end.correct && end.speedup >= p;
      });
      if (end.correct && end.speedup > 0) {
        logs[t] += Math.log(end.speedup);
        right[t]++;
      }
      for (let i = trial.from; i < trial.to; i++) {
        calls[t]++;
        honest[t] += statusOf(i) !== "hack";
        costs.tokens[t] += turns.tokens[i];
        costs.seconds[t] += turns.seconds[i];
      }
    }),
  );
  const shares = bootstrap(
    [correct, ...fast],
    [correct, ...fast].map(() => number),
  );
  const mean = bootstrap([logs], [right], false)[0];
  const total = (column) => column.reduce((a, b) => a + b, 0),
    rows = total(number);
  return {
    tasks: groups.length,
    trials: rows,
    correct: shares[0],
    fast: shares.slice(1),
    honest: bootstrap([honest], [calls])[0],
    speedup: { value: Math.exp(mean.value), low: Math.exp(mean.low), high: Math.exp(mean.high) },
    calls: total(calls) / rows,
    tokens: total(costs.tokens) / rows,
    seconds: total(costs.seconds) / rows,
  };
}

// Fast@p of the answers at place 0, 1, ... of their chains.
function perTurn(run, chosen, { p, baseline }) {
  const groups = trialsFor(run, chosen, baseline),
    sums = [],
    numbers = [];
  groups.forEach((mine, t) =>
    mine.forEach((trial) => {
      for (let i = trial.from; i < trial.to; i++) {
        for (
          ;
          sums.length <= turns.turn[i];
          sums.push(new Float64Array(groups.length)), numbers.push(new Float64Array(groups.length))
        );
        numbers[turns.turn[i]][t]++;
        sums[turns.turn[i]][t] += isOk(i) && speedOf(i, baseline) >= p;
      }
    }),
  );
  return bootstrap(sums, numbers);
}

// Fast@p of run minus that of the first, paired by task, at the most judge calls that both had.
function difference(first, run, chosen, { p, view, baseline }) {
  const calls = commonReach(first, run, "calls");
  const means = [first, run].map(
    (r) =>
      new Map(
        trialsFor(r, chosen, baseline).map((mine) => {
          const hits = mine.filter((trial) => {
            const end = stateAt(standing(trial, view, "calls", baseline), calls);
            return end.correct && end.speedup >= p;
          });
          return [mine[0].task, hits.length / mine.length];
        }),
      ),
  );
  const common = [...means[0].keys()].filter((task) => means[1].has(task));
  if (!common.length) return null;
  const change = common.map((task) => means[1].get(task) - means[0].get(task));
  const found = bootstrap([change], [change.map(() => 1)], false)[0];
  const margin = change.length > 1 ? Math.max(...unsure(change.map(Math.abs))) : NaN;
  return {
    value: found.value,
    low: Math.max(Math.min(found.low, found.value - margin), -1),
    high: Math.min(Math.max(found.high, found.value + margin), 1),
    calls,
    better: change.filter((x) => x > 1e-9).length / change.length,
    worse: change.filter((x) => x < -1e-9).length / change.length,
  };
}
