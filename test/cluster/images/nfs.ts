import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ImageRecipe, LayerRecipe } from "./catalog.ts";
import { unpackPackages } from "./debian.ts";
import { type RootFs, triplet } from "./rootfs.ts";
import { program } from "./storage.ts";

/** Serves the folders that it is given, or /exports, to everyone until SIGTERM: for version 4 each is the root, too. */
const server = `#!/bin/bash
ulimit -n 65535
group=
while getopts G: option; do [ "$option" = G ] && group=$OPTARG; done
shift $((OPTIND - 1))
for folder; do
  echo "$folder *(rw,fsid=0,insecure,no_root_squash,no_subtree_check)" >>/etc/exports
  [ -z "$group" ] || { chmod 070 "$folder" && chgrp "$group" "$folder"; }
  echo "Hello from NFS!" >"$folder/index.html" && chmod 644 "$folder/index.html"
done
stop() {
  rpc.nfsd 0
  exportfs -au
  exit 0
}
trap stop TERM
set -e
rpcinfo 127.0.0.1 >/dev/null 2>&1 || rpcbind -w
mount -t nfsd nfsd /proc/fs/nfsd
rpc.mountd -V 3
exportfs -r
rpc.nfsd -G 10 -V 3
rpc.statd --no-notify
echo "NFS started"
set +e
while true; do sleep 1; done
`;

/** Debian's NFS server of the kernel. */
const nfs: LayerRecipe = {
  name: "nfs",
  async fill(root) {
    using packages = await unpackPackages(["nfs-kernel-server", "nfs-common", ...portMapper]);
    const tree = packages.folder;
    await addPortMapper(root, tree);
    for (const name of ["rpc.statd", "sm-notify"]) await root.program(join(tree, "sbin", name), `/sbin/${name}`, tree);
    for (const name of ["rpc.mountd", "rpc.nfsd", "exportfs"])
      await root.program(join(tree, "usr/sbin", name), `/usr/sbin/${name}`, tree);
    root.file("/usr/local/bin/serve", server, 0o755);
    for (const file of ["etab", "rmtab", "xtab"]) root.file(`/var/lib/nfs/${file}`, "");
    for (const folder of ["/var/lib/nfs/sm", "/var/lib/nfs/sm.bak", "/var/lib/nfs/v4recovery", "/exports"])
      root.directory(folder);
  },
};

/** An NFS server that is a process, without the kernel's: it has no right of its own but to open files by their handles. */
const ganesha: LayerRecipe = {
  name: "ganesha",
  async fill(root) {
    using packages = await unpackPackages(["nfs-ganesha", "nfs-ganesha-vfs", ...portMapper]);
    const tree = packages.folder;
    await addPortMapper(root, tree);
    const parts = ["bin/ganesha.nfsd", "lib/ganesha/libganesha_nfsd.so.4.3", `lib/${triplet}/ganesha/libfsalvfs.so`];
    for (const part of parts) await root.program(join(tree, "usr", part), `/usr/${part}`, tree);
    for (const folder of ["/etc/ganesha", "/run/ganesha", "/var/lib/nfs/ganesha", "/export"]) root.directory(folder);
    root.link("/var/run", "/run");
  },
};

const portMapper = ["rpcbind", "netbase", "libtirpc-common"];

async function addPortMapper(root: RootFs, tree: string): Promise<void> {
  await root.program(join(tree, "sbin/rpcbind"), "/sbin/rpcbind", tree);
  await root.program(join(tree, "usr/bin/rpcinfo"), "/usr/bin/rpcinfo", tree);
  for (const file of ["netconfig", "rpc", "services", "protocols"])
    root.file(`/etc/${file}`, readFileSync(join(tree, "etc", file)));
  const users = ["root:x:0:0:root:/root:/bin/sh", "_rpc:x:101:65534::/run/rpcbind:/bin/false"];
  root.file("/etc/passwd", `${users.join("\n")}\n`);
  root.directory("/run/rpcbind");
}

/** The NFS server of upstream's tests, and the provisioner of their dynamic claims. */
export function nfsImages(shell: LayerRecipe): readonly ImageRecipe[] {
  const Env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
  return [
    {
      name: "e2e-test-images/volume/nfs",
      tags: ["1.6.0"],
      layers: [shell, nfs],
      config: { Entrypoint: ["/usr/local/bin/serve"], Cmd: ["/exports"], Env },
      isOnDemand: true,
    },
    {
      name: "sig-storage/nfs-provisioner",
      tags: ["v4.0.8"],
      layers: [shell, ganesha, program("nfs-provisioner")],
      config: { Entrypoint: ["/nfs-provisioner"], Env },
      isOnDemand: true,
    },
  ];
}
