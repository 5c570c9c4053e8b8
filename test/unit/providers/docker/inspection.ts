import { typeLabel } from "../../../../providers/docker/container/names.ts";
import { nodeLabel } from "../../../../src/pod/labels.ts";

const zeroTime = "0001-01-01T00:00:00Z";

/** State of a container that has not been started. */
export const createdState = {
  Status: "created",
  Running: false,
  Paused: false,
  Restarting: false,
  OOMKilled: false,
  Dead: false,
  Pid: 0,
  ExitCode: 0,
  Error: "",
  StartedAt: zeroTime,
  FinishedAt: zeroTime,
};

export const runningState = {
  ...createdState,
  Status: "running",
  Running: true,
  Pid: 4242,
  StartedAt: "2026-01-01T00:00:02.5Z",
};

/** Inspection of a sandbox or container of node n1. */
export function inspection(
  id: string,
  type: string,
  state: typeof createdState,
  labels: Readonly<Record<string, string>> = {},
) {
  return {
    Id: id,
    Created: "2026-01-01T00:00:01Z",
    Name: "/k8s_main_web_default_uid-1_2",
    State: state,
    Image: `sha256:${"a".repeat(64)}`,
    ResolvConfPath: "/var/lib/docker/containers/sandbox/resolv.conf",
    HostConfig: { OomScoreAdj: -998, CgroupParent: "/kubepods/pod1", Runtime: "runc" },
    Mounts: [],
    Config: { Image: "busybox", Labels: { [nodeLabel]: "n1", [typeLabel]: type, ...labels } },
  };
}
