// Keys that belong to an input method, and not to the page.

/**
 * While a Japanese or Chinese word is being composed, Enter chooses it and Escape gives it up.
 * Safari ends the composition before the Enter that does so; its key code of 229 still tells.
 */
export function composes(event) {
  return event.isComposing || event.keyCode === 229;
}
