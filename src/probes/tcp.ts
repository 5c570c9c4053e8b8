import type { Host } from "../seams/host.ts";
import { dialFailure } from "../host/dial-text.ts";
import type { ProbeOutcome } from "./outcome.ts";

/** Opens a connection from the target and closes it; a successful connect is a success. */
export async function probeTcp(
  dialer: Pick<Host, "dial">,
  host: string,
  port: number,
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  try {
    const connection = await dialer.dial({ host, port }, signal);
    connection.on("error", () => {});
    connection.destroy();
    return { kind: "success", output: "" };
  } catch (error) {
    return { kind: "failure", output: dialFailure(error, host, port) };
  }
}
