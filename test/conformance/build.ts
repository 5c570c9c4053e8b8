// Builds the programs of Kubernetes' own tests where they are not there yet.
import { buildSuites } from "../harness/tools.ts";

await buildSuites(["e2e.test", "e2e_node.test", "ginkgo", "sample-device-plugin"], (line) => console.error(line));
