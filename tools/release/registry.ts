import { must } from "../../test/harness/processes.ts";
import { sha256 } from "./digests.ts";

/** A registry as a release works with it, by skopeo and helm. References have no `docker://` or `oci://`. */
export interface Registry {
  /** Pushes what has the name `reference` in a layout's folder; no byte of it changes. */
  push(folder: string, reference: string, target: string): Promise<void>;
  /** Pushes a packed chart below `charts`. */
  pushChart(file: string, charts: string): Promise<void>;
  /** What lies there, a manifest or index, and its digest. */
  manifest(reference: string): Promise<{ readonly text: string; readonly digest: string }>;
  /** Fetches a manifest and its blobs: files called by their digests. */
  fetch(reference: string, folder: string): Promise<void>;
}

/** How a registry is reached. */
export interface Reach {
  /** The program helm. */
  readonly helm: string;
  /** The command that runs another where the registry is reached. */
  within(argv: readonly string[]): string[];
  /** Without TLS, as one on the loopback is. */
  readonly plain: boolean;
}

/** @see https://github.com/containers/skopeo/blob/main/docs/skopeo-copy.1.md */
export function registryBy({ helm, within, plain }: Reach): Registry {
  const call = (argv: readonly string[]): Promise<string> => must(within(argv), { timeoutMs: 600_000 });
  const skopeo = (...args: readonly string[]): Promise<string> => call(["skopeo", "--insecure-policy", ...args]);
  return {
    async push(folder, reference, target) {
      const verify = `--dest-tls-verify=${!plain}`;
      await skopeo("copy", "--all", "--preserve-digests", verify, `oci:${folder}:${reference}`, `docker://${target}`);
    },
    async pushChart(file, charts) {
      await call([helm, "push", file, `oci://${charts}`, ...(plain ? ["--plain-http"] : [])]);
    },
    async manifest(reference) {
      const text = await skopeo("inspect", "--raw", `--tls-verify=${!plain}`, `docker://${reference}`);
      return { text, digest: `sha256:${sha256(text)}` };
    },
    async fetch(reference, folder) {
      await skopeo(
        "copy",
        "--preserve-digests",
        `--src-tls-verify=${!plain}`,
        `docker://${reference}`,
        `dir:${folder}`,
      );
    },
  };
}
