// The same as in the charts, as tables, which a screen reader can walk through.

import { element, put, valuesOf } from "./figureview.js";
import { totalsBy } from "./prometheus.js";
import { words } from "./units.js";

/** Each figure of each panel: now, lowest, highest. */
export function showFigures(body, panels, points) {
  const last = points.at(-1).figures;
  fill(body, panels.flatMap(({ title, unit, lines }) =>
    lines(last).map(([name, label]) => {
      const known = valuesOf(points, name).map(({ value }) => value).filter((v) => v !== null);
      const extremes = known.length ? [Math.min(...known), Math.max(...known)] : [null, null];
      const cells = [last[name], ...extremes].map((value) => words(unit, value));
      return [`${title}, ${label}`, ...cells];
    })));
}

/** A counter by one of its labels: since the start of the server, and in the window. */
export function showCounter(body, { before, after }, name, label) {
  const totals = totalsBy(after.metrics, name, label);
  const old = before ? totalsBy(before.metrics, name, label) : totals;
  const rows = [...totals].sort().map(
    ([reason, count]) => [reason, count, count - (old.get(reason) ?? 0)],
  );
  fill(body, rows.length ? rows : [["none so far", 0, 0]]);
}

/** Rows of texts or numbers, a title first, put into the rows that are there. */
function fill(body, rows) {
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.appendChild(emptyRow(cells.length - 1));
    cells.forEach((cell, j) => put(row.cells[j], String(cell)));
  });
}

function emptyRow(count) {
  const made = element("tr");
  const head = element("th");
  head.scope = "row";
  made.append(head, ...Array.from({ length: count }, () => element("td")));
  return made;
}
