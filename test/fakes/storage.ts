import {
  type NodePublishVolumeRequest,
  type NodeStageVolumeRequest,
  NodeGetVolumeStatsResponse,
  NodeServiceCapability_RPC_Type as Capability,
} from "../../src/gen/csi.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { CSIDriver, Node, VolumeAttachment } from "../../src/objects.ts";
import type { CsiNodeService, CsiDrivers } from "../../src/pipeline.ts";
import type { FakeFiles } from "./host-fs.ts";

export interface FakeStorage extends CsiDrivers {
  /** Names of the registered drivers. */
  readonly registered: Set<string>;
  readonly objects: Map<string, CSIDriver>;
  readonly attachments: Map<string, VolumeAttachment>;
  /** What the drivers were asked, with the paths: `stage h /path`. */
  readonly calls: string[];
  /** The requests themselves, in the same order. */
  readonly requests: object[];
  readonly capabilities: Set<Capability>;
  /** Answers in place of `capabilities`. */
  onCapabilities(answer: () => Promise<ReadonlySet<Capability>>): void;
  /** The next call of that name fails so. */
  readonly failures: Map<string, CodedError>;
  /** Called before and after each call's work; it may wait, and it may throw. */
  onStep(hook: (() => void | Promise<void>) | undefined): void;
  /** Status of the Node. */
  status: NonNullable<Node["status"]>;
}

/** Storage drivers whose mounts are a machine's in memory. */
export function fakeStorage(files: FakeFiles): FakeStorage {
  const registered = new Set(["d"]);
  const objects = new Map<string, CSIDriver>([["d", { metadata: { name: "d" }, spec: { attachRequired: false } }]]);
  const attachments = new Map<string, VolumeAttachment>();
  const calls: string[] = [];
  const requests: object[] = [];
  const capabilities = new Set<Capability>([Capability.STAGE_UNSTAGE_VOLUME]);
  const failures = new Map<string, CodedError>();
  let step: (() => void | Promise<void>) | undefined;
  let told = async (): Promise<ReadonlySet<Capability>> => capabilities;
  const isMounted = (path: string) => files.mounted().some((mount) => mount.path === path);
  const call =
    <Request extends { readonly volumeId: string }>(
      name: string,
      pathOf: (request: Request) => string,
      does: (path: string, request: Request) => Promise<void> | void,
    ) =>
    async (request: Request): Promise<void> => {
      calls.push(`${name} ${request.volumeId} ${pathOf(request)}`);
      requests.push(request);
      const failure = failures.get(name);
      failures.delete(name);
      if (failure) throw failure;
      await step?.();
      await does(pathOf(request), request);
      await step?.();
    };
  const made = async (path: string, { volumeId }: { readonly volumeId: string }) => {
    await files.fs.apply([{ kind: "mkdir", path, parents: true }]);
    if (!isMounted(path)) files.mount(path, "csi", volumeId);
  };
  const published = async (path: string, request: NodePublishVolumeRequest) => {
    if (!request.volumeCapability?.block) return made(path, request);
    files.put(`/dev/${request.volumeId}`, { kind: "blockDevice" });
    if (!isMounted(path)) await files.fs.apply([{ kind: "write", path, data: "" }]);
    if (!isMounted(path)) files.bind(`/dev/${request.volumeId}`, path);
  };
  const unmade = (path: string) => (isMounted(path) ? files.unmount(path) : undefined);
  const driver: CsiNodeService = {
    capabilities: () => told(),
    stage: call("stage", ({ stagingTargetPath }: NodeStageVolumeRequest) => stagingTargetPath, made),
    unstage: call("unstage", ({ stagingTargetPath }) => stagingTargetPath, unmade),
    publish: call("publish", ({ targetPath }) => targetPath, published),
    unpublish: call("unpublish", ({ targetPath }) => targetPath, unmade),
    expand: call(
      "expand",
      ({ volumePath }) => volumePath,
      () => {},
    ),
    stats: async () => NodeGetVolumeStatsResponse.create(),
  };
  return {
    registered,
    objects,
    attachments,
    calls,
    requests,
    capabilities,
    failures,
    onCapabilities: (answer) => void (told = answer),
    onStep: (hook) => void (step = hook),
    status: {},
    driver(name) {
      if (registered.has(name)) return driver;
      throw new CodedError("unavailable", `driver name ${name} not found in the list of registered CSI drivers`);
    },
    csiDriver: async (name) => objects.get(name),
    async refreshLimit(name) {
      calls.push(`refresh ${name}`);
    },
    async volumeAttachment(name) {
      const found = attachments.get(name);
      if (found) return found;
      throw new CodedError("not_found", `volumeattachments.storage.k8s.io "${name}" not found`);
    },
  };
}
