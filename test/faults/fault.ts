import type { Mistake } from "./mistake.ts";

/** A test of continuous integration: of `make test` or `make test-more`. */
export interface FaultTest {
  readonly part: "unit" | "contract" | "integration";
  /** Provider of an integration test's node; containerd unless given. */
  readonly provider?: "docker" | "ssh" | "ssh-docker";
  readonly file: string;
  /** The title of one test in the file, or its beginning; all of them unless given. */
  readonly title?: string;
}

/** A small mistake that somebody could make, and the tests that have to find it. */
export interface Fault {
  readonly name: string;
  /** Name of a declaration, or a path of names: `criContainers.stopContainer`. What is not found in it is looked for in the rest of its file.
   *  A glob of one file, if that is in another language. */
  readonly in: string;
  readonly mistake: Mistake;
  /** Symptom for a user. */
  readonly breaks: string;
  /** How the tests tell, as `make faults` showed it. */
  readonly assertion: string;
  /** Each of them fails. */
  readonly foundBy: readonly FaultTest[];
}

/** A file of unit tests. @param file below test/unit. */
export const unit = (file: string, title?: string): FaultTest => ({
  part: "unit",
  file: `test/unit/${file}.test.ts`,
  ...(title && { title }),
});
export const contract = (file: string, title?: string): FaultTest => ({
  part: "contract",
  file: `test/contract/${file}.test.ts`,
  ...(title && { title }),
});
/** One test on a real cluster. @param title its beginning. */
export const integration = (file: string, title: string, provider?: FaultTest["provider"]): FaultTest => ({
  part: "integration",
  file: `test/integration/${file}.test.ts`,
  title,
  ...(provider && { provider }),
});
