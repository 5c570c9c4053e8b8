/** Space of a file system. */
interface Space {
  readonly capacityBytes: number;
  readonly availableBytes: number;
}

/** How full the image file system is, and how much to free: down to the low threshold once the high one is reached; undefined below it.
 *  Whole percents and bytes, rounded as by a kubelet. Pure. @param space with a capacity above 0. */
export function amountToFree(
  { capacityBytes, availableBytes }: Space,
  { highPercent, lowPercent }: { readonly highPercent: number; readonly lowPercent: number },
): { readonly usedPercent: number; readonly bytes: number | undefined } {
  const capacity = BigInt(capacityBytes);
  const available = BigInt(Math.min(availableBytes, capacityBytes));
  const usedPercent = 100 - Number((available * 100n) / capacity);
  const bytes = (capacity * BigInt(100 - lowPercent)) / 100n - available;
  return { usedPercent, bytes: usedPercent >= highPercent ? Number(bytes) : undefined };
}

/** The kubelet's sentence for a file system that is full of something else. */
export function freeSpaceFailed(usedPercent: number, capacityBytes: number, freedBytes: number): string {
  return (
    `Insufficient free disk space on the node's image filesystem (${usedPercent}% of ${sizeText(capacityBytes)} used). ` +
    `Failed to free sufficient space by deleting unused images (freed ${freedBytes} bytes). ` +
    "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
  );
}

const units = ["KiB", "MiB", "GiB", "TiB"] as const;

function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(units.length, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${units[power - 1] ?? "TiB"}`;
}
