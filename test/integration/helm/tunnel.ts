import type { Cluster } from "../../harness/cluster.ts";
import { images } from "../../harness/pods.ts";

/** Where its pods serve HTTP; one further they echo datagrams. */
export const serverPort = 8080;

/** A pod that says its name. */
export const server = (name: string, more: object = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, labels: { app: name } },
  spec: {
    terminationGracePeriodSeconds: 1,
    containers: [
      {
        name: "agnhost",
        image: images.agnhost,
        command: ["/agnhost", "netexec", `--http-port=${serverPort}`, `--udp-port=${serverPort + 1}`],
        readinessProbe: { httpGet: { path: "/healthz", port: serverPort }, periodSeconds: 1 },
        volumeMounts: [{ name: "uploads", mountPath: "/uploads" }],
      },
    ],
    volumes: [{ name: "uploads", emptyDir: {} }],
    ...more,
  },
});

/** A Service of the pod `web`, unless `spec` says otherwise. */
export const service = (name: string, spec: object = {}) => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name },
  spec: {
    selector: { app: "web" },
    ports: [
      { name: "http", port: 80, targetPort: serverPort },
      { name: "echo", port: 81, targetPort: serverPort + 1, protocol: "UDP" },
    ],
    ...spec,
  },
});

/** The cluster address of a Service. */
export const addressOf = async (cluster: Cluster, name: string) =>
  (await cluster.get<{ spec: { clusterIP: string } }>("service", name))?.spec.clusterIP;

/** Values that make the release's first node a tunneled one. */
export const tunneled = ["--set=nodes[0].ssh.network=tunneled"];
