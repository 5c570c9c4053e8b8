import type { Host } from "../seams/host.ts";
import { dialFailure } from "../host/dial-text.ts";
import type { Outcome } from "./outcome.ts";

/** Opens a connection from the target and closes it; a successful connect is a success. */
export async function probeTcp(
  dialer: Pick<Host, "dial">,
  host: string,
  port: number,
  signal: AbortSignal,
): Promise<Outcome> {
  try {
    const connection = await dialer.dial({ host, port }, signal);
    connection.on("error", () => {});
    connection.destroy();
    return { is: "success", output: "" };
  } catch (error) {
    return { is: "failure", output: dialFailure(error, host, port) };
  }
}
