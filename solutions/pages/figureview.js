// How one panel looks: title, lines with their last values, chart, a sentence.

import { draw } from "./chart.js";
import { words } from "./units.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element of a name with a text. */
export function element(name, text = "") {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

/** Puts a text where another stands, in the same node: a selection or a reading place stays. */
export function put(place, text) {
  if (place.textContent === text) return;
  if (place.firstChild) place.firstChild.data = text;
  else place.textContent = text;
}

/** Puts a panel into `parent`; returns the function that shows points in it. */
export function addPanel(parent, panel) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const legend = element("ul");
  const chart = document.createElementNS(SVG, "svg");
  const note = element("p");
  caption.append(element("h2", panel.title), element("code", panel.metric));
  legend.className = "legend";
  chart.setAttribute("class", "chart");
  chart.setAttribute("role", "img");
  note.className = "quiet";
  figure.append(caption, legend, chart, note);
  parent.append(figure);

  return (points, { now, span, window }) => {
    const last = points.at(-1).figures;
    const lines = panel.lines(last);
    const shown = lines.map(([name, label]) => `${label} ${words(panel.unit, last[name])}`);
    const labels = lines.map(([, label]) => label).join();
    if (legend.dataset.labels !== labels) {
      legend.dataset.labels = labels;
      legend.replaceChildren(...lines.map(([, label], i) => legendItem(i + 1, label)));
    }
    lines.forEach(([name], i) => put(legend.children[i].lastChild, words(panel.unit, last[name])));
    put(note, panel.note(last, window));
    chart.setAttribute("aria-label", `${panel.title}, line chart. Now: ${shown.join(", ")}.`);
    draw(chart, {
      lines: lines.map(([name], i) => ({ style: `line-${i + 1}`, points: valuesOf(points, name) })),
      unit: panel.unit,
      top: panel.top,
      now,
      span,
    });
  };
}

/** The points of one figure: [{at, life, value}], null where it is not known. */
export function valuesOf(points, name) {
  return points.map(({ at, life, figures }) => ({ at, life, value: figures[name] ?? null }));
}

function legendItem(number, label) {
  const item = element("li");
  const key = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "line");
  const place = { x1: 1, x2: 29, y1: 4, y2: 4, class: `line-${number}` };
  for (const [name, at] of Object.entries(place)) line.setAttribute(name, at);
  key.setAttribute("aria-hidden", "true");
  key.append(line);
  item.append(key, `${label} `, element("b"));
  return item;
}
