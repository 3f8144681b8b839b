// A run: the list of its steps, and from a step to its groups, trajectories and turns.

const core = JSON.parse(document.getElementById("core").textContent);
const place = document.getElementById("main");
const opened = new Map();

const fileName = (file) => `${file.kind}_${file.step}`;
const titleOf = (file) => (file.kind === "step" ? `Step ${file.step}` : `Validation after step ${file.step}`);
const path = () => location.hash.slice(1).split("/").filter(Boolean).map(decodeURIComponent);
const addressOf = (...parts) => `#${parts.map(encodeURIComponent).join("/")}`;
const decimals = (x, n = 2) => (Number.isFinite(x) ? x.toFixed(n) : "–");
const words = (text) => String(text ?? "").replaceAll("_", " ");

function groupsOf(number) {
  if (!opened.has(number)) opened.set(number, inflate(document.getElementById(`file-${number}`).textContent.trim()));
  return opened.get(number);
}

function statusBar(statuses) {
  const all = Object.values(statuses).reduce((sum, n) => sum + n, 0);
  const rows = [...Object.keys(STATUS), "judge_failure"].filter((status) => statuses[status]);
  return h("span", { class: "statuses", title: rows.map((status) => `${STATUS[status] || words(status)} ${statuses[status]}`).join(", ") },
    rows.map((status) => h("i", { class: `s-${status}`, style: { width: `${(100 * statuses[status]) / all}%` } })));
}

function overview(view) {
  view.append(reportSection(), curvesSection());
  const body = h("tbody", {});
  const row = (file) => {
    const line = core.metrics.find((each) => each.step === file.step) || {};
    const own = file.kind === "step" ? line : {};
    return h("tr", { class: file.kind },
      h("th", { scope: "row" }, h("a", { href: addressOf(fileName(file)) }, titleOf(file))),
      h("td", {}, decimals(file.reward)),
      h("td", {}, percent(file.turns ? (file.statuses.ok || 0) / file.turns : NaN)),
      h("td", {}, statusBar(file.statuses)),
      h("td", {}, grouped(file.groups)),
      h("td", {}, grouped(file.turns)),
      h("td", {}, file.texts === file.turns ? "all" : grouped(file.texts)),
      h("td", {}, file.kind === "step" ? percent(file.turns ? file.trained / file.turns : NaN) : ""),
      h("td", {}, Number.isFinite(own.entropy) ? decimals(own.entropy) : ""));
  };
  const section = h("section", {}, h("h2", {}, "Steps ", h("small", {}, `means over turns; ${core.said}`)),
    h("div", { class: "wide" }, h("table", { class: "step-list" },
      h("thead", {}, h("tr", {}, ["", "reward", "correct", "verdicts", "groups", "turns", "with text", "train", "entropy"].map((name) => h("th", { scope: "col" }, name)))),
      body)));
  view.append(section);
  if (core.files.length) section.append(lazily(core.files, row, body));
  else section.append(h("p", { class: "empty" }, "No completions were kept (logger.completions=false)."));
}

function reportSection() {
  const { report, best } = core, cards = [];
  const card = (title, figure, by) => h("div", { class: "card" }, h("h3", {}, title), h("p", { class: "figure" }, figure), h("p", { class: "by" }, by));
  const last = core.metrics[core.metrics.length - 1];
  if (last) cards.push(card("Steps taken", grouped(last.step), `reward ${decimals(last.reward)} in the last one`));
  if (best) cards.push(card(`Best by ${best.measure}`, `step ${best.step}`, `${decimals(best.value, 3)} on ${plural(best.tasks, "validation task")}`));
  if (report)
    for (const name of ["reward", "fast@1.2"]) {
      const [before, after, change] = ["before", "after", "difference"].map((side) => report[side][name]);
      cards.push(card(`Test ${name}`, `${decimals(before.value)} → ${decimals(after.value)}`,
        `difference ${decimals(change.value)} [${decimals(change.low)}, ${decimals(change.high)}]`));
    }
  return h("div", { class: "cards" }, cards);
}

async function stepView(view, name, group, sample, turn) {
  const number = core.files.findIndex((file) => fileName(file) === name), file = core.files[number];
  if (!file) return view.append(h("p", { class: "empty" }, "There is no such step in this page. ", h("a", { href: "#" }, "All steps")));
  const groups = await groupsOf(number);
  const beside = (other, text) => (core.files[other] ? h("a", { href: addressOf(fileName(core.files[other])), title: titleOf(core.files[other]) }, text) : h("span", {}, text));
  view.append(
    h("nav", { class: "crumbs", "aria-label": "breadcrumb" }, h("a", { href: "#" }, "All steps"), h("span", {}, " / "), h("span", {}, titleOf(file))),
    h("div", { class: "step-head" }, h("h2", {}, titleOf(file)), h("div", { class: "steps" }, beside(number - 1, "‹"), beside(number + 1, "›"))),
    h("p", { class: "about" }, [plural(file.groups, "group"), plural(file.trajectories, "trajectory").replace("trajectorys", "trajectories"), plural(file.turns, "turn"),
      file.kind === "step" && `${plural(file.trained, "turn")} trained`, `mean reward ${decimals(file.reward)}`].filter(Boolean).join(" · ")),
    statusBar(file.statuses),
  );
  const all = groups.flatMap((one) => one.turns.map((each) => ({ group: one, turn: each })));
  const named = (each) => String(each.group.group) === group && String(each.turn.sample) === sample && String(each.turn.turn) === turn;
  const current = all.find(named) || all.find((each) => each.turn.text);
  const timeline = h("div", { class: "timeline" });
  const list = h("div", {});
  timeline.append(list, lazily(groups, (one) => groupBlock(name, one, current && current.turn), list, 40));
  const panel = h("article", { class: "turn run-0", id: "turn" });
  panel.append(...(current ? turnPanel(name, current.group, current.turn) : [h("p", { class: "empty" },
    "This page has no texts of this step; completions/ of the run folder has them, and view --turns N takes more.")]));
  view.append(h("div", { class: "split" }, timeline, panel));
}

function groupBlock(name, one, current) {
  const samples = [...new Set(one.turns.map((each) => each.sample))];
  const why = [...new Set(one.turns.map((each) => each.why_not).filter(Boolean))];
  return h("section", { class: "group" },
    h("h3", {}, breakable(one.task)),
    h("p", { class: "label" }, `group ${one.group} · mean reward ${decimals(one.reward)}`, why.length && one.turns.every((each) => each.why_not) ? ` · left out: ${why.map(words).join(", ")}` : ""),
    h("div", { class: "chains" }, samples.map((sample) =>
      h("ol", { class: "chain" }, one.turns.filter((each) => each.sample === sample).map((each) => h("li", {}, turnLink(name, one, each, current)))))));
}

function turnLink(name, one, each, current) {
  const text = each.status === "ok" ? times(each.speedup)
    : { invalid: "error", incorrect: "wrong", not_general: "shape", suspicious: "doubt", judge_failure: "judge" }[each.status] || each.status || "–";
  const properties = {
    class: `call s-${each.status}${each.status === "ok" && each.speedup < 1 ? " slow" : ""}${each.trained > 0 || each.why_not === "" ? "" : " left-out"}`,
    title: `trajectory ${each.sample}, turn ${each.turn + 1}: ${words(each.reason)}, reward ${decimals(each.reward)}${each.why_not ? `; does not train: ${words(each.why_not)}` : ""}`,
    "aria-current": each === current ? "true" : undefined,
  };
  return each.text ? h("a", { ...properties, href: addressOf(name, one.group, each.sample, each.turn) }, text) : h("span", { ...properties, class: `${properties.class} no-text` }, text);
}

function turnPanel(name, one, each) {
  const text = each.text || null;
  const fact = (label, value) => value !== null && value !== undefined && value !== "" && h("div", {}, h("dt", {}, label), h("dd", {}, value));
  const ms = (value) => (Number.isFinite(value) ? `${value.toPrecision(3)} ms` : null);
  const before = one.turns.find((other) => other.sample === each.sample && other.turn === each.turn - 1);
  const after = one.turns.find((other) => other.sample === each.sample && other.turn === each.turn + 1);
  const step = (other, sign) => (other && other.text ? h("a", { href: addressOf(name, one.group, other.sample, other.turn) }, sign) : h("span", {}, sign));
  const validation = name.startsWith("validation");
  const trains = validation ? "validation" : each.why_not ? `no: ${words(each.why_not)}` : each.trained > 0.999 ? "yes" : `${percent(each.trained)} of its tokens`;
  const parts = [
    h("header", {}, h("h3", {}, `Turn ${each.turn + 1} of trajectory ${each.sample}`), h("span", { class: "where" }, one.task), h("div", { class: "steps" }, step(before, "‹"), step(after, "›"))),
    h("div", { class: `verdict s-${each.status}` }, h("span", { class: "chip" }, STATUS[each.status] || words(each.status)), h("strong", {}, words(each.reason))),
    text && text.detail && h("pre", { class: "detail" }, text.detail),
    h("dl", { class: "facts" },
      fact("reward", decimals(each.reward, 3)), fact("advantage", Number.isFinite(each.advantage) ? decimals(each.advantage, 3) : null), fact("trains", trains),
      fact("speed-up", Number.isFinite(each.speedup) ? times(each.speedup) : null), fact("coverage", Number.isFinite(each.coverage) ? percent(each.coverage) : null),
      fact("reference", text && ms(text.reference_ms)), fact("submission", text && ms(text.submission_ms)),
      fact("completion", `${grouped(each.tokens)} tokens${each.finished ? "" : ", cut"}`), fact("prompt", `${grouped(each.prompt_tokens)} tokens`),
      fact("judging", text && Number.isFinite(text.seconds) ? `${text.seconds.toFixed(2)} s` : null), fact("device", text && text.device)),
  ];
  if (!text) return [...parts, h("p", { class: "empty" }, "This page has no text of it; completions/ of the run folder has.")].filter(Boolean);
  const whole = text.completion.trim() !== (text.source || "").trim();
  return [
    ...parts,
    h("h4", {}, each.turn ? "Feedback that it read" : "Task that it read"),
    h("pre", { class: "detail" }, text.prompt),
    profile(text),
    h("h4", {}, "Source"),
    text.source === null ? h("p", { class: "empty" }, "The completion held no submission.") : sourceBlock(text.source, text.evidence.line),
    whole && h("details", { class: "reference", open: text.source === null }, h("summary", {}, "The whole completion"), h("pre", { class: "detail whole" }, text.completion)),
    evidence(text.evidence),
  ].filter(Boolean);
}

// A task's name may break after a slash, an underscore or a plus.
const breakable = (text) => text.split(/(?<=[/_+])/).flatMap((piece) => [piece, h("wbr", {})]);

function head() {
  const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = h("button", { type: "button", class: "theme", title: "light or dark", onclick: () => (document.documentElement.dataset.theme = dark() ? "light" : "dark") }, "◐");
  document.getElementById("top").append(
    h("div", {}, h("p", { class: "eyebrow" }, "Training run"), h("h1", {}, core.title),
      h("p", { class: "about" }, Object.entries(core.about).filter(([, value]) => value).map(([name, value]) => `${name} ${value}`).join(" · ")),
      core.best && core.best.ended_early && h("p", { class: "about" }, `Ended early: ${core.best.ended_early}`)),
    button);
  document.getElementById("foot").append(h("p", {}, `${core.said}. All are in completions/ of the run folder. The dashed line in a curve is the best checkpoint; a click on a curve opens the step.`));
}

let overviewAt = 0;
async function show() {
  const parts = path(), view = h("div", { class: "view" });
  const same = place.dataset.view === parts[0], scrolled = scrollY;
  if (parts.length) await stepView(view, ...parts);
  else overview(view);
  if (path().join() !== parts.join()) return;
  const list = place.querySelector(".timeline"), kept = list ? list.scrollTop : 0;
  place.replaceChildren(view);
  place.dataset.view = parts[0] || "";
  const now = place.querySelector(".timeline");
  if (same && now) now.scrollTop = kept;
  else if (now && now.querySelector("[aria-current]")) now.scrollTop = now.querySelector("[aria-current]").offsetTop - now.clientHeight / 2;
  const narrow = now && getComputedStyle(now).position !== "sticky";
  if (narrow && parts.length > 1) document.getElementById("turn").scrollIntoView();
  else scrollTo(0, same ? scrolled : parts.length ? 0 : overviewAt);
  place.dataset.ready = location.hash;
}

addEventListener("scroll", () => { if (!path().length) overviewAt = scrollY; }, { passive: true });
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const links = [...place.querySelectorAll("a.call")], at = links.findIndex((link) => link.getAttribute("aria-current"));
  const next = { ArrowRight: links[at + 1], ArrowLeft: links[at - 1] }[event.key];
  if (next) location.hash = next.getAttribute("href");
  if (event.key === "Escape") location.hash = "";
});
head();
show();
