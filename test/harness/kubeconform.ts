import { join } from "node:path";
import { locationBelow } from "../../tools/schemas/json-schema.ts";
import { schemaFolder } from "../../tools/schemas/schemas.ts";
import { run } from "./processes.ts";
import { buildProgram } from "./tools.ts";

/** What kubeconform says of an object. @see https://github.com/yannh/kubeconform#usage */
export interface Verdict {
  readonly kind: string;
  readonly name: string;
  /** `statusValid`, `statusInvalid`, `statusError` … */
  readonly status: string;
  readonly msg: string;
}

/** Holds objects, a text of YAML documents, to the API server's schemas and those of the Prometheus operator: what they do not name is
 *  refused, and so is a kind that they do not know. @returns a verdict for each object. */
export async function verdictsOn(text: string, say: (line: string) => void): Promise<readonly Verdict[]> {
  const kubeconform = await buildProgram({ name: "kubeconform", module: "kubeconform" }, say);
  const location = join(await schemaFolder(), locationBelow);
  const argv = [kubeconform, "-strict", "-verbose", "-output=json", `-schema-location=${location}`, "-"];
  const { stdout, stderr } = await run(argv, { stdin: text, timeoutMs: 60_000 });
  if (stdout === "") throw new Error(`kubeconform: ${stderr}`);
  return (JSON.parse(stdout) as { resources: Verdict[] }).resources;
}
