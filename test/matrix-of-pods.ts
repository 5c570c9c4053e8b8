import type { Runs } from "./matrix.ts";

/** Files of test/integration about what holds for pods and containers of every kind. */
export const ofPods: Readonly<Record<string, Runs>> = {
  "container-kinds": {
    on: [],
    why: "limits, devices, mounts and restarts of a container's kind are the runtime's to carry out",
    fits: ["cri", "cri-2.4", "docker"],
    seconds: 170,
  },
  "dual-stack": {
    on: ["cri"],
    more: ["docker", "ssh"],
    why: "CNI and Docker give a pod its second address each in its own way, and over SSH the target's addresses are found",
    seconds: 20,
  },
  firewalld: {
    on: [],
    more: ["cri"],
    why: "has no cluster: a Debian with firewalld, made once per machine in a minute or two, lets pods to the relay's ports",
    fits: ["cri"],
    seconds: 5,
  },
  "start-cut-off": {
    on: [],
    why: "containerd gives up a start whose caller has gone, the Docker Engine finishes it",
    fits: ["cri", "cri-2.4", "docker"],
    seconds: 55,
  },
  "stop-signals": {
    on: ["docker"],
    why: "containerd 2 takes a signal by CRI, the Docker Engine by its own field",
    fits: ["cri-2.4", "docker"],
    seconds: 30,
  },
};
