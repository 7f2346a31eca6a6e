// From two readings of the metrics to the figures of the time between them.

import { total, totalsBy } from "./prometheus.js";

/** How much a counter grew. A counter that was not there before counts from zero. */
export function increase(before, after, name) {
  return (total(after, name) ?? 0) - (total(before, name) ?? 0);
}

/** What a histogram saw in between: [[upper bound, observations up to it], ...], bounds rising. */
export function bucketIncrease(before, after, name) {
  const old = totalsBy(before, `${name}_bucket`, "le");
  const grown = [...totalsBy(after, `${name}_bucket`, "le")].map(
    ([le, count]) => [le === "+Inf" ? Infinity : Number(le), count - (old.get(le) ?? 0)],
  );
  return grown.sort(([a], [b]) => a - b);
}

/**
 * The q-quantile of cumulative buckets, as Prometheus' histogram_quantile estimates it: evenly
 * spread inside a bucket. Null without observations. Beyond the last finite bound nothing is
 * known, so that bound is the answer: a smallest value, not an estimate.
 */
export function quantile(q, buckets) {
  const count = buckets.at(-1)?.[1] ?? 0;
  if (count <= 0) return null;
  const rank = q * count;
  let [lower, below] = [0, 0];
  for (const [upper, upTo] of buckets) {
    if (upTo >= rank && upTo > below) {
      if (upper === Infinity) return lower;
      return lower + (upper - lower) * ((rank - below) / (upTo - below));
    }
    [lower, below] = [upper, upTo];
  }
  return null;
}

/**
 * Everything the dashboard draws, by name; null is "not known".
 * `before` and `after` are {at (seconds), metrics}; without a `before` only gauges are known.
 */
export function figuresBetween(before, after) {
  return { ...gauges(after.metrics), ...(before ? rates(before, after) : {}) };
}

function gauges(metrics) {
  const figures = {
    running: total(metrics, "llm_requests_running"),
    waiting: total(metrics, "llm_requests_waiting"),
    kv: total(metrics, "llm_kv_cache_usage_ratio"),
  };
  for (const [kind, bytes] of totalsBy(metrics, "llm_memory_bytes", "kind")) {
    figures[`memory ${kind}`] = bytes;
  }
  return figures;
}

function rates(before, after) {
  const [old, now] = [before.metrics, after.metrics];
  const seconds = after.at - before.at;
  const first = bucketIncrease(old, now, "llm_time_to_first_token_seconds");
  const between = bucketIncrease(old, now, "llm_inter_token_latency_seconds");
  return {
    firstP50: quantile(0.5, first),
    firstP95: quantile(0.95, first),
    firstCount: first.at(-1)?.[1] ?? 0,
    betweenP50: quantile(0.5, between),
    betweenP95: quantile(0.95, between),
    betweenCount: between.at(-1)?.[1] ?? 0,
    written: increase(old, now, "llm_generation_tokens_total") / seconds,
    read: increase(old, now, "llm_prompt_tokens_total") / seconds,
  };
}
