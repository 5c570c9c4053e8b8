import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { apiServerUrl, controllerManagerArgv, etcdArgv, proxyArgv, schedulerArgv } from "./control-plane.ts";
import { startMachine } from "../machines/machine.ts";
import { createAgentMachine } from "./agent-machine.ts";
import { apiRelayArgv, openApi } from "./api.ts";
import { createDaemons } from "./daemons.ts";
import { firstCertificates } from "./first-store.ts";
import { writeKubeconfig } from "./kubeconfig.ts";
import { addresses, createNetwork, startHolder } from "./namespaces.ts";
import { createCgroup } from "./cgroups.ts";
import { type ProcessId } from "./processes.ts";
import { hasSystemd, isRemote, runtimeDaemons } from "./runtime-daemon.ts";
import { registryArgv, writeRegistryConfigs } from "./registry.ts";
import { createSshKeys } from "./sshd.ts";
import { type Layout, readState, writeState } from "./state.ts";
import type { Tools } from "./tools.ts";
import { waitFor } from "./wait.ts";

/** What a cluster is made of. `images` is the folder that its registries serve. */
export interface BringUp {
  readonly layout: Layout;
  readonly tools: Tools;
  readonly images: string;
  readonly say: (line: string) => void;
}

/** Makes everything of a cluster whose lease is held, and returns the process that keeps its mount namespace. */
export async function bringUp({ layout, tools, images, say }: BringUp): Promise<ProcessId> {
  const state = readState(layout);
  if (!state) throw new Error(`the state of cluster ${layout.name} is gone`);
  say(`making the namespaces of cluster ${layout.name}`);
  for (const dir of [layout.logs, layout.kubeletRoot, layout.podLogs, layout.staticPods]) mkdirSync(dir);
  writeFileSync(layout.resolvConf, `nameserver ${addresses.dns}\n`);
  if (!hasSystemd(state.provider)) createCgroup(layout);
  const certificates = firstCertificates(layout);
  const registries = writeRegistryConfigs(layout, images, state.privatePassword);
  const remote = isRemote(state.provider);
  await createNetwork(layout);
  if (remote) await Promise.all([createAgentMachine(layout, state.nodeName), createSshKeys(layout)]);
  const holder = await startHolder(layout, state.nodeName);
  writeState(layout, { ...state, holder });
  const runtime = runtimeDaemons[state.provider];
  runtime.writeConfig(layout);
  const machine = hasSystemd(state.provider) ? startMachine(layout, say) : undefined;
  // Whoever waits for it, later, hears of its failure.
  machine?.catch(() => undefined);
  const daemons = createDaemons({ layout, tools, holder, runtime });

  say("starting etcd and the registries");
  await registries;
  const { issued, stored } = await certificates;
  await daemons.start("etcd", etcdArgv(tools, layout));
  for (const which of runtime.registries) await daemons.start(`registry-${which}`, registryArgv(tools, layout, which));

  say("starting the API server");
  await Promise.all([
    writeKubeconfig(layout, apiServerUrl, "admin", { commonName: "kubernetes-admin", organization: "system:masters" }),
    writeKubeconfig(layout, apiServerUrl, "controller-manager", { commonName: "system:kube-controller-manager" }),
    writeKubeconfig(layout, apiServerUrl, "scheduler", { commonName: "system:kube-scheduler" }),
    writeKubeconfig(layout, apiServerUrl, "proxy", { commonName: "system:kube-proxy" }),
    daemons.start("api-relay", apiRelayArgv(layout)),
  ]);
  await daemons.startApiServer();
  say(`starting the controller manager, the scheduler, the proxy and ${runtime.role}`);
  const kubeconfig = (name: string): string => join(layout.dir, `${name}.kubeconfig`);
  await daemons.start(
    "kube-controller-manager",
    controllerManagerArgv(tools, kubeconfig("controller-manager"), issued),
  );
  await daemons.start("kube-scheduler", schedulerArgv(tools, kubeconfig("scheduler")));
  await daemons.start("kube-proxy", proxyArgv(tools, kubeconfig("proxy"), state.nodeName));
  await machine;
  await daemons.startRuntime();
  if (remote) await daemons.startSshd();
  if (!stored) await makeFirstObjects(layout);
  return holder;
}

/** Makes the name service and waits for what the control plane makes by itself. */
async function makeFirstObjects(layout: Layout): Promise<void> {
  using api = openApi(layout);
  await waitFor("the namespace kube-system", () => api.get("/api/v1/namespaces/kube-system"));
  await api.create("/api/v1/namespaces/kube-system/services", nameService);
  await waitFor("the default service account", () => api.get("/api/v1/namespaces/default/serviceaccounts/default"));
}

/** The cluster's name service without a server behind it: pods that ask get a refusal at once instead of waiting. */
const nameService = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "kube-dns", namespace: "kube-system" },
  spec: {
    clusterIP: addresses.dns,
    ports: [
      { name: "dns", port: 53, protocol: "UDP" },
      { name: "dns-tcp", port: 53, protocol: "TCP" },
    ],
  },
};
