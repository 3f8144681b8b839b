// Start, theme, keys.

const place = document.getElementById("main");

function show() {
  readAddress();
  const view = h("div", { class: state.path[0] === "task" ? "view task-view" : "view" });
  const again =
    place.firstElementChild &&
    place.firstElementChild.className === view.className &&
    place.dataset.path === state.path[1];
  const kept = again ? scrollY : 0;
  place.dataset.path = state.path[1] || "";
  if (state.path[0] === "task")
    taskView(view).then(() => {
      place.replaceChildren(view);
      finish();
    });
  else {
    place.replaceChildren(view);
    overview(view);
    finish();
  }
  function finish() {
    scrollTo(0, state.path[0] || again ? kept : overviewScroll);
    showCurrent();
    place.dataset.ready = location.hash;
  }
}

let overviewScroll = 0;
addEventListener(
  "scroll",
  () => {
    if (!state.path[0]) overviewScroll = scrollY;
  },
  { passive: true },
);

// The chosen turn: its link keeps the focus; where the turn stands below the timeline, it comes into view.
function showCurrent() {
  const link = place.querySelector(".call[aria-current]"),
    timeline = place.querySelector(".timeline");
  if (!link) return;
  if (getComputedStyle(timeline).position === "sticky")
    timeline.scrollTop = Math.max(0, link.offsetTop - timeline.clientHeight / 2);
  else if (state.path.length > 2) document.getElementById("turn").scrollIntoView();
  if (state.path.length > 2) link.focus({ preventScroll: true });
}

function head() {
  const devices = [...new Set(runs.flatMap((run) => run.devices))],
    models = [...new Set(runs.map((run) => run.model).filter(Boolean))];
  const line = [
    plural(tasks.length, "task"),
    plural(runs.length, "run"),
    plural(count, "judged turn"),
    models.length < 4 && models.join(", "),
    devices.join(", "),
    core.made,
  ].filter(Boolean);
  const button = h("button", { type: "button", class: "theme", onclick: () => setTheme(dark() ? "light" : "dark") });
  document
    .getElementById("top")
    .append(
      h(
        "div",
        {},
        h("p", { class: "eyebrow" }, "Test-time scaling"),
        h("h1", {}, core.title),
        h("p", { class: "about" }, line.join(" · ")),
        core.notes.map((note) => h("p", { class: "about" }, note)),
      ),
      button,
    );
  document
    .getElementById("foot")
    .append(
      h(
        "p",
        {},
        "Keys: ",
        h("kbd", {}, "/"),
        " find · ",
        h("kbd", {}, "←"),
        " ",
        h("kbd", {}, "→"),
        " calls of a trial · ",
        h("kbd", {}, "Esc"),
        " back",
      ),
    );
  let kept = null;
  try {
    kept = localStorage.getItem("theme");
  } catch {
    /* pages from files may have no storage */
  }
  setTheme(kept);
}

const dark = () =>
  (document.documentElement.dataset.theme ||
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function setTheme(theme) {
  if (theme === "dark" || theme === "light") {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      /* as above */
    }
  }
  const button = document.querySelector(".theme");
  button.textContent = dark() ? "☀" : "☾";
  button.setAttribute("aria-label", dark() ? "switch to light" : "switch to dark");
}

addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !typing) {
    const search = document.getElementById("search");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  } else if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (state.path[0]) location.hash = address({}, []);
  } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && !typing && state.path[0]) {
    if (event.target.closest && event.target.closest("pre, .wide")) return;
    const links = [...place.querySelectorAll(".call")],
      at = links.findIndex((link) => link.hasAttribute("aria-current"));
    const next = links[at + (event.key === "ArrowRight" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      location.hash = next.getAttribute("href");
    }
  }
});

let width = innerWidth;
addEventListener("resize", () =>
  later(() => {
    if (innerWidth !== width) {
      width = innerWidth;
      show();
    }
  }),
);
head();
inflate(packedFigures).then((found) => {
  figures = found;
  addEventListener("hashchange", show);
  show();
});
