// The same as in the charts, as tables, which a screen reader can walk through.

import { element, valuesOf } from "./figureview.js";
import { totalsBy } from "./prometheus.js";
import { words } from "./units.js";

/** Each figure of each panel: now, lowest, highest. */
export function showFigures(body, panels, points) {
  const last = points.at(-1).figures;
  body.replaceChildren(...panels.flatMap(({ title, unit, lines }) =>
    lines(last).map(([name, label]) => {
      const known = valuesOf(points, name).map(({ value }) => value).filter((v) => v !== null);
      const extremes = known.length ? [Math.min(...known), Math.max(...known)] : [null, null];
      const cells = [last[name], ...extremes].map((value) => words(unit, value));
      return row(`${title}, ${label}`, ...cells);
    })));
}

/** A counter by one of its labels: since the start of the server, and in the window. */
export function showCounter(body, { before, after }, name, label) {
  const totals = totalsBy(after.metrics, name, label);
  const old = before ? totalsBy(before.metrics, name, label) : totals;
  const rows = [...totals].sort().map(
    ([reason, count]) => row(reason, count, count - (old.get(reason) ?? 0)),
  );
  body.replaceChildren(...(rows.length ? rows : [row("none so far", 0, 0)]));
}

function row(title, ...cells) {
  const made = element("tr");
  const head = element("th", title);
  head.scope = "row";
  made.append(head, ...cells.map((cell) => element("td", String(cell))));
  return made;
}
