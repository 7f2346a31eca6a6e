// A long answer scrolls by itself, but only for a reader who is at its end.

const NEAR = 40; // pixels: about two lines

/**
 * Keeps a scroller at its end through changes of its content.
 * Returns a function that makes a change; `toEnd` is a button shown while the reader is elsewhere.
 */
export function followEnd(scroller, toEnd) {
  const away = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  const goToEnd = () => { scroller.scrollTop = scroller.scrollHeight; };
  const showButton = () => { toEnd.hidden = away() <= NEAR; };

  scroller.addEventListener("scroll", showButton, { passive: true });
  new ResizeObserver(showButton).observe(scroller);
  toEnd.addEventListener("click", () => {
    goToEnd();
    scroller.focus();
  });

  return (change) => {
    const follows = away() <= NEAR;
    change();
    if (follows) goToEnd();
    showButton();
  };
}
