import type { Runs } from "./matrix.ts";

/** Files of test/integration about resource managers and certificates of pods. */
export const ofResources: Readonly<Record<string, Runs>> = {
  "cpu-manager": {
    on: ["cri"],
    why: "CRI and the Docker Engine set a container's CPUs in other ways; the topology is read on the target",
    seconds: 60,
  },
  "topology-manager": {
    on: ["cri"],
    why: "the policies decide before the runtime is asked",
    seconds: 60,
  },
  "memory-manager": {
    on: ["cri"],
    why: "CRI and the Docker Engine set a container's NUMA nodes in other ways; the nodes are read on the target",
    seconds: 60,
  },
  devices: {
    on: ["cri"],
    why: "plugins talk to graftlet alone; what they ask for a container is in the contract",
    seconds: 15,
  },
  dra: {
    on: [],
    more: ["cri-2.4"],
    why: "drivers talk to graftlet alone; containerd 1.6 and Docker 20.10 inject no CDI devices",
    fits: ["cri-2.4", "docker-28", "docker-29"],
    seconds: 120,
  },
  gvisor: {
    on: [],
    more: ["cri-2.4"],
    why: "containerd 1.6 finds no shim by its path; on Docker each container would have a kernel of its own",
    fits: ["cri-2.4"],
    seconds: 60,
  },
  "user-namespaces": {
    on: [],
    more: ["cri-2.4"],
    why: "containerd 1.6, the runc of Debian 12 and Docker give no pod a user namespace of its own",
    fits: ["cri-2.4"],
    seconds: 120,
  },
  "volumes-certificates": {
    on: ["cri", "ssh"],
    why: "volumes are files of a Host: this machine's or over SSH",
    lab: "volumes",
    fits: ["cri", "cri-2.4", "docker", "ssh"],
    seconds: 15,
  },
  "csi-migration": {
    on: ["cri"],
    why: "drivers talk to graftlet alone",
    lab: "volumes",
    fits: ["cri", "cri-2.4", "docker"],
    seconds: 15,
  },
};
