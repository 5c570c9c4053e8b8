import type { Runs } from "./matrix.ts";

const onGuest = ["ssh-guest"] as const;
const bothGuests = ["ssh-guest", "ssh-docker-guest"] as const;

/** Files of test/integration that need a kernel of their own. */
export const ofGuests: Readonly<Record<string, Runs>> = {
  guest: { on: [], why: "needs a kernel of its own: cgroup v2, swap", fits: onGuest, seconds: 100 },
  "guest-cgroupfs": {
    on: [],
    why: "cgroup v2 beside a systemd that a runtime with the cgroupfs driver does not ask; the guest's runtime is told to",
    fits: bothGuests,
    seconds: 230,
  },
  "guest-controllers": {
    on: [],
    why: "boots a guest whose kernel has no memory controller: make integration ONLY=guest-controllers PROVIDER=ssh-guest",
    fits: bothGuests,
    seconds: 200,
  },
  "guest-limits": {
    on: [],
    why: "cgroup v2 below a systemd, with swap and huge pages; the runtime makes containers' cgroups",
    fits: bothGuests,
    seconds: 120,
  },
  "guest-node": {
    on: [],
    why: "the node, its API server and upstream's tests are all in the guest",
    fits: onGuest,
    seconds: 240,
  },
  "guest-numa": {
    on: [],
    why: "boots a guest with eight CPUs, of which every other test has two: make integration ONLY=guest-numa PROVIDER=ssh-guest",
    fits: onGuest,
    seconds: 400,
  },
  "guest-reboot": {
    on: [],
    why: "boots a guest by emulation, which takes minutes with the processors to itself: make integration ONLY=guest",
    fits: onGuest,
    seconds: 400,
  },
  iscsi: {
    on: [],
    why: "needs a kernel with iSCSI, an initiator and a target: make integration ONLY=iscsi PROVIDER=ssh-guest",
    fits: onGuest,
    seconds: 300,
  },
  "guest-selinux": {
    on: [],
    why: "boots a guest that enforces SELinux by emulation, made once: make integration ONLY=guest-selinux PROVIDER=ssh-guest",
    fits: onGuest,
    seconds: 400,
  },
  nfs: {
    on: [],
    why: "needs a kernel that serves NFS and mounts it",
    fits: onGuest,
    seconds: 200,
  },
  "tunnel-guest": {
    on: [],
    why: "needs a kernel with IPVS and netem, beside a cluster and a machine that it brings itself",
    fits: onGuest,
    seconds: 300,
  },
};
