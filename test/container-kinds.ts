/** The kinds of containers. A sidecar is an init container with `restartPolicy: Always`. */
export const kinds = ["init", "sidecar", "main", "ephemeral"] as const;
export type Kind = (typeof kinds)[number];

/** What a node promises about a container, whatever its kind. */
export const promises = [
  "cpu limit",
  "memory limit",
  "ephemeral-storage limit",
  "hugepages limit",
  "devices",
  "order after a new sandbox",
  "restart of the agent",
  "restart of the runtime",
  "restart of the machine",
  "probes",
  "hooks",
  "images",
  "volumes",
] as const;
export type Promised = (typeof promises)[number];

const noResources = "the API server refuses resources of ephemeral containers";

/** Cells of kinds and promises that do not exist, with the reason. A reason that begins with "the API server refuses" is tested on a
 *  real one, by test/integration/container-kinds.test.ts. */
const absent: Readonly<Partial<Record<Promised, Readonly<Partial<Record<Kind, string>>>>>> = {
  "cpu limit": { ephemeral: noResources },
  "memory limit": { ephemeral: noResources },
  "ephemeral-storage limit": { ephemeral: noResources },
  "hugepages limit": { ephemeral: noResources },
  devices: { ephemeral: noResources },
  probes: {
    init: "the API server refuses probes of init containers",
    ephemeral: "the API server refuses probes of ephemeral containers",
  },
  hooks: {
    init: "the API server refuses hooks of init containers",
    ephemeral: "the API server refuses hooks of ephemeral containers",
  },
};

/** A promise to a kind of container. */
export interface Cell {
  readonly kind: Kind;
  readonly promised: Promised;
  /** Why the kind has no such promise. */
  readonly absent: string | undefined;
}

/** Every promise to every kind. */
export const cells: readonly Cell[] = promises.flatMap((promised) =>
  kinds.map((kind) => ({ kind, promised, absent: absent[promised]?.[kind] })),
);
