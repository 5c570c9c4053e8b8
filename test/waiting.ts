/** Files of test/contract and test/integration that mostly wait, for time limits and far machines. Each takes less than a sixth of a
 *  processor, with every provider. */
export const waiting: Readonly<Record<"contract" | "integration", ReadonlySet<string>>> = {
  contract: new Set([
    "egress",
    "host-ssh-jump",
    "host-ssh-link",
    "host-ssh-listen",
    "host-ssh-reverse",
    "host-ssh-shells",
    "host-ssh-trouble",
    "page",
    "ssh-claim",
    "ssh-lock",
  ]),
  integration: new Set([
    "cgroup-faults",
    "chaos-apiserver",
    "chaos-runtime",
    "docker-faults",
    "docker-foreign",
    "eviction",
    "eviction-crash",
    "eviction-crash-disk",
    "faults-apiserver",
    "lock-lost",
    "node",
    "node-allocatable",
    "ssh-claim",
    "ssh-link",
    "ssh-settings",
  ]),
};
