import { contract, type Fault, unit } from "./fault.ts";
import { become, drop, operand, text } from "./mistake.ts";

/** What leaves a target's tunnel, and how much of it. */
export const tunnel: readonly Fault[] = [
  {
    name: "datagrams-anywhere",
    in: "createTunnelGate",
    mistake: become(operand("||", "isDestination"), '(protocol === "tcp" && $)'),
    breaks: "Root on a tunneled target can send UDP from graftlet's Pod to destinations that are not Services.",
    assertion: '"refuses UDP to a destination that allows only TCP": Expected values to be strictly equal',
    foundBy: [unit("service-tunnel/gate")],
  },
  {
    name: "forged-pod-address",
    in: "rulesText",
    mistake: drop(text("fib saddr . iif oif missing return")),
    breaks: "A machine in the target's network can send datagrams to Services with a pod's address.",
    assertion: `"accepts only datagrams from a pod to a destination, on the pod's own network": Expected values to be strictly deep-equal`,
    foundBy: [contract("relay", "accepts only datagrams from a pod to a destination")],
  },
];
