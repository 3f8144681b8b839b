// Python in colours: one regular expression, spans made of text nodes.

const PYTHON = new RegExp(
  [
    /(?<comment>#[^\n]*)/,
    /(?<string>[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/,
    /(?<decorator>@[\w.]+)/,
    /(?<number>\b(?:0[xX][\da-fA-F_]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\b)/,
    /(?<name>[A-Za-z_]\w*)/,
  ]
    .map((part) => part.source)
    .join("|"),
  "g",
);

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global if " +
    "import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);
const LIBRARIES = new Set("tl triton torch nn F np math self".split(" "));

// [[kind, text], ...]; kind is "" for plain text.
function tokens(source) {
  const found = [];
  let end = 0,
    before = "";
  for (const match of source.matchAll(PYTHON)) {
    if (match.index > end) found.push(["", source.slice(end, match.index)]);
    let kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    const text = match[0];
    if (kind === "name") {
      if (KEYWORDS.has(text)) kind = "keyword";
      else if (before === "def" || before === "class") kind = "defined";
      else if (LIBRARIES.has(text)) kind = "library";
      else kind = /^\s*\(/.test(source.slice(match.index + text.length, match.index + text.length + 8)) ? "call" : "";
      before = text;
    }
    found.push([kind, text]);
    end = match.index + text.length;
  }
  if (end < source.length) found.push(["", source.slice(end)]);
  return found;
}

// The source as numbered lines; `marked` is the number of a line to point at.
function code(source, marked) {
  const lines = [[]];
  for (const [kind, text] of tokens(source)) {
    text.split("\n").forEach((piece, k) => {
      if (k) lines.push([]);
      if (piece) lines[lines.length - 1].push(kind ? h("span", { class: `py-${kind}` }, piece) : piece);
    });
  }
  if (lines.length > 1 && !lines[lines.length - 1].length) lines.pop();
  return h(
    "pre",
    { class: "code", tabindex: "0", "aria-label": "source" },
    h(
      "code",
      {},
      lines.map((line, k) => h("span", { class: k + 1 === marked ? "line marked" : "line" }, line, "\n")),
    ),
  );
}
