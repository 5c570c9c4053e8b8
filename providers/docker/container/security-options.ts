import {
  type LinuxContainerSecurityContext,
  type SELinuxOption,
  type SecurityProfile,
  SecurityProfile_ProfileType as ProfileType,
  SupplementalGroupsPolicy,
} from "../../../src/gen/cri.ts";
import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import type { Host } from "../../../src/seams/host.ts";

/** Returns HostConfig.SecurityOpt. Runtime-default profiles are omitted, so that the daemon's default applies; no seccomp profile
 *  means unconfined. A Localhost profile is read from the target and passed on.
 *  @throws CodedError failed_precondition when that profile cannot be read.
 *  @see https://docs.docker.com/engine/security/seccomp/ and https://docs.docker.com/engine/security/apparmor/ */
export async function securityOptions(
  { seccomp, apparmor, noNewPrivs, selinuxOptions }: LinuxContainerSecurityContext,
  fs: Pick<Host["fs"], "readFile">,
  signal: AbortSignal,
): Promise<string[]> {
  return [
    ...(await seccompOptions(seccomp, fs, signal)),
    ...appArmorOptions(apparmor),
    ...(noNewPrivs ? ["no-new-privileges:true"] : []),
    ...selinuxLabels(selinuxOptions),
  ];
}

async function seccompOptions(
  profile: SecurityProfile | undefined,
  fs: Pick<Host["fs"], "readFile">,
  signal: AbortSignal,
): Promise<string[]> {
  switch (profile?.profileType) {
    case ProfileType.RuntimeDefault:
      return [];
    case ProfileType.Localhost:
      return [`seccomp=${await readProfile(profile.localhostRef, fs, signal)}`];
    default:
      return ["seccomp=unconfined"];
  }
}

async function readProfile(path: string, fs: Pick<Host["fs"], "readFile">, signal: AbortSignal): Promise<string> {
  try {
    return (await fs.readFile(path, { signal })).toString();
  } catch (error) {
    throw new CodedError("failed_precondition", `cannot load seccomp profile "${path}": ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function appArmorOptions(profile: SecurityProfile | undefined): string[] {
  switch (profile?.profileType) {
    case ProfileType.Unconfined:
      return ["apparmor=unconfined"];
    case ProfileType.Localhost:
      return [`apparmor=${profile.localhostRef}`];
    default:
      return [];
  }
}

function selinuxLabels(options: SELinuxOption | undefined): string[] {
  return (["user", "role", "type", "level"] as const)
    .filter((part) => options?.[part])
    .map((part) => `label=${part}:${options?.[part]}`);
}

/** Returns Config.User, `user[:group]`; empty for the image's user.
 *  @throws CodedError invalid_argument for a group without a user, unimplemented for supplementalGroupsPolicy Strict. */
export function containerUser(security: LinuxContainerSecurityContext): string {
  const { runAsUser, runAsGroup, runAsUsername, supplementalGroupsPolicy } = security;
  if (supplementalGroupsPolicy === SupplementalGroupsPolicy.Strict)
    throw new CodedError("unimplemented", "supplementalGroupsPolicy Strict is not supported by Docker");
  const user = runAsUser ? String(runAsUser.value) : runAsUsername;
  if (!runAsGroup) return user;
  if (user === "") throw new CodedError("invalid_argument", "runAsGroup is set without runAsUser");
  return `${user}:${runAsGroup.value}`;
}
