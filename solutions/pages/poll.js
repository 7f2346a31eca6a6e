// Asking the server again and again, but only while somebody looks.

/**
 * Calls an async function about every `seconds`, one call at a time, never while the page is hidden.
 * A call that fails is not the last one; the console says why it failed.
 */
export function poll(task, seconds) {
  let timer = null;
  let busy = false;

  async function tick() {
    clearTimeout(timer);
    if (busy || document.hidden) return;
    busy = true;
    const began = performance.now();
    try {
      await task();
    } finally {
      busy = false;
      timer = setTimeout(tick, Math.max(0, seconds * 1000 - (performance.now() - began)));
    }
  }

  document.addEventListener("visibilitychange", tick);
  tick();
}

/**
 * Gives {status, text, at}, or null when the server is not there or does not answer within `seconds`.
 * `at` is when the text came, in seconds of a clock that never goes back.
 */
export async function get(path, seconds) {
  try {
    const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(seconds * 1000) });
    const text = await response.text();
    return { status: response.status, text, at: performance.now() / 1000 };
  } catch {
    return null;
  }
}
