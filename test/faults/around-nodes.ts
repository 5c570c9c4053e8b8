import { contract, type Fault, unit } from "./fault.ts";

/** Mistakes in what is around nodes: the chart, releases, traces. */
export const aroundNodes: readonly Fault[] = [
  {
    name: "chart-strategy",
    file: "charts/graftlet/templates/deployment.yaml",
    text: "strategy: { type: Recreate }",
    becomes: "strategy: { type: RollingUpdate }",
    breaks: "An upgrade of the release runs two graftlets on one node.",
    assertion:
      '"everything is as it was (GRAFTLET_UPDATE_GOLDEN=1 takes what is rendered now)": Expected values to be strictly equal',
    foundBy: [contract("chart-render")],
  },
  {
    name: "chart-key-in-configuration",
    file: "charts/graftlet/templates/_nodes.tpl",
    text: '"login" "privateKey" "knownHosts" "reverse"',
    becomes: '"login" "reverse"',
    breaks: "A private key from the values stands in a ConfigMap, which more people read than Secrets.",
    assertion:
      '"key-in-values is as it was (GRAFTLET_UPDATE_GOLDEN=1 takes what is rendered now)": Expected values to be strictly equal',
    foundBy: [contract("chart-render")],
  },
  {
    name: "release-node-integrity",
    file: "tools/release/digests.ts",
    text: "if (found !== expected)",
    becomes: "if (found === undefined)",
    breaks: "A release ships a Node that package-lock.json does not know.",
    assertion:
      '"Node is what package-lock.json says, for each architecture, or is not shipped": Missing expected exception',
    foundBy: [unit("release/contents")],
  },
  {
    name: "trace-of-calls",
    file: "providers/cri/client.ts",
    text: "callHeaders && { headers: callHeaders() }",
    becomes: "{ headers: {} }",
    breaks: "The spans of containerd begin traces of their own, and are not found by the pod that they are for.",
    assertion: '"sends trace headers with each call": Expected values to be strictly deep-equal',
    foundBy: [unit("providers/cri/client", "sends trace headers with each call")],
  },
  {
    name: "bare-lf",
    file: "src/lib/http1-fields.ts",
    text: 'return line.endsWith("\\n") ? line.slice(0, -1) : line;',
    becomes: "return line;",
    breaks: "A container whose server ends its lines with LF alone is killed for its probe.",
    assertion: '"accepts non-standard responses that Go\'s client accepts": HTTP/1.1 200 OK',
    foundBy: [unit("probes/http")],
  },
  {
    name: "secret-bytes",
    file: "src/pod/env.ts",
    text: "if (isUtf8(bytes)) return bytes.toString();",
    becomes: "return bytes.toString();",
    breaks: "A container starts with another password than its Secret has.",
    assertion: '"rejects bytes that an environment cannot hold, and names their key": Missing expected exception',
    foundBy: [unit("pod/env")],
  },
];
