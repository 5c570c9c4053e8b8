/** Milliseconds as Go prints a duration: `1m0s`, `100ms`, `1.5s`, `0s`. @see https://pkg.go.dev/time#Duration.String */
export function goDuration(ms: number): string {
  if (ms === 0) return "0s";
  if (ms < 0) return `-${goDuration(-ms)}`;
  if (ms < 1000) return ms >= 1 ? `${trimmed(ms)}ms` : ms >= 1e-3 ? `${trimmed(ms * 1e3)}µs` : `${trimmed(ms * 1e6)}ns`;
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor((ms % 3_600_000) / 60_000);
  const seconds = trimmed((ms % 60_000) / 1000);
  return hours > 0 ? `${hours}h${minutes}m${seconds}s` : minutes > 0 ? `${minutes}m${seconds}s` : `${seconds}s`;
}

function trimmed(amount: number): string {
  return String(Number(amount.toFixed(9)));
}
