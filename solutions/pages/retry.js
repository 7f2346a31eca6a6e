// A retry button that can be pressed once the time is over for which the server asked.

/**
 * A button that counts down.
 * The seconds are outside the alert beside it, so that no screen reader says each of them.
 */
export function retryButton(seconds, retry) {
  const button = document.createElement("button");
  button.type = "button";
  button.addEventListener("click", retry);
  const ready = performance.now() + seconds * 1000;

  function show() {
    const left = Math.ceil((ready - performance.now()) / 1000);
    button.disabled = left > 0;
    button.textContent = left > 0 ? `Retry in ${left} s` : "Retry";
    if (left > 0) setTimeout(() => button.isConnected && show(), 250);
  }
  setTimeout(show); // when it has been put into the page
  return button;
}
