import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { parseDocument } from "yaml";
import { fileEntry, tarOf } from "./archive.ts";
import { filesIn, root } from "./source.ts";

const chart = "charts/graftlet";

/** The tar archive of the chart, whose image is the one of this release.
 *  @param image without tag and digest. @param date of all files, seconds since the epoch. */
export async function chartOf(image: string, digest: string, date: number): Promise<Buffer> {
  const names = await filesIn(chart);
  const entries = names.map((name) => {
    const file = join(root, chart, name);
    const text = readFileSync(file, "utf8");
    const mode = statSync(file).mode & 0o100 ? 0o755 : 0o644;
    return fileEntry(`graftlet/${name}`, name === "values.yaml" ? pinnedValues(text, image, digest) : text, mode, date);
  });
  return tarOf(entries);
}

/** Values whose image is one by digest, comments kept. Pure. @param image without tag and digest. */
export function pinnedValues(values: string, image: string, digest: string): string {
  const document = parseDocument(values);
  const [registry, ...repository] = image.split("/");
  document.setIn(["image", "registry"], registry);
  document.setIn(["image", "repository"], repository.join("/"));
  document.setIn(["image", "digest"], digest);
  return document.toString({ lineWidth: 0 });
}
