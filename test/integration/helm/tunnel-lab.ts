import assert from "node:assert/strict";
import type { NodeCondition } from "../../../src/objects.ts";
import { nodeReady } from "../../harness/agent.ts";
import { startDns } from "../../harness/dns.ts";
import { ownPodAddresses } from "../../harness/edge-machine.ts";
import { type HelmLab, release, startHelmLab } from "../../harness/helm-lab.ts";
import { releaseOf } from "./release.ts";
import { server, service, tunneled } from "./tunnel.ts";
import { placed } from "./workload.ts";

/** A cluster with the pod and Service `web`, and a tunneled machine whose pods have addresses that the cluster's pods have not: `far`
 *  and `other`. */
export interface TunnelLab extends HelmLab {
  /** Runs a command in a pod, with `bash`. */
  inside(
    pod: string,
    script: string,
  ): Promise<{ readonly code: number; readonly text: string; readonly stderr: string }>;
  /** Output of a command in a pod, which has to succeed. */
  said(pod: string, script: string): Promise<string>;
}

/** Starts it all, with the DNS of the cluster. */
export async function startTunnelLab(name: string): Promise<TunnelLab> {
  const lab = await startHelmLab(name, { say: (line) => console.error(line) });
  const { cluster, edge } = lab;
  ownPodAddresses(edge.layout);
  await Promise.all([startDns(cluster), cluster.apply([server("web"), service("web")])]);
  await releaseOf(lab).install(...tunneled);
  await nodeReady(cluster, release.node);
  await cluster.apply([server("far", placed), server("other", placed)]);
  await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/web", "pod/far", "pod/other", "--timeout=60s"]);
  const inside = async (pod: string, script: string) => {
    const timeoutMs = 300_000;
    const argv = ["exec", pod, "--", "bash", "-c", script];
    const { code, stdout, stderr } = await cluster.kubectl(argv, { timeoutMs });
    return { code, text: stdout.trim(), stderr };
  };
  return {
    ...lab,
    inside,
    async said(pod, script) {
      const { code, text, stderr } = await inside(pod, script);
      assert.equal(code, 0, `${script}: ${text} ${stderr}`);
      return text;
    },
  };
}

/** Makes a file of random bytes in a pod, uploads it to a Service there or elsewhere, and checks that it arrived whole.
 *  @param within seconds for the upload, and again for its checksum.
 *  @returns the seconds of the upload. */
export async function arrivesWhole(
  { said }: Pick<TunnelLab, "said">,
  {
    from,
    to,
    bytes,
    within,
  }: { readonly from: string; readonly to: string; readonly bytes: number; readonly within: number },
): Promise<number> {
  const made = await said(from, `head -c ${bytes} /dev/urandom > /uploads/f; sha256sum < /uploads/f`);
  const began = Date.now();
  const answer = await said(from, `${get(`--form file=@/uploads/f http://${to}/upload`, within)}; rm /uploads/f`);
  const seconds = (Date.now() - began) / 1_000;
  const { output } = JSON.parse(answer) as { output: string };
  const shell = `--get --data-urlencode "cmd=sha256sum < ${output}; rm ${output}" http://${to}/shell`;
  const there = JSON.parse(await said(from, get(shell, within))) as { output: string };
  assert.equal(there.output.trim(), made);
  return seconds;
}

/** A command that gets a page. */
export const get = (url: string, seconds = 10) =>
  `curl --silent --show-error --connect-timeout 1 --max-time ${seconds} ${url}`;

/** Waits until the node's condition about a firewall on its machine is as wanted. @returns its message; undefined without the condition. */
export async function firewallMessage(
  { cluster }: Pick<TunnelLab, "cluster">,
  what: string,
  wanted: (message: string | undefined) => boolean,
): Promise<string | undefined> {
  let message: string | undefined;
  await cluster.waitFor(
    what,
    async () => {
      const node = await cluster.get<{ status: { conditions: NodeCondition[] } }>("node", release.node);
      message = node?.status.conditions.find(({ reason }) => reason === "FirewallBlocksTunnel")?.message;
      return wanted(message);
    },
    30_000,
  );
  return message;
}
