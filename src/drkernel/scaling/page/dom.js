// Elements are made here and only here: text becomes text nodes, so that no string of a study is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function make(node, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

const h = (tag, properties, ...children) => make(document.createElement(tag), properties, children);
const svg = (tag, properties, ...children) => make(document.createElementNS(SVG, tag), properties, children);

// Halves are rounded up, as in report.py.
const tenth = (x) => (Math.floor(1000 * x + 0.5) / 10).toFixed(1);
const percent = (x) => (Number.isFinite(x) ? `${tenth(x)}%` : "–");
const bounds = (e) => (e.low < e.high ? `[${tenth(e.low)}, ${tenth(e.high)}]` : "");
const times = (x) => (Number.isFinite(x) ? `${x.toFixed(x < 9.995 ? 2 : 1)}×` : "–");
const timesBounds = (e) => (e.low < e.high ? `[${e.low.toFixed(2)}, ${e.high.toFixed(2)}]` : "");
const grouped = (x) =>
  Math.round(x)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, " ");
const brief = (x) =>
  x >= 1e6
    ? `${+(x / 1e6).toPrecision(3)}M`
    : x >= 1e4
      ? `${+(x / 1e3).toPrecision(3)}k`
      : x >= 100
        ? grouped(x)
        : `${+x.toPrecision(3)}`;
const plural = (n, word) => `${grouped(n)} ${word}${n === 1 ? "" : "s"}`;

// One of several: a group of toggle buttons.
function choice(label, options, current, choose) {
  return h(
    "div",
    { class: "choice", role: "group", "aria-label": label },
    h("span", { class: "label" }, label),
    options.map(([value, text]) =>
      h("button", { type: "button", "aria-pressed": String(value === current), onclick: () => choose(value) }, text),
    ),
  );
}

function menu(label, options, current, choose) {
  const select = h(
    "select",
    { onchange: (event) => choose(event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: String(value) === String(current) }, text)),
  );
  return h("label", { class: "menu" }, h("span", { class: "label" }, label), select);
}

// Appends rows as they come into view, so that a list of thousands costs what is looked at.
function lazily(items, row, into, batch = 60) {
  let next = 0;
  const more = () => {
    into.append(...items.slice(next, next + batch).map(row));
    next += batch;
    sentinel.hidden = next >= items.length;
    if (sentinel.hidden) watch.disconnect();
  };
  const sentinel = h("div", { class: "sentinel", "aria-hidden": "true" });
  const watch = new IntersectionObserver(
    (seen) => {
      if (seen.some((entry) => entry.isIntersecting)) {
        more();
        watch.unobserve(sentinel);
        if (!sentinel.hidden) watch.observe(sentinel);
      }
    },
    { rootMargin: "800px" },
  );
  more();
  if (!sentinel.hidden) watch.observe(sentinel);
  return sentinel;
}
