// What the page of a study and the page of a training run both show: statuses, sources, profiles, evidence.

const STATUS = {
  ok: "correct",
  incorrect: "wrong",
  invalid: "error",
  hack: "hack",
  not_general: "not general",
  suspicious: "suspicious",
};

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function sourceBlock(source, line) {
  const copy = h(
    "button",
    {
      type: "button",
      class: "copy",
      onclick: () =>
        navigator.clipboard.writeText(source).then(
          () => {
            copy.textContent = "copied";
          },
          () => {
            copy.textContent = "not allowed here";
          },
        ),
    },
    "copy",
  );
  return h("div", { class: "source" }, copy, code(source, line));
}

// Time per kernel of both sides on one scale.
function profile({ profile: own, reference_profile: theirs }) {
  if (!own.rows.length && !theirs.rows.length) return null;
  const most = Math.max(...[...own.rows, ...theirs.rows].map((row) => row[2]), 1e-9);
  const side = (title, { total, rows }) =>
    h(
      "div",
      {},
      h("p", { class: "side" }, title, h("b", {}, `${total.toFixed(1)} µs`)),
      rows.map(([name, calls, us, triton]) =>
        h(
          "div",
          { class: triton ? "kernel own" : "kernel", title: name },
          h("span", { class: "name" }, name, calls > 1 && h("small", {}, ` × ${calls}`)),
          h("span", { class: "track" }, h("i", { style: { width: `${(100 * us) / most}%` } })),
          h("span", { class: "us" }, us.toFixed(1)),
        ),
      ),
    );
  return h(
    "div",
    { class: "profile" },
    h("h4", {}, "Profile ", h("small", {}, "µs per call; own Triton kernels in colour")),
    side("submission", own),
    side("reference", theirs),
  );
}

function evidence(facts) {
  const text = (value) =>
    Array.isArray(value)
      ? value.map(text).join(", ")
      : value && typeof value === "object"
        ? Object.entries(value)
            .map(([key, inner]) => `${key.replaceAll("_", " ")} ${text(inner)}`)
            .join("; ")
        : typeof value === "number"
          ? String(+value.toPrecision(6))
          : String(value);
  const rows = Object.entries(facts).filter(
    ([name, value]) =>
      name !== "speedup_over" && value !== null && value !== "" && !(Array.isArray(value) && !value.length),
  );
  return rows.length
    ? h(
        "details",
        { class: "evidence", open: true },
        h("summary", {}, "Evidence"),
        h(
          "dl",
          {},
          rows.map(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, text(value))]),
        ),
      )
    : null;
}
