// The readings of the last minutes, and which of them may be compared.

import { figuresBetween } from "./figures.js";
import { total } from "./prometheus.js";

const SLACK = 0.5; // seconds: a reading that is a little late still belongs to its window

/** Readings not older than `span` seconds. */
export function createHistory(span) {
  let readings = []; // {at, metrics, life}; a restart of the server begins another life

  /** The oldest reading of the same life inside the window: what a later one is compared with. */
  function baseOf(reading, window) {
    const base = readings.find(
      ({ at, life }) => life === reading.life && at >= reading.at - window - SLACK,
    );
    return base === reading ? null : base;
  }

  return {
    /** `at` is in seconds of a clock that never goes back. */
    add(at, metrics) {
      const last = readings.at(-1);
      const life = (last?.life ?? 0) + (last && wentBack(last.metrics, metrics) ? 1 : 0);
      readings = [...readings.filter((reading) => reading.at >= at - span), { at, metrics, life }];
    },

    /** The two readings that the newest figures come from; `before` may be null. */
    newest(window) {
      const after = readings.at(-1);
      return { before: baseOf(after, window), after };
    },

    /** [{at, life, figures}], oldest first. */
    points(window) {
      return readings.map((reading) => ({
        at: reading.at,
        life: reading.life,
        figures: figuresBetween(baseOf(reading, window), reading),
      }));
    },
  };
}

/** A counter that is smaller than before: the process that counted is not the same any more. */
export function wentBack(before, after) {
  const counters = [...before.keys()].filter((name) => /_(total|count)$/.test(name));
  return counters.some((name) => (total(after, name) ?? 0) < total(before, name));
}
