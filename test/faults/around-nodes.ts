import { contract, type Fault, unit } from "./fault.ts";
import { always, argument, become, call, condition, drop, never, operand, text } from "./mistake.ts";

/** Mistakes in what is around nodes: the chart, releases, traces. */
export const aroundNodes: readonly Fault[] = [
  {
    name: "chart-strategy",
    in: "charts/graftlet/templates/deployment.yaml",
    mistake: become(text("Recreate"), "RollingUpdate"),
    breaks: "An upgrade of the release runs two graftlets on one node.",
    assertion:
      '"renders everything exactly as its golden file, which contains no CRDs (GRAFTLET_UPDATE_GOLDEN=1 rewrites it)": Expected values to be strictly equal',
    foundBy: [contract("chart-render")],
  },
  {
    name: "chart-key-in-configuration",
    in: "charts/graftlet/templates/_nodes.tpl",
    mistake: drop(text('"privateKey" "knownHosts" ')),
    breaks: "A private key from the values is written to a ConfigMap, which more users can read than a Secret.",
    assertion:
      '"renders key-in-values exactly as its golden file, which contains no CRDs (GRAFTLET_UPDATE_GOLDEN=1 rewrites it)": Expected values to be strictly equal',
    foundBy: [contract("chart-render")],
  },
  {
    name: "release-node-integrity",
    in: "checkIntegrity",
    mistake: never(condition("expected")),
    breaks: "A release ships a Node.js that package-lock.json does not list.",
    assertion: '"ships only the Node.js of package-lock.json, for each architecture": Missing expected exception',
    foundBy: [unit("release/contents")],
  },
  {
    name: "trace-of-calls",
    in: "createGrpcChannel.call",
    mistake: become(call("callHeaders"), "{}"),
    breaks: "containerd's spans begin new traces, and are not found by searching for their pod.",
    assertion: '"sends trace headers with each call": Expected values to be strictly deep-equal',
    foundBy: [unit("providers/cri/client", "sends trace headers with each call")],
  },
  {
    name: "bare-lf",
    in: "readLine",
    mistake: never(condition("\n")),
    breaks: "A container whose server ends lines with only LF fails its liveness probe and is killed.",
    assertion: '"accepts non-standard responses that Go\'s client accepts": HTTP/1.1 200 OK',
    foundBy: [unit("probes/http")],
  },
  {
    name: "probe-family",
    in: "createVerdicts",
    mistake: become(argument("orderPodIPs", 2), "[]"),
    breaks: "On a node with IPv6 first, a pod whose server listens at IPv6 alone is never Ready.",
    assertion:
      "\"a network probe uses the pod's first address of the host's first family, as the status does\": Expected values to be strictly deep-equal",
    foundBy: [unit("probes/probes")],
  },
  {
    name: "root-of-another-release",
    in: "isAbandoned",
    mistake: always(operand("&&", "isNamesake")),
    breaks:
      "An object of another release takes a machine, and removes its pods, after nobody has locked it for a minute.",
    assertion:
      '"refuses a root directory of an object in another namespace, even while nobody uses it, until the user gives it away": Missing expected rejection',
    foundBy: [unit("process/claim", "refuses a root directory of an object in another namespace")],
  },
  {
    name: "secret-bytes",
    in: "buildEnvironment",
    mistake: always(condition("isUtf8")),
    breaks: "A container starts with a password that differs from the one in its Secret.",
    assertion: '"rejects bytes that an environment cannot hold, and names their key": Missing expected exception',
    foundBy: [unit("pod/env")],
  },
];
