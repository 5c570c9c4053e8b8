import type { Runs } from "./matrix.ts";

/** Files that are about the Docker Engine alone. */
export const ofDocker: Readonly<Record<string, Runs>> = {
  "docker-cdi": {
    on: [],
    why: "Debian's Docker Engine injects no CDI devices, and one that does is built for minutes",
    fits: ["docker-28", "docker-29"],
    seconds: 55,
  },
  "docker-churn": { on: [], why: "is Docker's alone", fits: ["docker"], seconds: 70 },
  "docker-faults": { on: [], more: ["docker"], why: "is Docker's alone", fits: ["docker", "ssh-docker"], seconds: 300 },
  "docker-foreign": { on: [], why: "is Docker's alone", fits: ["docker"], seconds: 120 },
  "docker-meddling": { on: [], why: "is Docker's alone", fits: ["docker", "ssh-docker"], seconds: 95 },
  "docker-share": { on: [], more: ["docker"], why: "is Docker's alone", fits: ["docker", "ssh-docker"], seconds: 35 },
  "docker-store": {
    on: [],
    why: "Docker 29 alone keeps images in containerd's directory unless told otherwise",
    fits: ["docker-29"],
    seconds: 60,
  },
  "docker-unfit": { on: [], more: ["docker"], why: "is Docker's alone", fits: ["docker"], seconds: 45 },
};
