import { sshProvider } from "../../providers/ssh/provider.ts";
import { createReverseListeners } from "../../providers/ssh/reverse/listeners.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { Target } from "../../src/seams/provider.ts";
import { agentAddresses } from "../harness/agent-machine.ts";
import { type ProviderName, runtimeDaemons } from "../harness/runtime-daemon.ts";
import { sshSettings } from "../harness/sshd.ts";
import type { RuntimeRig } from "../harness/runtime-rig.ts";
import { openWayIn } from "./way-in.ts";

/** A rig as the ssh provider's target, reached through the rig's sshd only. Disposing of it leaves the rig.
 *  @param runtime the provider's setting; the rig's own runtime unless given. */
export async function sshTargetOn(
  { layout }: Pick<RuntimeRig, "layout">,
  provider: ProviderName,
  { nodeName = "contract", runtime }: { readonly nodeName?: string; readonly runtime?: "auto" } = {},
): Promise<Target> {
  const { target, sshPort } = agentAddresses;
  await using undo = new AsyncDisposableStack();
  const way = await openWayIn(["nsenter", `--net=${layout.netns}`, "socat", "-", `TCP:${target}:${sshPort},nodelay`]);
  undo.defer(() => way.close());
  const settings = sshSettings(layout, provider, runtimeDaemons[provider].socket(layout));
  const made = undo.use(
    await sshProvider(createReverseListeners())({
      config: { ...settings, host: "127.0.0.1", port: way.port, ...(runtime && { runtime }) },
      containerRuntimeEndpoint: "",
      imageServiceEndpoint: "",
      requestTimeoutMs: 120_000,
      containerLogs: { maxSizeBytes: 10 << 20, maxFiles: 5 },
      nodeName,
      clock: systemClock(),
      log: silentLog(),
    }),
  );
  const whole = undo.move();
  return { ...made, [Symbol.asyncDispose]: () => whole.disposeAsync() };
}
