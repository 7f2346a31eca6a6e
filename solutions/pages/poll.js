// Asking the server again and again, but only while somebody looks.

/** Calls an async function about every `seconds`, one call at a time, never while the page is hidden. */
export function poll(task, seconds) {
  let timer = null;
  let busy = false;

  async function tick() {
    clearTimeout(timer);
    if (busy || document.hidden) return;
    busy = true;
    const began = performance.now();
    await task();
    busy = false;
    timer = setTimeout(tick, Math.max(0, seconds * 1000 - (performance.now() - began)));
  }

  document.addEventListener("visibilitychange", tick);
  tick();
}

/** Gives the response, or null when the server is not there or does not answer within `seconds`. */
export async function get(path, seconds) {
  try {
    const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(seconds * 1000) });
    return { status: response.status, text: await response.text() };
  } catch {
    return null;
  }
}
