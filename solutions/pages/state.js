// What the answers to /health and /metrics say about the server, in a sentence.

export const UNREACHABLE = "The server cannot be reached. Asking again each second.";
const NO_METRICS = "The server is there, but has no /metrics: it runs without the monitoring of chapter 08.";

/**
 * [state, words] from two answers {status, text}; null is one that did not come.
 * An answer may be from a proxy or a login page before the server, and is not believed too much.
 */
export function stateOf(health, metrics) {
  if (!health && !metrics) return ["trouble", UNREACHABLE];
  if (!metrics) return ["trouble", "The server is there, but /metrics does not come."];
  if (!health) return ["trouble", "The server is there, but /health does not come."];
  if (metrics.status === 404) return ["trouble", NO_METRICS];
  if (metrics.status !== 200) return ["trouble", someoneSays(metrics)];
  const reason = reasonIn(health.text);
  if (health.status === 200 && reason === "ready") return ["ready", "Ready: the engine takes requests."];
  return ["trouble", reason ? `The engine takes no requests: ${reason}.` : someoneSays(health)];
}

function someoneSays({ status }) {
  return `The server, or what stands before it, answered with status ${status}.`;
}

function reasonIn(text) {
  try {
    return JSON.parse(text).status ?? "";
  } catch {
    return "";
  }
}
