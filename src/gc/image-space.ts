interface Space {
  readonly capacityBytes: number;
  readonly availableBytes: number;
}

/** Usage of the image file system, and the bytes to free to get down to the low threshold; undefined below the high threshold. Whole
 *  percents and bytes, rounded like the kubelet. Pure. @param space with a capacity above 0. */
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

/** The kubelet's message when removing images did not free enough space. */
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
