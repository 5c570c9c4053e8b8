import type { SpecDraft } from "../../harness/pods.ts";
import type { SweepCase } from "./case.ts";

const long = "a".repeat(62);
export const names: SweepCase[] = [
  { name: "host-plain" },
  { name: `host-${"long-".repeat(12)}x` },
  { name: `host-${"l".repeat(57)}-.b`.replace("-.b", "-b") },
  { name: "host.with.dots" },
  { name: "host-name", spec: { hostname: "mine" } },
  { name: "host-sub", spec: { subdomain: "office" } },
  { name: "host-both", spec: { hostname: "mine", subdomain: "office" } },
  { name: "host-fqdn", spec: { hostname: "mine", subdomain: "office", setHostnameAsFQDN: true } },
  { name: "host-fqdn-alone", spec: { hostname: "mine", setHostnameAsFQDN: true } },
  { name: "host-fqdn-long", spec: { hostname: long, subdomain: "office", setHostnameAsFQDN: true } },
  { name: "host-fqdn-false", spec: { hostname: long, subdomain: "office", setHostnameAsFQDN: false } },
  { name: "host-override", spec: { hostnameOverride: "over.ride.example" } },
  { name: "host-override-64", spec: { hostnameOverride: `${"o".repeat(62)}.x` } },
  { name: "host-override-both", spec: { hostnameOverride: "over", hostname: "mine", subdomain: "office" } },
  { name: "hostnet", spec: { hostNetwork: true } },
  { name: "hostnet-name", spec: { hostNetwork: true, hostname: "mine", subdomain: "office" } },
  { name: "hostnet-fqdn", spec: { hostNetwork: true, hostname: "mine", subdomain: "office", setHostnameAsFQDN: true } },
  {
    name: "hostnet-fqdn-long",
    spec: { hostNetwork: true, hostname: long, subdomain: "office", setHostnameAsFQDN: true },
  },
  { name: "hostnet-aliases", spec: { hostNetwork: true, hostAliases: [{ ip: "10.1.2.3", hostnames: ["a", "b.c"] }] } },
  {
    name: "aliases",
    spec: {
      subdomain: "office",
      hostAliases: [
        { ip: "10.1.2.3", hostnames: ["a", "b.c"] },
        { ip: "fd00::1", hostnames: ["six"] },
        { ip: "10.1.2.4" },
        { ip: "127.0.0.1", hostnames: ["localhost"] },
      ],
    },
  },
];

const searches = (count: number, length: number) =>
  Array.from({ length: count }, (_, index) => `s${index}.${"x".repeat(length)}.example`);
const policies = ["Default", "ClusterFirst", "ClusterFirstWithHostNet"];
const dnsConfig = {
  nameservers: ["10.9.9.9", "10.9.9.8"],
  searches: ["mine.example", "svc.cluster.local", "mine.example."],
  options: [
    { name: "ndots", value: "2" },
    { name: "edns0" },
    { name: "ndots", value: "3" },
    { name: "attempts", value: "" },
  ],
};
export const dns: SweepCase[] = [
  ...policies.flatMap((dnsPolicy): SweepCase[] => [
    { name: `dns-${dnsPolicy.toLowerCase()}`, spec: { dnsPolicy } },
    { name: `dns-${dnsPolicy.toLowerCase()}-host`, spec: { dnsPolicy, hostNetwork: true } },
    { name: `dns-${dnsPolicy.toLowerCase()}-config`, spec: { dnsPolicy, dnsConfig } },
  ]),
  { name: "dns-none", spec: { dnsPolicy: "None", dnsConfig } },
  { name: "dns-none-host", spec: { dnsPolicy: "None", dnsConfig, hostNetwork: true } },
  { name: "dns-none-one", spec: { dnsPolicy: "None", dnsConfig: { nameservers: ["fd00::35"] } } },
  { name: "dns-dot", spec: { dnsPolicy: "None", dnsConfig: { nameservers: ["10.9.9.9"], searches: ["."] } } },
  { name: "dns-three", spec: { dnsConfig: { nameservers: ["10.9.9.1", "10.9.9.2", "10.9.9.3"] } } },
  { name: "dns-searches", spec: { dnsConfig: { searches: searches(32, 5) } } },
  { name: "dns-searches-chars", spec: { dnsConfig: { searches: searches(30, 55) } } },
];

const downward = (items: readonly object[], more: object = {}): SpecDraft =>
  ({ volumes: [{ name: "info", downwardAPI: { items, ...more } }] }) as SpecDraft;
const info = { volumeMounts: [{ name: "info", mountPath: "/info" }] };
const item = (path: string, fieldPath: string, mode?: number) => ({
  path,
  fieldRef: { fieldPath },
  ...(mode !== undefined && { mode }),
});
export const volumes: SweepCase[] = [
  {
    name: "info-fields",
    metadata: {
      labels: { app: "web", "example.com/x": "y", b: "", a: "z" },
      annotations: { odd: "é😀\n\t\"'\\\u0001\u007f\u00a0\u2028\ufffd", "a/b": "c", long: "x".repeat(5000), empty: "" },
    },
    spec: downward([
      item("labels", "metadata.labels"),
      item("annotations", "metadata.annotations"),
      item("name", "metadata.name"),
      item("deep/uid", "metadata.uid"),
      item("one", "metadata.labels['app']"),
      item("odd", "metadata.annotations['odd']"),
      item("none", "metadata.annotations['none']"),
      item("mode", "metadata.namespace", 0o400),
    ]),
    main: info,
  },
  {
    name: "info-resources",
    spec: downward(
      ["limits.cpu", "requests.cpu", "limits.memory", "requests.memory", "limits.ephemeral-storage"].map((name) => ({
        path: name,
        resourceFieldRef: { containerName: "main", resource: name },
      })),
      { defaultMode: 0o440 },
    ),
    main: { ...info, resources: { requests: { cpu: "10m", memory: "5Mi" }, limits: { memory: "50Mi" } } },
  },
  {
    name: "info-projected",
    spec: {
      volumes: [
        {
          name: "info",
          projected: {
            defaultMode: 0o444,
            sources: [
              { downwardAPI: { items: [item("name", "metadata.name")] } },
              { configMap: { name: "odd" } },
              { secret: { name: "bytes", items: [{ key: "raw", path: "deep/raw", mode: 0o400 }] } },
            ],
          },
        },
      ],
    },
    main: info,
  },
];
