import * as cri from "../../../src/gen/cri.ts";
import { type RemovalDeps, removeFrom } from "../../../src/commands/remove.ts";
import type { Sharing } from "../../../src/seams/provider.ts";
import type { OwnedResource } from "../../../src/seams/runtime.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { lockingShell } from "../../fakes/flock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { kubeletFile, nodeOf } from "../config/files.ts";
export const root = "/var/lib/kubelet";
export const uid = "11111111-0000-4000-8000-000000000000";
export const logs = `/var/log/pods/default_web_${uid}`;
export const link = `/var/log/containers/web_default_main-0123.log`;
export const volume = `${root}/pods/${uid}/volumes/kubernetes.io~secret/token`;
export const cgroup = `/sys/fs/cgroup/kubepods/burstable/pod${uid}`;

export const labels = (node?: string) => ({
  "io.kubernetes.pod.name": "web",
  "io.kubernetes.pod.namespace": "default",
  "io.kubernetes.pod.uid": uid,
  "io.kubernetes.container.name": "main",
  ...(node !== undefined && { "graftlet.dev/node": node }),
});

interface Asked extends Partial<Pick<RemovalDeps, "yes" | "leaving">> {
  readonly ask?: () => Promise<string>;
}

/** Target on which a node ran a pod, with remains of other nodes and another agent. */
export async function start({
  record = true,
  sharing = "exclusive",
  driver = cri.CgroupDriver.CGROUPFS,
}: {
  record?: boolean;
  sharing?: Sharing;
  driver?: cri.CgroupDriver;
} = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.program("sh", lockingShell());
  const runtime = fakeRuntime({ clock });
  runtime.addImage("busybox");
  const sandboxId = (
    await runtime.runPodSandbox(
      {
        config: {
          metadata: { name: "web", namespace: "default", uid, attempt: 0 },
          hostname: "",
          logDirectory: logs,
          dnsConfig: undefined,
          portMappings: [],
          labels: labels(sharing === "shared" ? "n1" : undefined),
          annotations: {},
          linux: undefined,
          windows: undefined,
        },
        runtimeHandler: "",
      },
      never,
    )
  ).podSandboxId;
  const files = {
    "/etc/os-release": "",
    "/var/log/syslog": "",
    "/sys/fs/cgroup/cgroup.controllers": "",
    [`${root}/graftlet/lock`]: "",
    [`${root}/graftlet/node.json`]: JSON.stringify({
      version: 1,
      node: "n1",
      made: [root, `${root}/pods`, "/var/log/pods", "/var/log/containers"],
    }),
    [`${volume}/..data/token`]: "secret",
    [`${root}/pods/${uid}/etc-hosts`]: "",
    [`${logs}/main/0.log`]: "",
    "/precious/file": "precious",
  };
  for (const [path, data] of Object.entries(files)) host.files.put(path, { data });
  if (!record) await host.fs.apply([{ kind: "remove", path: `${root}/graftlet`, recursive: true }]);
  await host.fs.apply([
    { kind: "mkdir", path: cgroup, parents: true },
    { kind: "mkdir", path: "/var/log/containers", parents: true },
    { kind: "symlink", path: link, target: `${logs}/main/0.log` },
  ]);
  const belongings: OwnedResource[] = [];
  const said: string[] = [];
  const target = {
    host,
    runtime: {
      ...runtime,
      ownedResources: async () => belongings,
      runtimeConfig: async () => cri.RuntimeConfigResponse.fromPartial({ linux: { cgroupDriver: driver } }),
    },
    sharing,
    runtimeSocket: async () => "/run/c/c.sock",
    [Symbol.asyncDispose]: async () => undefined,
  };
  host.files.put("/run/c/c.sock", { kind: "socket" });
  const node = nodeOf(["--config=/k.yaml", "--hostname-override=n1"], {
    "/k.yaml": kubeletFile("failSwapOn: false\n"),
  });
  const remove = ({ yes = true, ask, leaving }: Asked = {}) => {
    said.length = 0;
    const terminal = { print: (line: string) => void said.push(line), ...(ask && { ask }) };
    return removeFrom({ target, node, yes, terminal, clock, ...(leaving && { leaving }) }, never);
  };
  const made = () => runtime.calls.filter(({ verb }) => /^(stop|remove)/.test(verb)).map(({ verb }) => verb);
  return { clock, host, runtime, sandboxId, belongings, said, remove, made, node };
}
