import { type Fault, unit } from "./fault.ts";
import { always, call, condition, drop, operand } from "./mistake.ts";

/** Mistakes that let others end the process, its nodes or their pods. */
export const hostile: readonly Fault[] = [
  {
    name: "bus-sender",
    in: "connectMessageBus",
    mistake: drop(operand("&&", "sender", 2)),
    breaks: "Any user of a machine can announce a shutdown, which ends all pods of the node.",
    assertion:
      '"ends no pods when another user of the machine schedules a shutdown": Expected values to be strictly deep-equal',
    foundBy: [unit("shutdown/shutdown")],
  },
  {
    name: "page-listens-on",
    in: "serveFeed.over",
    mistake: drop(call("stop")),
    breaks: "The page's server writes to the connection of a client that does not read after it was closed.",
    assertion:
      '"disconnects a client that does not read within the maximum time": The expression evaluated to a falsy value',
    foundBy: [unit("page/stream")],
  },
  {
    name: "fault-of-one-node",
    in: "createUnhandledErrorHandler",
    mistake: always(condition("isProcessError")),
    breaks: "An unhandled error of one node stops all nodes.",
    assertion:
      '"an unhandled error from an error event stops only the work in which it occurred": Expected values to be strictly deep-equal',
    foundBy: [unit("process/unhandled-errors")],
  },
];
