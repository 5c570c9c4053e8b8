import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  NamespaceMode,
  SecurityProfile_ProfileType as ProfileType,
  SupplementalGroupsPolicy,
} from "../../../src/gen/cri.ts";
import type { Container, Pod, PodSpec } from "../../../src/objects.ts";
import {
  type ImageUser,
  containerSecurity,
  effectiveSecurityContext,
  hasPrivileged,
  namespaces,
  verifyRunAsNonRoot,
} from "../../../src/pod/security.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

type PodContext = NonNullable<PodSpec["securityContext"]>;
type Context = NonNullable<Container["securityContext"]>;

function both(pod: PodContext | undefined, own: Context | undefined): { pod: Pod; container: Container } {
  const container = aContainer("c", own ? { securityContext: own } : {});
  return { container, pod: aPod({ containers: [container], ...(pod && { securityContext: pod }) }) };
}

function secure(
  pod: PodContext | undefined,
  own: Context | undefined,
  more: { imageUser?: ImageUser; seccompDefault?: boolean; volumeGroups?: readonly bigint[] } = {},
) {
  return containerSecurity({
    ...both(pod, own),
    imageUser: { uid: 0n },
    seccompRoot: "/root/seccomp",
    seccompDefault: false,
    moreMaskedPaths: ["/sys/heat"],
    volumeGroups: [],
    ...more,
  });
}

describe("the effective security context", () => {
  it("the effective security context prefers the container's over the pod's", () => {
    const { pod, container } = both(
      { runAsUser: 1, runAsGroup: 2, runAsNonRoot: true },
      { runAsUser: 3, privileged: true },
    );
    const { runAsUser, runAsGroup, runAsNonRoot, privileged } = effectiveSecurityContext(pod, container);
    assert.deepEqual([runAsUser, runAsGroup, runAsNonRoot, privileged], [3, 2, true, true]);
  });
});

describe("the check of runAsNonRoot", () => {
  const where = '(pod: "p_default(uid-1)", container: c)';
  const cases: readonly (readonly [name: string, own: Context, user: ImageUser, error: string | undefined])[] = [
    ["runAsNonRoot lets root run if it is not set", {}, { uid: 0n }, undefined],
    [
      "runAsNonRoot rejects runAsUser 0",
      { runAsNonRoot: true, runAsUser: 0 },
      { uid: 5n },
      `container's runAsUser breaks non-root policy ${where}`,
    ],
    ["runAsNonRoot accepts any other runAsUser", { runAsNonRoot: true, runAsUser: 1 }, { username: "app" }, undefined],
    [
      "runAsNonRoot rejects an image whose user is root",
      { runAsNonRoot: true },
      { uid: 0n },
      `container has runAsNonRoot and image will run as root ${where}`,
    ],
    ["runAsNonRoot accepts an image with another user ID", { runAsNonRoot: true }, { uid: 5n }, undefined],
    [
      "runAsNonRoot rejects an image with a user name, as it may be root",
      { runAsNonRoot: true },
      { username: "app" },
      `container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root ${where}`,
    ],
    [
      "runAsNonRoot rejects an image with an invalid user ID",
      { runAsNonRoot: true },
      { uid: 2n ** 31n },
      `container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive ${where}`,
    ],
  ];
  for (const [name, own, user, message] of cases) {
    it(name, () => {
      const { pod, container } = both(undefined, own);
      if (message === undefined) assert.doesNotThrow(() => verifyRunAsNonRoot(pod, container, user));
      else assert.throws(() => verifyRunAsNonRoot(pod, container, user), { message });
    });
  }
});

describe("a container's CRI security context", () => {
  it("a container's CRI security context has the spec's user, otherwise the image's UID or user name", () => {
    assert.equal(secure({ runAsUser: 7 }, undefined).runAsUser?.value, 7n);
    assert.equal(secure(undefined, undefined, { imageUser: { uid: 9n } }).runAsUser?.value, 9n);
    const named = secure(undefined, undefined, { imageUser: { username: "app" } });
    assert.deepEqual([named.runAsUser, named.runAsUsername], [undefined, "app"]);
  });
  it("a container's CRI security context adds the groups of volumes to the pod's groups, each once", () => {
    const { supplementalGroups } = secure({ fsGroup: 10, supplementalGroups: [11] }, undefined, {
      volumeGroups: [12n, 11n, 12n, 10n],
    });
    assert.deepEqual(supplementalGroups, [10n, 11n, 12n, 10n]);
  });
  it("a container's CRI security context has the spec's privileges, capabilities and groups", () => {
    const context = secure(
      {
        runAsGroup: 3,
        fsGroup: 10,
        supplementalGroups: [11],
        supplementalGroupsPolicy: "Strict",
        seLinuxOptions: { level: "s0" },
      },
      {
        privileged: true,
        readOnlyRootFilesystem: true,
        allowPrivilegeEscalation: false,
        capabilities: { add: ["NET_ADMIN"], drop: ["ALL"] },
      },
    );
    assert.deepEqual([context.privileged, context.readonlyRootfs, context.noNewPrivs], [true, true, true]);
    assert.deepEqual(
      [context.capabilities?.addCapabilities, context.capabilities?.dropCapabilities],
      [["NET_ADMIN"], ["ALL"]],
    );
    assert.deepEqual(
      [context.runAsGroup?.value, context.supplementalGroups, context.selinuxOptions?.level],
      [3n, [10n, 11n], "s0"],
    );
    assert.equal(context.supplementalGroupsPolicy, SupplementalGroupsPolicy.Strict);
    assert.equal(secure(undefined, { allowPrivilegeEscalation: true }).noNewPrivs, false);
    assert.throws(
      () => secure({ supplementalGroupsPolicy: "Odd" }, undefined),
      /unsupported supplementalGroupsPolicy: Odd/,
    );
  });
  it("a container's CRI security context masks /proc and /sys unless procMount is Unmasked", () => {
    const usual = secure(undefined, undefined);
    assert.ok(
      ["/proc/kcore", "/proc/interrupts", "/sys/firmware", "/sys/heat"].every((path) =>
        usual.maskedPaths.includes(path),
      ),
    );
    assert.deepEqual(usual.readonlyPaths, ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]);
    const bare = secure(undefined, { procMount: "Unmasked" });
    assert.deepEqual([bare.maskedPaths, bare.readonlyPaths], [[], []]);
  });
  const seccomp: readonly (readonly [
    pod: PodContext | undefined,
    own: Context | undefined,
    byDefault: boolean,
    type: ProfileType,
    ref: string,
  ])[] = [
    [undefined, undefined, false, ProfileType.Unconfined, ""],
    [undefined, undefined, true, ProfileType.RuntimeDefault, ""],
    [{ seccompProfile: { type: "RuntimeDefault" } }, undefined, false, ProfileType.RuntimeDefault, ""],
    [
      { seccompProfile: { type: "RuntimeDefault" } },
      { seccompProfile: { type: "Unconfined" } },
      true,
      ProfileType.Unconfined,
      "",
    ],
    [
      undefined,
      { seccompProfile: { type: "Localhost", localhostProfile: "a/b.json" } },
      false,
      ProfileType.Localhost,
      "/root/seccomp/a/b.json",
    ],
  ];
  for (const [pod, own, seccompDefault, profileType, localhostRef] of seccomp) {
    it(`seccomp profile of pod ${JSON.stringify(pod)} and container ${JSON.stringify(own)}, seccompDefault ${seccompDefault}`, () => {
      assert.deepEqual(secure(pod, own, { seccompDefault }).seccomp, { profileType, localhostRef });
    });
  }
  it("a container's CRI security context needs a name for a Localhost profile", () => {
    assert.throws(() => secure(undefined, { seccompProfile: { type: "Localhost" } }), {
      message: "localhostProfile must be set if seccompProfile type is Localhost.",
    });
    assert.throws(() => secure(undefined, { appArmorProfile: { type: "Localhost" } }), {
      message: "missing localhost apparmor profile name",
    });
  });
  it("a container's AppArmor profile comes from the container, else the annotation, else the pod", () => {
    const local = secure(
      { appArmorProfile: { type: "Unconfined" } },
      { appArmorProfile: { type: "Localhost", localhostProfile: "mine" } },
    );
    assert.deepEqual(
      [local.apparmor, local.apparmorProfile],
      [{ profileType: ProfileType.Localhost, localhostRef: "mine" }, "localhost/mine"],
    );
    assert.equal(secure({ appArmorProfile: { type: "RuntimeDefault" } }, undefined).apparmorProfile, "runtime/default");
    assert.deepEqual(
      [secure(undefined, undefined).apparmor, secure(undefined, undefined).apparmorProfile],
      [undefined, ""],
    );
    const { pod, container } = both({ appArmorProfile: { type: "RuntimeDefault" } }, undefined);
    pod.metadata.annotations = { "container.apparmor.security.beta.kubernetes.io/c": "localhost/noted" };
    const noted = containerSecurity({
      pod,
      container,
      imageUser: {},
      seccompRoot: "/",
      seccompDefault: false,
      moreMaskedPaths: [],
      volumeGroups: [],
    });
    assert.equal(noted.apparmorProfile, "localhost/noted");
  });
});

describe("namespaces of a pod", () => {
  const { POD, NODE, CONTAINER } = NamespaceMode;
  const cases: readonly (readonly [
    spec: Partial<PodSpec>,
    network: NamespaceMode,
    ipc: NamespaceMode,
    pid: NamespaceMode,
  ])[] = [
    [{}, POD, POD, CONTAINER],
    [{ hostNetwork: true, hostIPC: true, hostPID: true }, NODE, NODE, NODE],
    [{ shareProcessNamespace: true }, POD, POD, POD],
  ];
  for (const [spec, ...modes] of cases) {
    it(`namespaces of a pod with the spec ${JSON.stringify(spec)}`, () => {
      const { network, ipc, pid } = namespaces(aPod(spec));
      assert.deepEqual([network, ipc, pid], modes);
    });
  }
  it("a sandbox shares the target's PID namespace if each container has its own", () => {
    const optionsOf = (spec: Partial<PodSpec>) => {
      const container = aContainer("e");
      const { namespaceOptions } = containerSecurity({
        pod: aPod(spec),
        container,
        imageUser: {},
        seccompRoot: "/",
        seccompDefault: false,
        moreMaskedPaths: [],
        volumeGroups: [],
        targetId: "target",
      });
      return [namespaceOptions?.pid, namespaceOptions?.targetId];
    };
    assert.deepEqual(optionsOf({}), [NamespaceMode.TARGET, "target"]);
    assert.deepEqual(optionsOf({ shareProcessNamespace: true }), [POD, ""]);
  });
  it("a sandbox is privileged if any container is", () => {
    assert.equal(hasPrivileged(aPod()), false);
    assert.equal(
      hasPrivileged(aPod({ initContainers: [aContainer("i", { securityContext: { privileged: true } })] })),
      true,
    );
  });
});
