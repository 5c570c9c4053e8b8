import { contract, type Fault, unit } from "./fault.ts";
import { become, drop, operand, text } from "./mistake.ts";

/** What leaves a target's tunnel, and how much of it. */
export const tunnel: readonly Fault[] = [
  {
    name: "datagrams-anywhere",
    in: "createTunnelGate",
    mistake: become(operand("||", "isDestination"), '(protocol === "tcp" && $)'),
    breaks: "Root on a tunneled target sends UDP from graftlet's Pod to other destinations than its Services.",
    assertion: '"refuses a destination of the other protocol, UDP": Expected values to be strictly equal',
    foundBy: [unit("service-tunnel/gate")],
  },
  {
    name: "forged-pod-address",
    in: "rulesText",
    mistake: drop(text("fib saddr . iif oif missing return")),
    breaks: "A machine of the target's network sends datagrams to Services under a pod's address.",
    assertion: `"accepts only datagrams from a pod to a destination, on the pod's own network": Expected values to be strictly deep-equal`,
    foundBy: [contract("relay", "accepts only datagrams from a pod to a destination")],
  },
];
