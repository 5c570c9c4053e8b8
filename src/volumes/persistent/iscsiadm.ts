import { boundedErrorText, boundedLines } from "../../lib/bounded-text.ts";
import { CodedError, codeOf, hasCode, ignoreNotFound, messageOf } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { type Option, command } from "../../seams/command.ts";

/** Timeouts, milliseconds: a portal that does not respond must leave time for the volume's other portals. */
const callTimeoutMs = 60_000;
const discoveryTimeoutMs = 40_000;
/** Maximum output of iscsiadm that is kept, bytes: a discovery lists all targets of a portal. */
const maxOutputBytes = 64 * 1024;

/** Exit codes that mean that there is no such session, or no such record. @see https://github.com/open-iscsi/open-iscsi (iscsi_err.h) */
const notFoundCodes: readonly number[] = [2, 21];
/** Exit code for an interface that a session uses. */
const sessionExists = 15;

/** Result of a call of iscsiadm. */
interface Answer {
  readonly code: number;
  /** Standard output and standard error. */
  readonly output: string;
}

/** A session of the target machine, or its record: one interface, one portal, one target. */
export interface IscsiNode {
  readonly portal: string;
  readonly iqn: string;
  readonly iface: string;
}

/** Settings of a record. Secret values are visible in the target's process list while iscsiadm runs, because it accepts values only
 *  as arguments. */
type Settings = readonly (readonly [name: string, value: string])[];

type Call = (options: readonly Option[], timeoutMs?: number) => Promise<Answer>;

export type Iscsiadm = ReturnType<typeof createIscsiadm>;

/** The target's iscsiadm. Every call throws not_found, in the kubelet's words, if the target has none. */
export function createIscsiadm(host: Host, signal?: AbortSignal) {
  const call: Call = async (options, timeoutMs = callTimeoutMs) => {
    const limits = { timeoutMs, maxOutputBytes, ...(signal && { signal }) };
    const ran = await ignoreNotFound(host.run(command("iscsiadm", options), limits)).catch((error: unknown) => {
      if (signal?.aborted || !hasCode(error, "deadline_exceeded")) throw error;
      throw failed(messageOf(error));
    });
    if (!ran) throw new CodedError("not_found", 'exec: "iscsiadm": executable file not found in $PATH');
    return { code: ran.code, output: boundedErrorText(`${ran.stdout}${ran.stderr}`) };
  };
  return { ...interfaceCalls(call), ...discoveryCalls(call), ...sessionCalls(call) };
}

function interfaceCalls(call: Call) {
  const interfaces = (name: string, operation: string, ...more: readonly Option[]) =>
    call([["-m", "iface"], ["-I", name], ["-o", operation], ...more]);
  /** Settings of an interface; `<empty>` becomes an empty string. @throws an error with only the exit code, as in the kubelet. */
  const showInterface = async (name: string): Promise<ReadonlyMap<string, string>> => {
    const { code, output } = await interfaces(name, "show");
    if (code === 0) return iscsiSettingsOf(output);
    throw failed(`exit status ${code}`);
  };
  return {
    showInterface,
    /** Copies an interface under another name, with an initiator name. Only settings that differ are set, because each one takes a
     *  call.
     *  @throws an error in the kubelet's words. */
    async cloneInterface(from: string, to: string, initiatorName: string): Promise<void> {
      const params = new Map(await showInterface(from)).set("iface.initiatorname", initiatorName);
      const { code, output } = await interfaces(to, "new");
      if (code !== 0 && code !== sessionExists)
        throw failed(`iscsi: failed to create new iface: ${output} (exit status ${code})`);
      const copy = await showInterface(to);
      for (const [name, value] of [...params].sort(([one], [other]) => (one < other ? -1 : 1))) {
        // The name is fixed once the interface exists.
        if (name === "iface.iscsi_ifacename" || value === "" || copy.get(name) === value) continue;
        const updated = await interfaces(to, "update", ["-n", name], ["-v", value]);
        if (updated.code === 0) continue;
        await interfaces(to, "delete");
        const why = `${updated.output} (exit status ${updated.code}). iface(${from}) will be used`;
        throw failed(`iscsi: failed to update iface records: ${why}`);
      }
    },
    /** Deletes an interface; does nothing if it does not exist. */
    async deleteInterface(name: string): Promise<void> {
      const { code, output } = await interfaces(name, "delete");
      if (code === 0 || notFoundCodes.includes(code)) return;
      // iscsiadm reports a missing interface with the same code as an invalid parameter.
      if ((await interfaces(name, "show")).code === 0)
        throw failed(`iscsi: failed to delete iface: ${output} (exit status ${code})`);
    },
  };
}

function discoveryCalls(call: Call) {
  const discoveries = (portal: string, iface: string, ...more: readonly Option[]) =>
    call([["-m", "discoverydb"], ["-t", "sendtargets"], ["-p", portal], ["-I", iface], ...more], discoveryTimeoutMs);
  return {
    /** Asks a portal for its targets, which creates the records of their nodes. The portal's own record does not keep the secrets.
     *  @throws an error in the kubelet's words. */
    async discover(portal: string, iface: string, chap: Settings | undefined): Promise<void> {
      await discoveries(portal, iface, ["-o", "new"]);
      const update = (name: string, value: string) => discoveries(portal, iface, ...assignment(name, value));
      const what = `iscsi: failed to update discoverydb to portal ${portal} error: iscsi: failed to update discoverydb`;
      await applyChap("discovery.sendtargets.auth.authmethod", chap, update, { what, key: "key" });
      const { code, output } = await discoveries(portal, iface, "--discover");
      if (code === 0) {
        // Resets the record to its defaults; deleting it would delete the records of all its nodes.
        if (chap) await discoveries(portal, iface, ["-o", "new"]);
        return;
      }
      await discoveries(portal, iface, ["-o", "delete"]);
      throw failed(`iscsi: failed to sendtargets to portal ${portal} output: ${output}, err exit status ${code}`);
    },
  };
}

function sessionCalls(call: Call) {
  const nodes = ({ portal, iqn, iface }: IscsiNode, ...more: readonly Option[]) =>
    call([["-m", "node"], ["-p", portal], ["-T", iqn], ["-I", iface], ...more]);
  return {
    /** Configures the record of a session: turns off automatic LUN scans, and sets CHAP.
     *  @returns a warning if the scans could not be turned off. @throws an error in the kubelet's words. */
    async configure(node: IscsiNode, chap: Settings | undefined): Promise<string | undefined> {
      const update = (name: string, value: string) => nodes(node, ...assignment(name, value));
      const scan = await update("node.session.scan", "manual");
      const what = `iscsi: failed to update iscsi node to portal ${node.portal} error: iscsi: failed to update node`;
      await applyChap("node.session.auth.authmethod", chap, update, { what, key: "session key" });
      return scan.code === 0 ? undefined : scan.output;
    },
    /** Logs in; if that fails, the record is deleted. @throws an error in the kubelet's words. */
    async login(node: IscsiNode): Promise<void> {
      const { code, output } = await nodes(node, "--login");
      if (code === 0) return;
      await nodes(node, ["-o", "delete"]);
      throw failed(`iscsi: failed to attach disk: Error: ${output} (exit status ${code})`);
    },
    /** Keeps the target machine from logging in at its next boot. @returns a warning if that failed. */
    async setManualStartup(node: IscsiNode): Promise<string | undefined> {
      const { code, output } = await nodes(node, ...assignment("node.startup", "manual"));
      return code === 0 ? undefined : output;
    },
    /** Logs out, and deletes the record; a missing session or record is not an error. @throws an error with the output. */
    async logOut(node: IscsiNode): Promise<void> {
      for (const [options, what] of [
        [["--logout"], "detach disk"],
        [[["-o", "delete"]], "delete node record"],
      ] as const) {
        const { code, output } = await nodes(node, ...options);
        if (code !== 0 && !notFoundCodes.includes(code))
          throw failed(`iscsi: failed to ${what} Error: ${output} (exit status ${code})`);
      }
    },
  };
}

function assignment(name: string, value: string): readonly Option[] {
  return [
    ["-o", "update"],
    ["-n", name],
    ["-v", value],
  ];
}

function failed(message: string): CodedError {
  return new CodedError("failed_precondition", message);
}

/** Makes a record authenticate by CHAP, if the volume uses CHAP. No error contains a value of the secret.
 *  @throws an error in the kubelet's words. */
async function applyChap(
  authMethod: string,
  settings: Settings | undefined,
  update: (name: string, value: string) => Promise<Answer>,
  { what, key }: { readonly what: string; readonly key: string },
): Promise<void> {
  if (!settings) return;
  const method = await update(authMethod, "CHAP");
  if (method.code !== 0) throw failed(`${what} with CHAP, output: ${method.output}`);
  for (const [name, value] of settings) {
    const { code, output } = await update(name, value).catch((error: unknown) => {
      throw new CodedError(codeOf(error), without(messageOf(error), settings));
    });
    if (code !== 0) throw failed(`${what} ${key} "${name}" error: ${without(output, settings)}`);
  }
}

/** Replaces the values of a secret in a text. */
function without(text: string, settings: Settings): string {
  return settings.reduce((rest, [, value]) => rest.replaceAll(value, "…"), text);
}

/** Parses the settings of an interface, `iface.NAME = VALUE`. @throws failed_precondition. */
export function iscsiSettingsOf(output: string): ReadonlyMap<string, string> {
  const lines = boundedLines(output).filter((line) => line.startsWith("iface."));
  return new Map(
    lines.map((line) => {
      const [name, equals, value, ...more] = line.split(/\s+/).filter((word) => word !== "");
      if (name !== undefined && equals === "=" && value !== undefined && more.length === 0)
        return [name, value === "<empty>" ? "" : value];
      throw failed(`iscsi: failed to parse iface records: error: invalid iface setting: ${line}`);
    }),
  );
}
