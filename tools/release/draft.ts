import { graftletArchive } from "../../test/harness/image.ts";
import type { Tools } from "../../test/harness/tools.ts";
import type { LoopbackRegistry } from "./loopback.ts";
import type { Published } from "./making.ts";
import { publish } from "./publish.ts";
import { newKey } from "./signing.ts";
import { readSource } from "./source.ts";

/** What a draft is made with. */
export interface Drafting extends LoopbackRegistry {
  readonly tools: Tools;
  /** For its files. */
  readonly folder: string;
  say(line: string): void;
}

/** Makes a release of this checkout, whatever is committed of it, and pushes it, signed with a key of its own. */
export async function publishDraft({ address, registry, tools, folder, say }: Drafting): Promise<Published> {
  return publish({
    source: await readSource({ draft: true }),
    places: { image: `${address}/graftlet/graftlet`, charts: `${address}/graftlet/charts` },
    registry,
    key: newKey(),
    builder: "https://localhost/release-dry-run",
    folder,
    archiveOf: (architecture) => graftletArchive(tools, say, { architecture }),
    say,
  });
}
