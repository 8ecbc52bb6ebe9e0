/**
 * Return a duration as people read it.
 * @param {number} ms
 */
export function span_(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const rest = seconds % 60 ? ` ${seconds % 60} s` : "";
  return `${Math.floor(seconds / 60)} min${rest}`;
}
