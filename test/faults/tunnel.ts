import { contract, type Fault, unit } from "./fault.ts";

/** What leaves a target's tunnel, and how much of it. */
export const tunnel: readonly Fault[] = [
  {
    name: "datagrams-anywhere",
    file: "src/service-tunnel/gate.ts",
    text: "!isDestination(protocol, to)) return",
    becomes: '(protocol === "tcp" && !isDestination(protocol, to))) return',
    breaks: "Root on a tunneled target sends UDP from graftlet's Pod to other destinations than its Services.",
    assertion: '"refuses a destination of the other protocol, UDP": Expected values to be strictly equal',
    foundBy: [unit("service-tunnel/gate")],
  },
  {
    name: "forged-pod-address",
    file: "src/service-tunnel/rules.ts",
    text: "        fib saddr . iif oif missing return\n",
    becomes: "",
    breaks: "A machine of the target's network sends datagrams to Services under a pod's address.",
    assertion: `"accepts only datagrams from a pod to a destination, on the pod's own network": Expected values to be strictly deep-equal`,
    foundBy: [contract("relay", "accepts only datagrams from a pod to a destination")],
  },
];
