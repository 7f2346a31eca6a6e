// A line chart in SVG: the last minutes from left to right, zero at the bottom.

import { stepFor, ticks } from "./units.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 150;
const EDGES = { left: 46, right: 8, top: 18, bottom: 20 };
const GAP = 3; // seconds without a reading break a line

/**
 * Draws lines into an <svg>.
 *
 * lines: [{style, points: [{at, life, value}]}]; a value of null breaks the line, and so do a gap
 * and a restart. now, span: seconds; the right edge and the width of the time axis.
 */
export function draw(svg, { lines: all, unit, now, span, top = 0 }) {
  const width = svg.clientWidth || 320;
  const seen = ({ at }) => now - at <= span;
  const lines = all.map(({ style, points }) => ({ style, points: points.filter(seen) }));
  const values = lines.flatMap(({ points }) => points.map(({ value }) => value ?? 0));
  const largest = Math.max(top, ...values);
  const [size, name] = stepFor(unit, largest || 1);
  const marks = ticks(largest / size || 1, unit === "requests");
  const x = (at) => width - EDGES.right - ((now - at) / span) * (width - EDGES.left - EDGES.right);
  const y = (value) => {
    const share = value / size / marks.at(-1);
    return HEIGHT - EDGES.bottom - share * (HEIGHT - EDGES.top - EDGES.bottom);
  };

  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren(
    text(0, 10, name, "unit"),
    ...marks.flatMap((mark) => grid(mark, y(mark * size), width)),
    ...timeMarks(x, now, span),
    ...restarts(lines[0]?.points ?? [], x),
    ...lines.map(({ style, points }) => shape("path", { class: style, d: path(points, x, y) })),
  );
}

function grid(mark, y, width) {
  return [
    shape("line", { class: "grid", x1: EDGES.left, x2: width - EDGES.right, y1: y, y2: y }),
    text(EDGES.left - 6, y + 4, String(mark), "mark left"),
  ];
}

function timeMarks(x, now, span) {
  const ages = [0, 1, 2, 3, 4].map((quarter) => (quarter * span) / 4);
  return ages.map((age) =>
    text(x(now - age), HEIGHT - 4, age ? `-${age} s` : "now", age ? "mark" : "mark left"));
}

function restarts(points, x) {
  const first = points.filter(({ life }, i) => i > 0 && life !== points[i - 1].life);
  return first.flatMap(({ at }) => [
    shape("line", { class: "restart", x1: x(at), x2: x(at), y1: 4, y2: HEIGHT - EDGES.bottom }),
    text(x(at) - 4, 11, "restart", "mark left"),
  ]);
}

function path(points, x, y) {
  let last = null;
  const parts = [];
  for (const point of points) {
    if (point.value === null) last = null;
    else {
      const joined = last && point.life === last.life && point.at - last.at <= GAP;
      const place = `${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`;
      parts.push(joined ? `L${place}` : `M${place}h0`); // h0: a point alone is a dot
      last = point;
    }
  }
  return parts.join("");
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function text(x, y, words, style) {
  const made = shape("text", { x, y, class: style });
  made.textContent = words;
  return made;
}
