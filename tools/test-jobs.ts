import { globSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { integration, isGuest, type Provider, providers, usual } from "../test/matrix.ts";
import { cellsNamed, environmentOf, nameOf } from "../test/machines/matrix/cells.ts";
import { slowContracts } from "../test/slow-contracts.ts";
import { waiting } from "../test/waiting.ts";
import { guestSizes } from "../test/harness/state.ts";
import type { Job } from "./run-jobs.ts";

/** Which integration tests are run. */
export interface Asked {
  /** The beginning of files' names; empty for all. */
  readonly only: string;
  /** With this provider alone, whatever the matrix says. */
  readonly provider: string;
  /** What the matrix has run by `make test`, by `make test-more`, or all that fits. */
  readonly part: "test" | "more" | "all";
}

const root = join(import.meta.dirname, "..");

/** How long a file takes of which nothing is known, seconds. */
const unknownSeconds = 30;

/** What a guest takes: its own memory, and what its emulator keeps of translated code. */
const memoryOfGuest = (guestSizes.memoryMiB + 512) * 2 ** 20;

/** The jobs of test/contract. */
export function contractJobs(): Job[] {
  return globSync("test/contract/**/*.test.ts", { cwd: root }).map((path) => {
    const name = basename(path, ".test.ts");
    return {
      name: `contract ${name}`,
      files: [join(root, path)],
      env: {},
      seconds: slowContracts[name] ?? unknownSeconds,
      waits: waiting.contract.has(name),
    };
  });
}

/** The jobs of test/integration. @throws when there is no such provider, or no such file. */
export function integrationJobs({ only, provider, part }: Asked): Job[] {
  if (provider !== "" && !providers.some((each) => each === provider))
    throw new Error(`PROVIDER is ${JSON.stringify(provider)}: it is one of ${providers.join(", ")}`);
  const files = Object.entries(integration).filter(([name]) => name.startsWith(only));
  if (files.length === 0)
    throw new Error(`no test/integration/${only}*.test.ts; ONLY is one of: ${Object.keys(integration).join(" ")}`);
  return files.flatMap(([name, { on, more = [], fits = usual, lab, alone = false, seconds }]) => {
    const wide = part === "all" || only !== "" || provider !== "";
    const narrow = part === "more" ? more : on;
    const chosen = (wide ? fits : narrow).filter((each) => provider === "" || each === provider);
    return chosen.map((each) => ({ ...jobOf(name, each), alone, seconds, ...(lab !== undefined && { lab }) }));
  });
}

function jobOf(name: string, provider: Provider): Omit<Job, "seconds"> {
  return {
    name: `integration ${name} with ${provider}`,
    files: [join(root, "test", "integration", `${name}.test.ts`)],
    env: runtimeOf(provider),
    waits: waiting.integration.has(name),
    ...(isGuest(provider) && { memory: memoryOfGuest }),
  };
}

/** Providers whose runtime is not Debian's, as the harness is told of them. */
const newer: Partial<Record<Provider, Readonly<Record<string, string>>>> = {
  "cri-2.4": { GRAFTLET_TEST_PROVIDER: "cri", GRAFTLET_TEST_CONTAINERD: "2.4" },
  "docker-28": {
    GRAFTLET_TEST_PROVIDER: "docker",
    GRAFTLET_TEST_CONTAINERD: "2.4",
    GRAFTLET_TEST_DOCKER: "28",
  },
  "docker-29": {
    GRAFTLET_TEST_PROVIDER: "docker",
    GRAFTLET_TEST_CONTAINERD: "2.4",
    GRAFTLET_TEST_DOCKER: "29",
  },
};

function runtimeOf(provider: Provider): Readonly<Record<string, string>> {
  const ofDebian = { GRAFTLET_TEST_CONTAINERD: "1.6", GRAFTLET_TEST_DOCKER: "20.10" };
  return { GRAFTLET_TEST_PROVIDER: provider, ...ofDebian, ...newer[provider] };
}

/** Makes one job of those that share a lab with the same provider. */
export function sharing(jobs: readonly Job[]): Job[] {
  const keyOf = ({ name, lab, env }: Job): string => (lab === undefined ? name : JSON.stringify([lab, env]));
  return [...Map.groupBy(jobs, keyOf).values()].map((some) => ({
    name: some.map(({ name }) => name).join(" + "),
    files: some.flatMap(({ files }) => files),
    env: some[0]?.env ?? {},
    once: some.some(({ once }) => once),
    alone: some.some(({ alone }) => alone),
    seconds: some.reduce((sum, { seconds }) => sum + seconds, 0),
    waits: some.every(({ waits }) => waits),
    memory: Math.max(...some.map(({ memory = 0 }) => memory)),
  }));
}

/** The tour of the machines that differ most from those of the other tests; `make machines` has more of them. */
export function tourJobs(): Job[] {
  return cellsNamed("busybox/containerd/dropbear crio/crio guest/debian-13/containerd").map((cell) => ({
    name: `tour of ${nameOf(cell)}`,
    files: [join(root, "test", "machines", "matrix", "tour.test.ts")],
    env: environmentOf(cell),
    seconds: cell.kernel === "own" ? 250 : 50,
    waits: false,
    ...(cell.kernel === "own" && { memory: memoryOfGuest }),
  }));
}

/** The part of Kubernetes' own tests that belongs to `make test`. */
export function conformanceJob(): Job {
  const file = join(root, "test", "conformance", "run.ts");
  return { name: "conformance-part", files: [file], env: { PART: "1" }, once: true, seconds: 200, waits: false };
}

/** Jobs of files that are named one by one. */
export function jobsOf(files: readonly string[]): Job[] {
  return files.map((file) => ({
    name: relative(process.cwd(), file),
    files: [file],
    env: {},
    seconds: unknownSeconds,
    waits: false,
  }));
}
