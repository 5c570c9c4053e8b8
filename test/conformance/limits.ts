import { parse } from "yaml";
import { isGuest } from "../matrix.ts";
import { type Network, networks, type Provider, type Whole, wholes } from "./options.ts";
import { type ListedTest, whole } from "./list.ts";

/** What some tests ask for and a provider cannot give, whoever wrote the agent. It explains a failure and excuses none. */
export interface Limit {
  readonly cause: string;
  /** The pods' network with which they meet it; each unless given. */
  readonly network?: Network;
  /** `SUITE NAME` of each test that meets it. */
  readonly tests: readonly string[];
}

export type Limits = Readonly<Record<Whole, readonly Limit[]>>;

/** Reads the limits of all providers. @param listed what there is: a limit of a test that is not listed is an error.
 *  @param source the file, for errors. @throws a sentence that names the fault and where it is. */
export function parseLimits(text: string, source: string, listed: readonly ListedTest[]): Limits {
  const given = (parse(text) ?? {}) as Readonly<Record<string, unknown>>;
  const unknown = Object.keys(given).find((key) => !wholes.some((provider) => provider === key));
  if (unknown !== undefined)
    throw new Error(`${source} has limits of ${JSON.stringify(unknown)}: it is one of ${wholes.join(", ")}`);
  const known = new Set(listed.map(whole));
  const of = (provider: Whole): readonly Limit[] => {
    const limits = given[provider] ?? [];
    if (!Array.isArray(limits)) throw new Error(`${provider} of ${source} is no list: give one of cause and tests`);
    return limits.map((limit, index) => checked(limit, `${provider}[${index}] of ${source}`, known));
  };
  return { cri: of("cri"), docker: of("docker"), ssh: of("ssh") };
}

function checked(limit: unknown, where: string, known: ReadonlySet<string>): Limit {
  const { cause, network: given, tests } = (limit ?? {}) as Partial<Record<keyof Limit, unknown>>;
  if (typeof cause !== "string" || cause.trim() === "")
    throw new Error(`${where} has no cause: say what makes its tests impossible`);
  if (!Array.isArray(tests) || tests.length === 0 || !tests.every((each) => typeof each === "string"))
    throw new Error(`${where} has no tests: name each as SUITE NAME`);
  const stray = tests.find((each) => !known.has(each));
  if (stray !== undefined)
    throw new Error(`${where} names ${JSON.stringify(stray)}, which is not in the list of tests`);
  const network = networks.find((each) => each === given);
  if (given !== undefined && network === undefined)
    throw new Error(`${where} has the network ${JSON.stringify(given)}: it is one of ${networks.join(", ")}`);
  return { cause: cause.trim(), tests, ...(network && { network }) };
}

/** The limits that a run with this provider and network meets: a guest is reached over SSH, unless the agent is in it. */
export function limitsWith(provider: Provider, network: Network, limits: Limits): readonly Limit[] {
  const ofProvider = limits[isGuest(provider) ? "ssh" : provider === "guest" ? "cri" : provider];
  return ofProvider.filter((limit) => limit.network === undefined || limit.network === network);
}

/** The limit that makes a test impossible; undefined where none is known. */
export function causeOf(limits: readonly Limit[], test: ListedTest): string | undefined {
  return limits.find(({ tests }) => tests.includes(whole(test)))?.cause;
}
