import { createHash } from "node:crypto";
import type * as cri from "../../src/gen/cri.ts";
import { Image, ImageFsInfoResponse } from "../../src/gen/cri.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";

/** Images that the fake has, and those that it could pull. */
export interface FakeImages {
  /** Puts an image in the store, as if pulled; returns its ID. */
  add(name: string, details?: Partial<cri.Image>): string;
  /** Makes an image pullable. */
  offer(name: string): void;
  find(reference: string): cri.Image | undefined;
  list(): readonly cri.Image[];
  pull(reference: string): string;
  remove(reference: string): void;
  fsInfo(): cri.ImageFsInfoResponse;
}

export function createFakeImages(clock: Clock): FakeImages {
  const store = new Map<string, cri.Image>();
  const offered = new Set<string>();
  const find = (reference: string) => {
    const name = fullName(reference);
    return [...store.values()].find(
      ({ id, repoTags, repoDigests }) => id === reference || repoTags.includes(name) || repoDigests.includes(name),
    );
  };
  const add = (reference: string, details: Partial<cri.Image> = {}) => {
    const name = fullName(reference);
    const id = `sha256:${createHash("sha256").update(name).digest("hex")}`;
    const repository = name.replace(/[@:][^/]*$/, "");
    store.set(
      id,
      Image.fromPartial({ id, repoTags: [name], repoDigests: [`${repository}@${id}`], size: 1000n, ...details }),
    );
    return id;
  };
  return {
    add,
    offer: (name) => void offered.add(fullName(name)),
    find,
    list: () => [...store.values()],
    pull(reference) {
      const name = fullName(reference);
      if (offered.has(name) || find(reference)) return add(name);
      throw new CodedError(
        "not_found",
        `failed to pull and unpack image "${name}": failed to resolve reference "${name}": ${name}: not found`,
      );
    },
    remove(reference) {
      const image = find(reference);
      if (image) store.delete(image.id);
    },
    fsInfo: () => {
      const usage = {
        timestamp: BigInt(clock.now()) * 1_000_000n,
        fsId: { mountpoint: "/var/lib/fake" },
        usedBytes: { value: BigInt(store.size) * 1000n },
        inodesUsed: { value: BigInt(store.size) },
      };
      return ImageFsInfoResponse.fromPartial({ imageFilesystems: [usage], containerFilesystems: [usage] });
    },
  };
}

/** A short name as runtimes complete it: docker.io, library, latest. */
function fullName(reference: string): string {
  const [first = "", ...rest] = reference.split("/");
  const hasHost = rest.length > 0 && (/[.:]/.test(first) || first === "localhost");
  const path = hasHost ? reference : rest.length > 0 ? `docker.io/${reference}` : `docker.io/library/${reference}`;
  return /[@:][^/]*$/.test(path) ? path : `${path}:latest`;
}
