import assert from "node:assert/strict";
import { rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { nodeLabel } from "../../src/pod/labels.ts";
import { runtimeDaemons } from "../harness/runtime-daemon.ts";
import { type RuntimeRig, startRuntimeRig } from "../harness/runtime-rig.ts";
import { waitFor } from "../harness/wait.ts";
import { onRig } from "./runtime-killed.ts";
import { patience, podsOf } from "./runtime-pods.ts";
import { sshTargetOn } from "./ssh-runtime.ts";
import { argvOf } from "../harness/argv.ts";

/** Sockets of a machine's runtimes, as their packages have it. */
const containerdSocket = "/run/containerd/containerd.sock";
const dockerSocket = "/var/run/docker.sock";

describe("runtime: auto over SSH, with both containerd and Docker present", () => {
  let made: RuntimeRig | undefined;
  const rig = (): RuntimeRig => {
    assert.ok(made, "the machine could not be made");
    return made;
  };

  before(async () => {
    made = await startRuntimeRig("contract-auto-ssh", "ssh");
    const { layout, tools, daemons, host } = made;
    const engine = runtimeDaemons["ssh-docker"];
    engine.writeConfig(layout);
    await daemons.start(engine.role, engine.argv(tools, layout));
    await daemons.ready(engine.role, () => engine.answers(layout));
    // The machine's /run is its own.
    for (const [path, socket] of [
      [containerdSocket, layout.containerdSocket],
      [dockerSocket, layout.dockerSocket],
    ] as const)
      await host.run(argvOf(["sh", "-ec", `mkdir -p ${dirname(path)}; ln -s ${socket} ${path}`]));
  });
  after(async () => made?.[Symbol.asyncDispose]());

  /** Socket of the runtime that a node takes at its start. */
  async function socketOf(nodeName: string): Promise<string | undefined> {
    await using target = await sshTargetOn(rig(), "ssh", { nodeName, runtime: "auto" });
    return await target.runtimeSocket?.(patience());
  }

  /** Takes containerd's network for pods away until disposed of: the one beneath Debian's docker.io has none. */
  async function withoutNetwork(): Promise<AsyncDisposable> {
    const file = join(rig().layout.containerd, "cni", "10-bridge.conflist");
    const away = `${file}.away`;
    const untilIs = async (wanted: boolean): Promise<void> => {
      await using containerd = await sshTargetOn(rig(), "ssh");
      await waitFor(`containerd's network to be ${wanted ? "ready" : "away"}`, async () => {
        const { status } = await containerd.runtime.status(patience());
        return status?.conditions.find(({ type }) => type === "NetworkReady")?.status === wanted;
      });
    };
    await rename(file, away);
    await untilIs(false);
    return {
      async [Symbol.asyncDispose]() {
        await rename(away, file);
        await untilIs(true);
      },
    };
  }

  test("a new node chooses the first runtime with a pod network", async () => {
    assert.equal(await socketOf("new"), containerdSocket);
    await using _away = await withoutNetwork();
    assert.equal(await socketOf("new"), dockerSocket);
  });

  test("a node keeps the runtime that has its pods, and ignores other nodes' pods", async () => {
    await using docker = await sshTargetOn(rig(), "ssh-docker", { nodeName: "on-docker" });
    await using dockerPods = podsOf(onRig(rig(), docker));
    await dockerPods.run(dockerPods.config());
    await using containerd = await sshTargetOn(rig(), "ssh", { nodeName: "on-containerd" });
    await using containerdPods = podsOf(onRig(rig(), containerd));
    await containerdPods.run(containerdPods.config({ labels: { [nodeLabel]: "on-containerd" } }));

    assert.deepEqual(
      [await socketOf("on-docker"), await socketOf("on-containerd"), await socketOf("new")],
      [dockerSocket, containerdSocket, containerdSocket],
    );
    await using _away = await withoutNetwork();
    assert.deepEqual(
      [await socketOf("on-docker"), await socketOf("on-containerd"), await socketOf("new")],
      [dockerSocket, containerdSocket, dockerSocket],
    );
  });
});
