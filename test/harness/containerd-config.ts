import { cdiDirectory } from "./dra-driver.ts";
import { join } from "node:path";
import type { CgroupDriver } from "../../src/pod/cgroup-path.ts";
import { hasResourceCapability } from "./capabilities.ts";
import type { ContainerdVersion } from "./containerd-version.ts";
import { type Layout, ownsKernel } from "./state.ts";
import { guestSystemOf } from "../machines/guest-systems.ts";

/** The image of a pod's sandbox. */
export const sandboxImage = "registry.k8s.io/pause:3.10.2";

/** The handler of a second runtime class: the name that upstream's tests use. */
export const secondRuntimeHandler = "test-handler";

/** Where containerd counts, inside: `/v1/metrics`. @see https://github.com/containerd/containerd/blob/v1.6.20/docs/ops.md#metrics */
export const containerdMetrics = "127.0.0.1:1338";

/** Where runc keeps its state for this cluster; containers below it are ours alone. */
export function runcRoot(layout: Layout): string {
  return join(layout.containerd, "runc");
}

/** The content of containerd's config.toml, for each version that there is. */
export const containerdConfigs: Readonly<Record<ContainerdVersion, (layout: Layout, driver: CgroupDriver) => string>> =
  {
    /** @see https://github.com/containerd/containerd/blob/v1.6.20/docs/cri/config.md */
    "1.6": (layout, driver) => {
      const cri = 'plugins."io.containerd.grpc.v1.cri"';
      return `version = 2
${daemon(layout)}
[${cri}]
  sandbox_image = "${sandboxImage}"
  ${streaming}
  tolerate_missing_hugetlb_controller = true
  ${restrictions(layout)}
[${cri}.containerd]
  snapshotter = "overlayfs"
${runtimes(`${cri}.containerd`, layout, driver)}
[${cri}.cni]
  bin_dir = "${cniPlugins}"
  conf_dir = "${join(layout.containerd, "cni")}"
[${cri}.registry]
  config_path = "${join(layout.containerd, "certs.d")}"
`;
    },
    /** @see https://github.com/containerd/containerd/blob/v2.4.2/docs/cri/config.md */
    "2.4": (layout, driver) => {
      const images = 'plugins."io.containerd.cri.v1.images"';
      const runtime = 'plugins."io.containerd.cri.v1.runtime"';
      return `version = 3
${daemon(layout)}
[plugins."io.containerd.grpc.v1.cri"]
  ${streaming}
[${images}]
  snapshotter = "overlayfs"
[${images}.pinned_images]
  sandbox = "${sandboxImage}"
[${images}.registry]
  config_path = "${join(layout.containerd, "certs.d")}"
[${runtime}]
  ${restrictions(layout)}
  cdi_spec_dirs = ["${cdiDirectory(layout)}", "/var/run/cdi"]
[${runtime}.containerd]
${runtimes(`${runtime}.containerd`, layout, driver)}
[${runtime}.cni]
  bin_dirs = ["${cniPlugins}"]
  conf_dir = "${join(layout.containerd, "cni")}"
`;
    },
  };

/** Where Debian has the CNI plugins. */
export const cniPlugins = "/usr/lib/cni";

const streaming = `stream_server_address = "127.0.0.1"
  stream_server_port = "0"`;

function daemon(layout: Layout): string {
  const others = ["btrfs", "zfs", "devmapper", "aufs"].map((name) => `"io.containerd.snapshotter.v1.${name}"`);
  return `root = "${join(layout.containerd, "root")}"
state = "${join(layout.containerd, "state")}"
disabled_plugins = [${[...others, '"io.containerd.tracing.processor.v1.otlp"'].join(", ")}]
[grpc]
  address = "${layout.containerdSocket}"
[metrics]
  address = "${containerdMetrics}"
[plugins."io.containerd.internal.v1.opt"]
  path = "${join(layout.containerd, "opt")}"`;
}

/** What the machine cannot do, and where network namespaces are found again. A guest can do all. */
function restrictions(layout: Layout): string {
  const own = ownsKernel(layout);
  return `disable_apparmor = ${!own}
  restrict_oom_score_adj = ${!own && !hasResourceCapability()}
  netns_mounts_under_state_dir = true`;
}

/** Two handlers of the same program. */
function runtimes(section: string, layout: Layout, driver: CgroupDriver): string {
  const handlers = ["runc", secondRuntimeHandler].map(
    (name) => `[${section}.runtimes.${name}]
  runtime_type = "io.containerd.runc.v2"
[${section}.runtimes.${name}.options]
  BinaryName = "${guestSystemOf(layout)?.ociRuntime ?? "runc"}"
  Root = "${runcRoot(layout)}"
  SystemdCgroup = ${driver === "systemd"}`,
  );
  return ['  default_runtime_name = "runc"', ...handlers].join("\n");
}
