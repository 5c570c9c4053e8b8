import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import type { Screen } from "./screen.ts";

/** The namespace of demo.yaml. */
export const namespace = "graftlet-demo";

/** The label by which demo.yaml's pods choose their node, and the taint that they bear. */
export const nodeLabel = "graftlet.dev/demo=true";

const manifest = join(import.meta.dirname, "demo.yaml");
const inNamespace = ["--namespace", namespace];

/** Shows what a user does with a node, by kubectl, on a node that is Ready. Throws when something is not as it should be. */
export async function tour(screen: Screen, nodeName: string): Promise<void> {
  const kubectl = (...args: string[]): ReturnType<Screen["show"]> => screen.show("kubectl", [...inNamespace, ...args]);
  screen.heading("the node");
  await screen.show("kubectl", ["get", "nodes", "-o", "wide"]);

  screen.heading("a Deployment, a Job, a ConfigMap and a Service; the scheduler places them");
  await screen.show("kubectl", ["apply", "-f", relative(process.cwd(), manifest)]);
  await kubectl("rollout", "status", "deployment/web", "--timeout=120s");
  await kubectl("wait", "--for=condition=Complete", "job/greeter", "--timeout=60s");
  await kubectl("wait", "--for=condition=Ready", "pod/parrot", "--timeout=60s");
  const pods = await kubectl("get", "pods", "-o", "wide");
  expect(pods.output.split(nodeName).length > 3, `all pods to run on ${nodeName}`);

  screen.heading("logs");
  expect(
    (await kubectl("logs", "job/greeter")).output.includes("hello from a ConfigMap"),
    "the Job's log to hold the greeting",
  );

  screen.heading("exec");
  await kubectl("exec", "deployment/web", "--", "sh", "-c", "hostname; id -un; ls /usr/share/nginx/html");

  screen.heading("attach");
  const attached = await screen.show("kubectl", [...inNamespace, "attach", "-i", "parrot"], {
    stdin: "good morning\n",
    before: "echo good morning | ",
  });
  expect(attached.output.includes("you said: good morning"), "the pod to answer");

  await forward(screen);
  await copyBothWays(screen);
}

async function forward(screen: Screen): Promise<void> {
  screen.heading("port-forward, and curl through it");
  const forwarding = await screen.hold(
    "kubectl",
    [...inNamespace, "port-forward", "service/web", "18080:80"],
    "Forwarding from",
  );
  try {
    const page = await screen.show("curl", ["--silent", "--show-error", "--max-time", "10", "http://127.0.0.1:18080/"]);
    expect(page.output.includes("graftlet runs"), "the page from the ConfigMap");
  } finally {
    forwarding.kill("SIGTERM");
  }
}

async function copyBothWays(screen: Screen): Promise<void> {
  screen.heading("cp both ways");
  const folder = mkdtempSync(join(tmpdir(), "graftlet-demo-"));
  try {
    const there = join(folder, "there");
    const back = join(folder, "back");
    writeFileSync(there, randomBytes(4 * 1024 * 1024));
    const pod = (
      await screen.show("kubectl", [
        ...inNamespace,
        "get",
        "pods",
        "-l",
        "app=web",
        "-o",
        "jsonpath={.items[0].metadata.name}",
      ])
    ).output.trim();
    await screen.show("kubectl", ["cp", there, `${namespace}/${pod}:/tmp/copied`]);
    await screen.show("kubectl", ["cp", `${namespace}/${pod}:/tmp/copied`, back]);
    expect(digest(there) === digest(back), "the file to come back as it went");
    screen.note(`4 MiB went and came back: sha256 ${digest(back)}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function digest(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}

function expect(holds: boolean, what: string): void {
  if (!holds) throw new Error(`the demo expected ${what}`);
}
