// Prometheus' text format 0.0.4, from a page of text to samples.
// https://prometheus.io/docs/instrumenting/exposition_formats/

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+([+-]?(?:[\d.]\S*|Inf)|NaN)(?:\s+-?\d+)?$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** A Map from each name to its samples, [{labels, value}]. Lines that are no sample are passed over. */
export function parse(text) {
  const metrics = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line.trim());
    if (!match) continue;
    const [, name, labels = "", value] = match;
    if (!metrics.has(name)) metrics.set(name, []);
    metrics.get(name).push({ labels: parseLabels(labels), value: parseValue(value) });
  }
  return metrics;
}

function parseLabels(text) {
  const pairs = [...text.matchAll(LABEL)].map(([, name, value]) => [name, unescaped(value)]);
  return Object.fromEntries(pairs);
}

function unescaped(text) {
  return text.replace(/\\(.)/g, (_, sign) => (sign === "n" ? "\n" : sign));
}

function parseValue(text) {
  const infinities = { "+Inf": Infinity, Inf: Infinity, "-Inf": -Infinity };
  return infinities[text] ?? Number(text);
}

/** The sum of all samples of a name; null when there is none. */
export function total(metrics, name) {
  const samples = metrics.get(name);
  return samples ? samples.reduce((sum, { value }) => sum + value, 0) : null;
}

/** The samples of a name summed for each value of one label: a Map. */
export function totalsBy(metrics, name, label) {
  const totals = new Map();
  for (const { labels, value } of metrics.get(name) ?? []) {
    const key = labels[label] ?? "";
    totals.set(key, (totals.get(key) ?? 0) + value);
  }
  return totals;
}
