import assert from "node:assert/strict";
import { test } from "node:test";
import { cdiDevicesOf, createClaimRecords } from "../../../src/dra/claim-records.ts";
import { type PreparationDeps, prepareClaims, unprepareClaims } from "../../../src/dra/preparation.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { ResourceClaim } from "../../../src/objects.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";

const never = new AbortController().signal;
const results = (driver: string, device: string) => ({ driver, device, pool: "node", request: "r" });

/** Claims allocated from drivers, and what is called. */
function bench({ drivers = ["a.example.com"] }: { readonly drivers?: readonly string[] } = {}) {
  const records = createClaimRecords();
  const calls: string[] = [];
  const answers: { prepare?: object; error?: string } = {};
  const first = aPod({ resourceClaims: [{ name: "own", resourceClaimName: "claim" }] }, { uid: "first" });
  const second = aPod({ resourceClaims: [{ name: "own", resourceClaimName: "claim" }] }, { uid: "second" });
  const claim: ResourceClaim = {
    metadata: { name: "claim", namespace: first.metadata.namespace, uid: "claim-uid" },
    spec: {},
    status: {
      allocation: { devices: { results: drivers.map((driver, at) => results(driver, `dev-${at}`)) } },
      reservedFor: [first, second].map(({ metadata: { name, uid } }) => ({ name, uid, resource: "pods" })),
    },
  };
  const deps: PreparationDeps = {
    records,
    claim: async () => claim,
    driver(name) {
      if (!drivers.includes(name)) throw new CodedError("unavailable", `DRA driver ${name} is not registered`);
      const device = {
        poolName: "node",
        deviceName: "dev",
        requestNames: ["r"],
        cdiDeviceIds: [`${name}/dev=0`],
        shareId: undefined,
      };
      return {
        async prepare(claims) {
          calls.push(`prepare ${name} ${claims.map((each) => each.name).join()}`);
          return {
            claims: Object.fromEntries(
              claims.map(({ uid }) => [uid, { devices: [device], error: answers.error ?? "", ...answers.prepare }]),
            ),
          };
        },
        async unprepare(claims) {
          calls.push(`unprepare ${name} ${claims.map((each) => each.name).join()}`);
          return { claims: Object.fromEntries(claims.map(({ uid }) => [uid, { error: answers.error ?? "" }])) };
        },
      };
    },
    save: async () => void calls.push(`save ${records.all().length}`),
  };
  return { records, calls, answers, first, second, claim, deps };
}

test("records a claim before calling its drivers, and its devices afterwards", async () => {
  const { deps, calls, records, first } = bench({ drivers: ["a.example.com", "b.example.com"] });
  await prepareClaims(deps, first, never);
  assert.deepEqual(calls, ["save 1", "prepare a.example.com claim", "prepare b.example.com claim", "save 1"]);
  const [record] = records.ofPod("first");
  assert.ok(record && records.isPrepared(record));
  assert.deepEqual(cdiDevicesOf(record, "r"), ["a.example.com/dev=0", "b.example.com/dev=0"]);
  assert.deepEqual(cdiDevicesOf(record, "another"), []);
});

test("prepares a shared claim once, and unprepares it after the last pod", async () => {
  const { deps, calls, first, second } = bench();
  await prepareClaims(deps, first, never);
  await prepareClaims(deps, second, never);
  await unprepareClaims(deps, "first", never);
  assert.ok(!calls.includes("unprepare a.example.com claim"), "the second pod uses it");
  await unprepareClaims(deps, "second", never);
  await unprepareClaims(deps, "second", never);
  const called = calls.filter((call) => !call.startsWith("save"));
  assert.deepEqual(called, ["prepare a.example.com claim", "unprepare a.example.com claim"]);
  assert.equal(calls.at(-1), "save 0");
});

test("prepares a claim again after a restart, because its driver may have been replaced", async () => {
  const { deps, calls, records, first } = bench();
  await prepareClaims(deps, first, never);
  records.restore(records.all());
  assert.equal(records.ofPod("first").length, 1);
  await prepareClaims(deps, first, never);
  assert.equal(calls.filter((call) => call.startsWith("prepare")).length, 2);
});

test("records no claim for a pod whose driver is not registered", async () => {
  const { deps, calls, claim, first } = bench();
  const unknown = { ...claim, status: { ...claim.status, allocation: { devices: { results: [results("x", "d")] } } } };
  await assert.rejects(prepareClaims({ ...deps, claim: async () => unknown }, first, never), {
    message: "DRA driver x is not registered",
  });
  await unprepareClaims(deps, "first", never);
  assert.deepEqual(calls, []);
});

type Bench = ReturnType<typeof bench>;
const failures: readonly (readonly [string, (bench: Bench) => Partial<PreparationDeps>, string])[] = [
  [
    "the API server does not have the claim",
    () => ({ claim: () => Promise.reject(new Error("not found")) }),
    "fetch ResourceClaim claim: not found",
  ],
  [
    "the claim is not allocated",
    ({ claim }) => ({ claim: async () => ({ ...claim, status: { reservedFor: claim.status?.reservedFor ?? [] } }) }),
    "ResourceClaim claim: not allocated",
  ],
  [
    "the driver reports a failure",
    ({ answers }) => {
      answers.error = "broken";
      return {};
    },
    "NodePrepareResources failed for ResourceClaim claim: broken",
  ],
];
for (const [when, arrange, message] of failures)
  test(`fails with the kubelet's message if ${when}`, async () => {
    const made = bench();
    await assert.rejects(prepareClaims({ ...made.deps, ...arrange(made) }, made.first, never), { message });
  });

test("rejects a driver's response that contains other claims or lacks a claim", async () => {
  const { deps, first } = bench();
  const answering = (claims: object): PreparationDeps => ({
    ...deps,
    driver: (name) => ({ ...deps.driver(name), prepare: async () => ({ claims }) as never }),
  });
  await assert.rejects(prepareClaims(answering({ other: { devices: [], error: "" } }), first, never), {
    message: "NodePrepareResources returned result for unknown claim UID other",
  });
  await assert.rejects(prepareClaims(answering({}), first, never), {
    message: "NodePrepareResources skipped 1 ResourceClaims",
  });
});

test("a claim with the same name but another UID waits until the old one is unprepared", async () => {
  const { deps, claim, first, second } = bench();
  await prepareClaims(deps, first, never);
  const renewed = { ...claim, metadata: { ...claim.metadata, uid: "new" } };
  const pod: TestPod = second;
  await assert.rejects(prepareClaims({ ...deps, claim: async () => renewed }, pod, never), {
    message:
      "old ResourceClaim with same name claim and different UID claim-uid still exists (previous pod force-deleted?!)",
  });
});

test("keeps its records if a driver fails to unprepare a claim", async () => {
  const { deps, records, answers, first } = bench();
  await prepareClaims(deps, first, never);
  answers.error = "busy";
  await assert.rejects(unprepareClaims(deps, "first", never), {
    message: "NodeUnprepareResources failed for ResourceClaim claim: busy",
  });
  assert.equal(records.ofPod("first").length, 1);
});
