// Values with their units, in a size that reads well.

const STEPS = {
  seconds: [[1, "s"], [1e-3, "ms"]],
  bytes: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  share: [[0.01, "%"]],
  "tokens/s": [[1, "tokens/s"]],
  requests: [[1, "requests"]],
};

/** The step of a unit that suits a value: [size, name]. */
export function stepFor(unit, value) {
  const steps = STEPS[unit];
  return steps.find(([size]) => Math.abs(value) >= size) ?? steps.at(-1);
}

/** A value in words; a dash when it is not known. */
export function words(unit, value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const [size, name] = stepFor(unit, value);
  return name === "requests" ? `${value}` : `${digits(value / size)} ${name}`;
}

/** Three digits that count; whole numbers stay whole. */
function digits(value) {
  if (Number.isInteger(value)) return String(value);
  return value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2);
}

/** Tick values for an axis from 0 to at least `largest`: two to five even steps of 1, 2, 2.5 or 5. */
export function ticks(largest, whole = false) {
  const raw = largest / 4 || 0.25;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.9999);
  const even = whole ? Math.max(1, Math.ceil(step)) : step;
  const count = Math.max(1, Math.ceil(largest / even - 1e-9));
  return Array.from({ length: count + 1 }, (_, i) => Number((i * even).toPrecision(6)));
}
