import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import {
  ContainerConfig,
  type ContainerState,
  type ContainerStatus,
  CreateContainerRequest,
  type PodSandboxConfig,
  PullImageRequest,
  RunPodSandboxRequest,
} from "../../src/gen/cri.ts";
import { hasCode } from "../../src/lib/errors.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { waitFor } from "../harness/wait.ts";

/** A runtime for the contract, fresh and with no pods. */
export interface RuntimeUnderTest extends AsyncDisposable {
  readonly runtime: Runtime;
  /** An image that can be pulled, with `sh`, `sleep`, `true` and `echo`. */
  readonly image: string;
  /** A reference on a registry that answers, to an image that it does not have. */
  readonly missingImage: string;
  /** An absolute folder on the target for log files. */
  readonly logDirectory: string;
  /** Where the runtime makes pods' cgroups, in the form of its cgroup driver; the runtime chooses unless given. */
  readonly cgroupParent?: string;
}

/** A signal for a test's call: far longer than any should take. */
export function patience(): AbortSignal {
  return AbortSignal.timeout(60_000);
}

export interface PodWish {
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly attempt?: number;
  readonly uid?: string;
}

/** The pods of one test, removed with it. */
export interface Pods extends AsyncDisposable {
  config(wish?: PodWish): PodSandboxConfig;
  /** Runs a sandbox, and returns its ID. */
  run(config: PodSandboxConfig): Promise<string>;
  /** Creates a container in the sandbox, and returns its ID. */
  create(
    sandboxId: string,
    config: PodSandboxConfig,
    container: Parameters<typeof ContainerConfig.fromPartial>[0],
  ): Promise<string>;
  /** A pod with one running container. */
  runOne(
    command: readonly string[],
  ): Promise<{ readonly sandboxId: string; readonly containerId: string; readonly config: PodSandboxConfig }>;
  until(containerId: string, state: ContainerState): Promise<ContainerStatus>;
}

/** @param image as given by the runtime under test; pulled on first use. */
export function podsOf({ runtime, image, logDirectory, cgroupParent = "" }: RuntimeUnderTest): Pods {
  const made: string[] = [];
  const pods: Pods = {
    config(wish = {}) {
      const uid = wish.uid ?? randomUUID();
      return RunPodSandboxRequest.fromPartial({
        config: {
          metadata: { name: "contract", namespace: "default", uid, attempt: wish.attempt ?? 0 },
          hostname: "contract",
          logDirectory: `${logDirectory}/default_contract_${uid}`,
          labels: { "io.kubernetes.pod.uid": uid, ...wish.labels },
          annotations: { ...wish.annotations },
          linux: { cgroupParent, securityContext: { namespaceOptions: {} } },
        },
      }).config as PodSandboxConfig;
    },
    async run(config) {
      const { podSandboxId } = await runtime.runPodSandbox({ config, runtimeHandler: "" }, patience());
      made.push(podSandboxId);
      return podSandboxId;
    },
    async create(podSandboxId, sandboxConfig, container) {
      const present = await runtime.imageStatus({ ...emptySpec, image }, patience());
      const imageRef =
        present?.id ?? (await runtime.pullImage(PullImageRequest.fromPartial({ image: { image } }), patience()));
      const config = ContainerConfig.fromPartial({
        image: { image: imageRef, userSpecifiedImage: image },
        linux: { securityContext: { namespaceOptions: { pid: 1 } } },
        ...container,
      });
      const { containerId } = await runtime.createContainer(
        CreateContainerRequest.fromPartial({ podSandboxId, config, sandboxConfig }),
        patience(),
      );
      return containerId;
    },
    async runOne(command) {
      const config = pods.config();
      const sandboxId = await pods.run(config);
      const containerId = await pods.create(sandboxId, config, {
        metadata: { name: "main", attempt: 0 },
        command: [...command],
        logPath: "main/0.log",
      });
      await runtime.startContainer(containerId, patience());
      return { sandboxId, containerId, config };
    },
    until: (containerId, state) =>
      waitFor(`container in state ${state}`, async () => {
        const { status } = await runtime.containerStatus(containerId, patience());
        return status?.state === state && status;
      }),
    async [Symbol.asyncDispose]() {
      for (const id of made) {
        await gone(runtime.stopPodSandbox(id, patience()));
        await gone(runtime.removePodSandbox(id, patience()));
      }
    },
  };
  return pods;
}

/** Stop and remove of what is gone may succeed or say so, and nothing else. */
export async function gone(call: Promise<void>): Promise<void> {
  try {
    await call;
  } catch (error) {
    assert.ok(hasCode(error, "not_found"), String(error));
  }
}

/** An image reference's other fields. */
export const emptySpec = { annotations: {}, userSpecifiedImage: "", runtimeHandler: "", imageRef: "" };
