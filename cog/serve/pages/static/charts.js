// Drawings of scores: rows of one measurement go in, SVG comes out.

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 360;
const LEFT = 8;
const RIGHT = 14;

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A number with as many digits as it has use for. */
export function formatNumber(value) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  return size >= 10 ? value.toFixed(1) : String(Number(value.toPrecision(3)));
}

/** Round numbers that cover a range, four or so. */
function chooseTicks(low, high) {
  const raw = (high - low) / 4 || Math.abs(high) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 2.5, 5, 10].find((each) => each * power >= raw) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: Math.max(1, last - first) + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function makeScale(rows, from, to) {
  const finite = rows.filter((row) => Number.isFinite(row.mean));
  const ticks = chooseTicks(
    Math.min(...finite.map((row) => Math.min(row.low, row.mean))),
    Math.max(...finite.map((row) => Math.max(row.high, row.mean))),
  );
  const [low, high] = [ticks[0], ticks.at(-1)];
  const digits = Math.max(0, ...ticks.map((tick) => (String(tick).split(".")[1] ?? "").length));
  const label = (tick) => tick.toLocaleString("en", { minimumFractionDigits: digits });
  return { ticks, label, place: (value) => from + ((value - low) / (high - low || 1)) * (to - from) };
}

const describe = (row) => `${row.label}: ${formatNumber(row.mean)}, from ${formatNumber(row.low)} to ${formatNumber(row.high)}`;
const tell = (row) => draw("title", {}, `${describe(row)}, ${row.num_texts} texts`);

function makeChart(height, rows, ...children) {
  const words = rows.map(describe).join("; ");
  return draw("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": words }, ...children);
}

/** A dot and an interval for each row, one below the other. */
export function drawRows(rows) {
  const line = 40;
  const top = 4;
  const bottom = top + rows.length * line;
  const { ticks, label, place } = makeScale(rows, LEFT + 6, WIDTH - RIGHT);
  const parts = ticks.flatMap((tick) => [
    draw("line", { class: "grid", x1: place(tick), x2: place(tick), y1: top, y2: bottom }),
    draw("text", { class: "soft", x: place(tick), y: bottom + 16, "text-anchor": "middle" }, label(tick)),
  ]);
  rows.forEach((row, i) => {
    const y = top + i * line + 28;
    parts.push(draw("text", { x: LEFT, y: y - 11 }, row.label));
    parts.push(draw("text", { class: "soft", x: WIDTH - RIGHT, y: y - 11, "text-anchor": "end" }, formatNumber(row.mean)));
    if (Number.isFinite(row.mean)) parts.push(makeMark(row, { x: place(row.mean), y, ends: [[place(row.low), y], [place(row.high), y]] }));
  });
  return makeChart(bottom + 22, rows, ...parts);
}

/** The same over the size of the index, on a logarithmic axis. */
export function drawSizes(rows) {
  const sorted = [...rows].sort((one, other) => one.num_index_words - other.num_index_words);
  const [top, bottom, left] = [10, 190, 44];
  const { ticks, label, place } = makeScale(sorted, bottom, top);
  const logs = sorted.map((row) => Math.log10(row.num_index_words));
  const [low, high] = [Math.min(...logs), Math.max(...logs)];
  const across = (value) => left + 24 + ((value - low) / (high - low || 1)) * (WIDTH - RIGHT - left - 48);
  const parts = ticks.flatMap((tick) => [
    draw("line", { class: "grid", x1: left, x2: WIDTH - RIGHT, y1: place(tick), y2: place(tick) }),
    draw("text", { class: "soft", x: left - 6, y: place(tick) + 4, "text-anchor": "end" }, label(tick)),
  ]);
  const drawn = sorted.map((row, i) => ({ row, x: across(logs[i]) })).filter(({ row }) => Number.isFinite(row.mean));
  parts.push(draw("polyline", { class: "curve", points: drawn.map(({ row, x }) => `${x},${place(row.mean)}`).join(" ") }));
  let last = -Infinity;
  for (const { row, x } of drawn) {
    parts.push(makeMark(row, { x, y: place(row.mean), ends: [[x, place(row.low)], [x, place(row.high)]] }));
    if (x - last < 46) continue;
    last = x;
    parts.push(draw("text", { class: "soft", x, y: bottom + 18, "text-anchor": "middle" }, shortenSize(row.num_index_words)));
  }
  parts.push(draw("line", { class: "axis", x1: left, x2: WIDTH - RIGHT, y1: bottom, y2: bottom }));
  parts.push(draw("text", { class: "soft", x: WIDTH - RIGHT, y: bottom + 34, "text-anchor": "end" }, "units in the index"));
  return makeChart(bottom + 40, sorted, ...parts);
}

function makeMark(row, { x, y, ends: [[x1, y1], [x2, y2]] }) {
  const kind = row.is_better ? "dot best" : "dot";
  return draw("g", {}, tell(row),
    draw("line", { class: "interval", x1, y1, x2, y2 }),
    draw("circle", { class: kind, cx: x, cy: y, r: 5 }));
}

function shortenSize(count) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= size) return `${Number((count / size).toPrecision(3))} ${unit}`;
  }
  return String(count);
}
