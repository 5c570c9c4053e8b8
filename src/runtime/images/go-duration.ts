/** Milliseconds as Go prints durations: `345ms`, `1.2s`, `2m3.5s`, `1h0m0s`. */
export function goDuration(ms: number): string {
  const whole = Math.trunc(ms);
  if (whole === 0) return "0s";
  if (whole < 1000) return `${whole}ms`;
  const hours = Math.floor(whole / 3_600_000);
  const minutes = Math.floor(whole / 60_000) % 60;
  const seconds = `${(whole % 60_000) / 1000}s`;
  if (hours > 0) return `${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${minutes}m${seconds}` : seconds;
}
