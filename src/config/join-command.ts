import type { ConfigIo } from "./documents.ts";
import { isSubdomain } from "./names.ts";
import { kubeconfigFrom } from "./node-config.ts";
import type { Options } from "./option-fields.ts";
import type { JoinCommand, OptionsOf } from "./parse-result.ts";
import { refuse } from "./refusal.ts";

/** `graftlet --fleet NAMESPACE/NAME`. The rest of the command line is parsed once the release's configuration has been read from the
 *  cluster. @param parse parses the flags with a --nodes file. @throws CodedError invalid_argument */
export function parseJoin(
  io: ConfigIo,
  fleet: string,
  options: Options,
  parse: (io: ConfigIo, path: string, options: Options) => OptionsOf<"run">,
): Omit<JoinCommand, "logging"> {
  const [namespace = "", release = "", ...more] = fleet.split("/");
  if (![namespace, release].every(isSubdomain) || more.length > 0)
    throw refuse("--fleet", fleet, "use NAMESPACE/NAME: the namespace and the name of the Helm release");
  if (options.nodes !== undefined)
    throw refuse("--nodes", options.nodes, "it cannot be used with --fleet, whose machines are GraftedNodes; omit it");
  if (io.env["KUBERNETES_SERVICE_HOST"])
    throw refuse("--fleet", fleet, "it is for graftlet outside the cluster; for more Pods, set replicas in the chart");
  const kubeconfig = kubeconfigFrom(io, "--kubeconfig", options.kubeconfig);
  if (kubeconfig === undefined)
    throw refuse(
      "--kubeconfig",
      undefined,
      "is not given: --fleet needs the kubeconfig of the replica's ServiceAccount",
    );
  const complete = (source: string, configuration: string) => {
    const own: ConfigIo = { ...io, readFile: (path) => (path === source ? configuration : io.readFile(path)) };
    const run = parse(own, source, { ...options, kubeconfig: undefined });
    if (run.fleet?.release !== release || !run.fleet.outside)
      throw refuse("--fleet", fleet, `${source} is not that of a replica of release ${release}`);
    return run;
  };
  return { kind: "join", namespace, release, kubeconfig, complete };
}

/** @throws CodedError invalid_argument if --fleet is given to a command that works on the nodes of flags or files. */
export function refuseFleet({ fleet }: Options): void {
  if (fleet !== undefined)
    throw refuse("--fleet", fleet, "this command does not use it: the machines of a fleet are GraftedNodes; omit it");
}
