// Which figures the dashboard shows, and what it says about them.

/**
 * title, metric (the name in /metrics), unit (of units.js), top (the axis reaches it at least),
 * lines: figures -> [[name of a figure, label]], drawn in the styles line-1, line-2, ...
 * note: (figures, window in seconds) -> a sentence.
 */
export const PANELS = [
  {
    title: "Time to first token",
    metric: "llm_time_to_first_token_seconds",
    unit: "seconds",
    lines: () => [["firstP50", "p50"], ["firstP95", "p95"]],
    note: ({ firstCount }, window) => `${counted(firstCount, "answer")} began in ${spoken(window)}.`,
  },
  {
    title: "Inter-token latency",
    metric: "llm_inter_token_latency_seconds",
    unit: "seconds",
    lines: () => [["betweenP50", "p50"], ["betweenP95", "p95"]],
    note: ({ betweenCount }, window) => `${counted(betweenCount, "gap")} between tokens in ${spoken(window)}.`,
  },
  {
    title: "Throughput",
    metric: "llm_generation_tokens_total",
    unit: "tokens/s",
    lines: () => [["written", "written"], ["read", "read"]],
    note: (_, window) => `Tokens of answers and of prompts, averaged over ${spoken(window)}.`,
  },
  {
    title: "Queue",
    metric: "llm_requests_running",
    unit: "requests",
    top: 4,
    lines: () => [["running", "running"], ["waiting", "waiting"]],
    note: ({ waiting }) => (waiting ? "Requests wait: for a row, for room, or for an engine that steps." : "Nobody waits."),
  },
  {
    title: "Memory: KV cache",
    metric: "llm_kv_cache_usage_ratio",
    unit: "share",
    top: 1,
    lines: () => [["kv", "in use"]],
    note: () => "Tokens reserved by running requests, of all that fit.",
  },
  {
    title: "Memory: bytes",
    metric: "llm_memory_bytes",
    unit: "bytes",
    lines: memoryLines,
    note: () => "A line that only ever rises is a leak.",
  },
];

function memoryLines(figures) {
  const names = Object.keys(figures).filter((name) => name.startsWith("memory ")).sort().reverse();
  return names.map((name) => [name, name.slice("memory ".length).replaceAll("_", " ")]);
}

function counted(count, noun) {
  if (!count) return `No ${noun}`;
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** A window in words. */
export function spoken(seconds) {
  return seconds === 60 ? "the last minute" : `the last ${seconds}\u00a0s`;
}
