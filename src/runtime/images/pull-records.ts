import { createHash } from "node:crypto";
import { pullRecordsDirectory } from "../../host/layout.ts";
import { replaceFile } from "../../host/replace-file.ts";
import { ignoreNotFound } from "../../lib/errors.ts";
import { rfc3339 } from "../../lib/rfc3339.ts";
import { entriesOf, recordOf } from "../../lib/record.ts";
import type { HostFs } from "../../seams/host.ts";

/** The secret that credentials came from, and their hash. */
export interface PullSecret {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** SHA-256 of the credentials, in hex. */
  readonly credentialHash: string;
}

/** The service account for which a credential provider plugin returned the credentials. */
export type PullAccount = Omit<PullSecret, "credentialHash">;

/** Pods that may use an image by a name: those with these credentials, or all pods of the node. */
export interface PullCredentials {
  readonly kubernetesSecrets?: readonly PullSecret[];
  readonly kubernetesServiceAccounts?: readonly PullAccount[];
  readonly nodePodsAccessible?: boolean;
}

/** An image pulled for a pod. Pods that use it by a name without credentials here are verified. */
export interface ImagePulledRecord {
  /** The runtime's ID of the image. */
  readonly imageRef: string;
  /** Milliseconds since the epoch. */
  readonly lastUpdated: number;
  /** Credentials by image name as in pods' specs, without tag and digest. */
  readonly credentials: ReadonlyMap<string, PullCredentials>;
}

/** Pull records in the root directory, in the kubelet's own format: a node that was run by a kubelet keeps its records.
 *  @see https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification */
export type PullRecords = ReturnType<typeof createPullRecords>;

const apiVersion = "kubelet.config.k8s.io/v1beta1";
const maxBytes = 2 ** 20;

export function createPullRecords(fs: Pick<HostFs, "readFile" | "list" | "apply">, rootDir: string) {
  const pulling = `${pullRecordsDirectory(rootDir)}/pulling`;
  const pulled = `${pullRecordsDirectory(rootDir)}/pulled`;
  const write = (directory: string, key: string, content: object, signal: AbortSignal): Promise<void> => {
    const file = `${directory}/${fileName(key)}`;
    const changes = replaceFile(file, `${JSON.stringify(content)}\n`, 0o600);
    return fs.apply([{ kind: "mkdir", path: directory, mode: 0o700, parents: true }, ...changes], signal);
  };
  const remove = (path: string, signal: AbortSignal) => fs.apply([{ kind: "remove", path }], signal);
  const read = async (path: string, signal: AbortSignal): Promise<unknown> => {
    const content = await ignoreNotFound(fs.readFile(path, { maxBytes, signal }));
    return content && JSON.parse(content.toString("utf8"));
  };
  return {
    /** The record of an image; undefined if there is none. @throws when it cannot be read. */
    async pulled(imageRef: string, signal: AbortSignal) {
      const content = await read(`${pulled}/${fileName(imageRef)}`, signal);
      if (content === undefined) return undefined;
      const record = parseRecord(content);
      if (!record) throw new Error(`corrupt pull record of image ${imageRef} in ${pulled}`);
      return record.imageRef === imageRef ? record : undefined;
    },
    writePulled: ({ imageRef, lastUpdated, credentials }: ImagePulledRecord, signal: AbortSignal) =>
      write(
        pulled,
        imageRef,
        {
          kind: "ImagePulledRecord",
          apiVersion,
          lastUpdatedTime: rfc3339(lastUpdated),
          imageRef,
          credentialMapping: Object.fromEntries(credentials),
        },
        signal,
      ),
    /** Deletes older records of images that are not in the list. @param before milliseconds since the epoch. */
    async prune(imageRefs: readonly string[], before: number, signal: AbortSignal) {
      const kept = new Set(imageRefs.map((imageRef) => `${pulled}/${fileName(imageRef)}`));
      for (const file of await recordFiles(fs, pulled, signal)) {
        if (kept.has(file)) continue;
        const record = parseRecord(await read(file, signal).catch(() => undefined));
        // Recorded times have whole seconds.
        if (!record || record.lastUpdated < Math.trunc(before / 1000) * 1000) await remove(file, signal);
      }
    },
    /** Image names with a recorded pull intent, as in pod specs. */
    async intents(signal: AbortSignal) {
      const images: string[] = [];
      for (const file of await recordFiles(fs, pulling, signal)) {
        const image = recordOf(await read(file, signal).catch(() => undefined))?.["image"];
        if (typeof image === "string") images.push(image);
      }
      return images;
    },
    writeIntent: (image: string, signal: AbortSignal) =>
      write(pulling, image, { kind: "ImagePullIntent", apiVersion, image }, signal),
    deleteIntent: (image: string, signal: AbortSignal) => remove(`${pulling}/${fileName(image)}`, signal),
  };
}

/** Record files in a directory; empty if it does not exist. */
async function recordFiles(
  fs: Pick<HostFs, "list">,
  directory: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const names = ((await ignoreNotFound(fs.list(directory, signal))) ?? []).map(({ name }) => name);
  return names.filter((name) => /^sha256-[0-9a-f]{64}$/.test(name)).map((name) => `${directory}/${name}`);
}

function fileName(key: string): string {
  return `sha256-${createHash("sha256").update(key).digest("hex")}`;
}

/** Parses a pull record; undefined if it is invalid. */
function parseRecord(content: unknown): ImagePulledRecord | undefined {
  const { kind, imageRef, lastUpdatedTime, credentialMapping } = recordOf(content) ?? {};
  if (kind !== "ImagePulledRecord" || typeof imageRef !== "string") return undefined;
  const lastUpdated = typeof lastUpdatedTime === "string" ? Date.parse(lastUpdatedTime) : Number.NaN;
  const credentials = entriesOf(credentialMapping).map(([name, given]) => [name, parseCredentials(given)] as const);
  return { imageRef, lastUpdated: Number.isNaN(lastUpdated) ? 0 : lastUpdated, credentials: new Map(credentials) };
}

function parseCredentials(given: unknown): PullCredentials {
  const { nodePodsAccessible, kubernetesSecrets, kubernetesServiceAccounts } = recordOf(given) ?? {};
  const secrets = Array.isArray(kubernetesSecrets) ? kubernetesSecrets.map(parseSecret) : [];
  const accounts = Array.isArray(kubernetesServiceAccounts) ? kubernetesServiceAccounts.map(parseAccount) : [];
  return {
    ...(secrets.length > 0 && { kubernetesSecrets: secrets }),
    ...(accounts.length > 0 && { kubernetesServiceAccounts: accounts }),
    ...(nodePodsAccessible === true && { nodePodsAccessible }),
  };
}

function parseSecret(given: unknown): PullSecret {
  return { ...parseAccount(given), credentialHash: stringField(given, "credentialHash") };
}

function parseAccount(given: unknown): PullAccount {
  return {
    uid: stringField(given, "uid"),
    namespace: stringField(given, "namespace"),
    name: stringField(given, "name"),
  };
}

function stringField(given: unknown, name: string): string {
  const value = recordOf(given)?.[name];
  return typeof value === "string" ? value : "";
}
