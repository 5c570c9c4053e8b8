const hints: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused: check port, and that sshd runs",
  EHOSTUNREACH: "no route to host: check host, and that the machine is up",
  ENETUNREACH: "network unreachable: check host, and this machine's routes",
  ETIMEDOUT: "no answer: check host, that the machine is up, and any firewalls in between",
};

/** Returns the remedy for a target that cannot be reached. For a name that cannot be resolved it says where the name was looked
 *  up, which is usually not where the user has tried it. Pure.
 *  @param errno error code of the attempt, such as `ECONNREFUSED`; empty if there is none. @param env environment of this
 *  process. */
export function networkHint(errno: string, env: Readonly<Record<string, string | undefined>>): string {
  const [place, remedy] = env["KUBERNETES_SERVICE_HOST"]
    ? ["looked up in graftlet's Pod, by the cluster's DNS", "set an address, or hostAliases or dnsConfig in the chart"]
    : ["looked up on graftlet's machine", "check that machine's /etc/hosts and DNS, or set an address"];
  if (errno === "ENOTFOUND") return `unknown host name, ${place}: check host; ${remedy}`;
  if (errno === "EAI_AGAIN") return `the host name cannot be resolved at the moment, ${place}: ${remedy}`;
  return hints[errno] ?? "check host and port, and that sshd runs there";
}
