import type { BinaryReader } from "@bufbuild/protobuf/wire";
import { parseCertificate } from "../../providers/ssh/connection/certificate.ts";
import { certificateRefusal } from "../../providers/ssh/connection/host-certificate.ts";
import { wireString } from "../../providers/ssh/connection/wire-reader.ts";
import {
  attributesOf,
  expectReply,
  packet,
  packetReader,
  sftp,
  stringAt,
} from "../../providers/ssh/files/sftp-packets.ts";
import { criEvent, containerdEvent } from "../../providers/cri/events.ts";
import { decodeMessage, encodeMessage } from "../../src/remotedialer/messages.ts";
import { Envelope, TaskEvent } from "../../src/gen/containerd-events.ts";
import {
  ContainerEventResponse,
  ContainerStatusResponse,
  ExecSyncResponse,
  ListContainersResponse,
  ListImagesResponse,
  ListPodSandboxResponse,
  ListPodSandboxStatsResponse,
  PodSandboxStatusResponse,
  RuntimeConfigResponse,
  StatusResponse,
} from "../../src/gen/cri.ts";
import { NodeGetCapabilitiesResponse, NodeGetInfoResponse, NodeGetVolumeStatsResponse } from "../../src/gen/csi.ts";
import { NodeWatchResourcesResponse } from "../../src/gen/dra-health.ts";
import { NodePrepareResourcesResponse } from "../../src/gen/dra.ts";
import { AllocateResponse, ListAndWatchResponse, RegisterRequest } from "../../src/gen/device-plugin.ts";
import { PluginInfo } from "../../src/gen/plugin-registration.ts";
import { decodeBounded, pluginLimits, runtimeLimits } from "../../src/lib/bounded-decode.ts";
import type { Target } from "./target.ts";

interface MessageType<T> {
  decode(input: BinaryReader): T;
  fromPartial(value: object): T;
  encode(value: T): { finish(): Uint8Array };
}

/** A protobuf message, by one with some of its fields. */
function message<T>(name: string, type: MessageType<T>, fields: object, use: (value: T) => unknown = () => {}): Target {
  const limits = name.startsWith("CRI") ? runtimeLimits : pluginLimits;
  return {
    name,
    samples: [Buffer.from(type.encode(type.fromPartial(fields)).finish())],
    decode: (input) => use(decodeBounded((reader) => type.decode(reader), input, limits)),
  };
}

const labels = { "io.kubernetes.pod.name": "a-pod", "example.com/key": "value" };
const metadata = { name: "main", attempt: 1, uid: "uid", namespace: "default" };
const container = {
  id: "c".repeat(64),
  podSandboxId: "s",
  metadata,
  image: { image: "i", annotations: labels },
  labels,
};
const value = { value: 1n };
const cpu = { timestamp: 1n, usageCoreNanoSeconds: value, usageNanoCores: value };
const stats = {
  attributes: { id: "s", metadata, labels },
  linux: { cpu, containers: [{ attributes: { id: "c" }, cpu }] },
};
const status = {
  id: "c",
  metadata,
  state: 1,
  mounts: [{ containerPath: "/a", hostPath: "/b", gidMappings: [{}] }],
  labels,
};
const user = { linux: { uid: 1n, gid: 1n, supplementalGroups: [1n, 2n, 3n] } };

const messages: readonly Target[] = [
  message("CRI containers", ListContainersResponse, { containers: [container, container] }),
  message("CRI sandboxes", ListPodSandboxResponse, { items: [{ id: "s", metadata, labels, annotations: labels }] }),
  message("CRI images", ListImagesResponse, { images: [{ id: "i", repoTags: ["a:1"], size: 5n, uid: value }] }),
  message("CRI statistics", ListPodSandboxStatsResponse, { stats: [stats, stats] }),
  message("CRI runtime status", StatusResponse, { status: { conditions: [{ type: "RuntimeReady" }] }, info: labels }),
  message("CRI container status", ContainerStatusResponse, { status: { ...status, user }, info: labels }),
  message("CRI sandbox status", PodSandboxStatusResponse, {
    status: { id: "s", network: { ip: "10.0.0.1", additionalIps: [{ ip: "fd00::1" }] }, linux: { namespaces: {} } },
    containersStatuses: [status],
  }),
  message("CRI configuration", RuntimeConfigResponse, { linux: { cgroupDriver: 1 } }),
  message("CRI output", ExecSyncResponse, { stdout: Buffer.from("out"), stderr: Buffer.from("err"), exitCode: 1 }),
  message(
    "CRI event",
    ContainerEventResponse,
    { containerId: "c", podSandboxStatus: { id: "s", metadata }, containersStatuses: [status] },
    criEvent,
  ),
  message(
    "containerd event",
    Envelope,
    {
      topic: "/tasks/delete",
      event: { value: TaskEvent.encode(TaskEvent.fromPartial({ containerId: "c" })).finish() },
    },
    containerdEvent,
  ),
  message("devices", ListAndWatchResponse, {
    devices: [{ ID: "d", health: "Healthy", topology: { nodes: [{ ID: 1n }] } }],
  }),
  message("prepared ResourceClaims", NodePrepareResourcesResponse, {
    claims: { u: { devices: [{ requestNames: ["r"], poolName: "p", deviceName: "d", cdiDeviceIds: ["v/c=0"] }] } },
  }),
  message("health of devices", NodeWatchResourcesResponse, {
    devices: [{ device: { poolName: "p", deviceName: "d" }, health: 2, message: "m", healthCheckTimeoutSeconds: 9n }],
  }),
  message("allocated devices", AllocateResponse, {
    containerResponses: [{ envs: labels, mounts: [{ hostPath: "/a" }] }],
  }),
  message("registration of devices", RegisterRequest, { version: "v1beta1", endpoint: "a.sock", resourceName: "a/b" }),
  message("plugin", PluginInfo, { type: "CSIPlugin", name: "d", supportedVersions: ["1.0.0"] }),
  message("driver's capabilities", NodeGetCapabilitiesResponse, { capabilities: [{ rpc: { type: 1 } }] }),
  message("driver's node", NodeGetInfoResponse, { nodeId: "n", accessibleTopology: { segments: labels } }),
  message("driver's usage", NodeGetVolumeStatsResponse, { usage: [{ total: 1n, used: 1n, unit: 1 }] }),
];

const wireWord = (word: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(word);
  return bytes;
};
const authority = Buffer.concat([wireString("ssh-ed25519"), wireString(Buffer.alloc(32, 1))]);
const certificate = Buffer.concat([
  wireString("ssh-ed25519-cert-v01@openssh.com"),
  wireString(Buffer.alloc(32)),
  wireString(Buffer.alloc(32, 2)),
  Buffer.alloc(8),
  wireWord(2),
  wireString("key"),
  wireString(Buffer.concat([wireString("a.example"), wireString("b.example")])),
  Buffer.alloc(8),
  Buffer.alloc(8, 0x7f),
  wireString(Buffer.concat([wireString("force-command"), wireString("x")])),
  wireString(""),
  wireString(""),
  wireString(authority),
  wireString(Buffer.concat([wireString("ssh-ed25519"), wireString(Buffer.alloc(64, 3))])),
]);

const attributes = Buffer.concat([wireWord(15), Buffer.alloc(28, 1)]);
const named = Buffer.concat([wireWord(1), wireString("name"), wireString("long name"), attributes]);

/** All replies in a stream of SFTP packets, read as their types say. */
function readReplies(input: Buffer): void {
  const read = packetReader(({ type, body }) => {
    const rest = body.subarray(4);
    if (type === sftp.attrs) attributesOf(rest);
    else if (type === sftp.name) stringAt(rest, 4);
    else expectReply({ type, body: rest }, sftp.data, "a file");
  });
  read(input.subarray(0, 7));
  read(input.subarray(7));
}

export const binaryTargets: readonly Target[] = [
  ...messages,
  {
    name: "SFTP packets",
    samples: [
      Buffer.concat([packet(sftp.attrs, 1, attributes), packet(sftp.name, 2, named), packet(sftp.data, 3, "data")]),
    ],
    decode: readReplies,
  },
  { name: "SSH certificate", samples: [certificate], decode: parseCertificate },
  {
    name: "SSH host certificate",
    samples: [certificate],
    decode: (input) =>
      certificateRefusal(input, {
        host: "a.example",
        now: 1,
        isAuthority: () => true,
        isRevoked: () => false,
        isKnown: () => false,
      }),
  },
  {
    name: "egress tunnel",
    samples: [
      Buffer.from(encodeMessage({ kind: "data", connection: 1n, data: Buffer.from("data") }, 1n)),
      Buffer.from(encodeMessage({ kind: "known", connections: [1n, 2n] }, 2n)),
    ],
    decode: decodeMessage,
  },
];
