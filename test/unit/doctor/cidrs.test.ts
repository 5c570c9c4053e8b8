import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApiClient, CallOptions } from "../../../src/api/client.ts";
import { compareRanges, readRanges } from "../../../src/doctor/cidrs.ts";
import { networksIn } from "../../../src/host/networks.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { never } from "../../fakes/signals.ts";

const four = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
cni0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
tun0\t0000000A\t010200C0\t0003\t0\t0\t0\t0000C0FF\t0\t0\t0
`;
const zero = "0".repeat(32);
const six = [
  `fd000000000000000000000000000000 40 ${zero} 00 ${zero} 00000100 00000001 00000000 00000001 eth0`,
  `fe800000000000000000000000000000 40 ${zero} 00 ${zero} 00000100 00000001 00000000 00000001 eth0`,
  `${zero} 00 ${zero} 00 fd000000000000000000000000000001 00000100 00000001 00000000 00000003 eth0`,
  `00000000000000000000000000000001 80 ${zero} 00 ${zero} 00000000 00000002 00000000 80200001 lo`,
].join("\n");

test("lists a target's networks from its routes, without default and link-local ones", () => {
  assert.deepEqual(networksIn(four, six), [
    { cidr: "192.0.2.0/24", device: "eth0", isDirect: true },
    { cidr: "10.88.0.0/16", device: "cni0", isDirect: true },
    { cidr: "10.0.0.0/10", device: "tun0", isDirect: false },
    { cidr: "fd00::/64", device: "eth0", isDirect: true },
  ]);
});

const networks = networksIn(four, six);
const said = (services: readonly string[] | undefined, pods: readonly string[], separate: boolean) =>
  compareRanges({ services, pods }, { networks, separate }).map(
    ({ level, message }) => `${level} ${message.replace(/: traffic for one.*/, "")}`,
  );

test("checks Services against all networks, and other nodes' pods only against on-link ones if the target's pods are isolated", () => {
  assert.deepEqual(said(["10.96.0.0/12"], ["10.244.1.0/24"], true), [
    "ok Services 10.96.0.0/12; ranges of other nodes' pods: 1; no network of the target overlaps",
  ]);
  assert.deepEqual(said(["10.32.0.0/12", "fd00::/108"], [], false), [
    "warning 10.0.0.0/10 (tun0) of the target overlaps with 10.32.0.0/12 of the cluster's Services",
    "warning fd00::/64 (eth0) of the target overlaps with fd00::/108 of the cluster's Services",
  ]);
  const pods = ["10.88.1.0/24", "10.88.2.0/24", "10.1.0.0/24"];
  assert.deepEqual(said(undefined, pods, true), [
    "warning 10.88.0.0/16 (cni0) of the target overlaps with 10.88.1.0/24 and 1 more of other nodes' pods",
  ]);
  assert.match(
    said(undefined, pods, false).join(),
    /^ok the Services' range is unknown; ranges of other nodes' pods: 3;/,
  );
});

test("reads the ranges of all ServiceCIDRs and of all other nodes, page by page", async () => {
  const node = (name: string, ...podCIDRs: readonly string[]) => ({ metadata: { name }, spec: { podCIDRs } });
  const pages: Readonly<Record<string, object>> = {
    "": { items: [node("here", "10.0.0.0/24"), node("a", "10.0.1.0/24", "fd00:1::/64")], metadata: { continue: "b" } },
    b: {
      items: [
        { metadata: { name: "b" }, spec: { podCIDR: "10.0.2.0/24" } },
        { metadata: { name: "c" }, spec: {} },
      ],
    },
  };
  const client = (cidrs: () => object): Pick<ApiClient, "list"> => ({
    list: async (path: string, { query }: CallOptions) =>
      (path.endsWith("/servicecidrs") ? cidrs() : pages[String(query?.["continue"] ?? "")]) as never,
  });
  const signal = never;
  const whole = client(() => ({ items: [{ spec: { cidrs: ["10.96.0.0/16", "fd00::/112"] } }] }));
  const pods = ["10.0.1.0/24", "fd00:1::/64", "10.0.2.0/24"];
  assert.deepEqual(await readRanges(whole, "here", signal), { services: ["10.96.0.0/16", "fd00::/112"], pods });
  const old = client(() => {
    throw new CodedError("not_found", "no such resource");
  });
  assert.deepEqual(await readRanges(old, "here", signal), { services: undefined, pods });
});
