import { readArguments, flagsOf } from "./arguments.ts";
import type { ConfigIo } from "./documents.ts";
import { defaultsOf } from "./decode.ts";
import { fleetOfPod } from "./fleet-configuration.ts";
import { enrolHelpText, versionText } from "./help.ts";
import { enrolFields, type EnrolOptions, optionFields } from "./option-fields.ts";
import type { EnrolCommand, ParseResult } from "./parse-result.ts";
import { refuse } from "./refusal.ts";

/** Longest lifetime of a token, milliseconds. */
const maxValidForMs = 7 * 24 * 60 * 60_000;

/** Parses `graftlet enrol NODE --address HOST[:PORT]`. @throws CodedError invalid_argument */
export function parseEnrol(argv: readonly string[], io: ConfigIo): ParseResult {
  const isNamed = argv[0]?.startsWith("-") === false;
  const [nodeName = "", ...rest] = isNamed ? argv : ["", ...argv];
  const read = readArguments(rest, flagsOf(optionFields, enrolFields));
  if (read.kind === "help") return { kind: "help", text: enrolHelpText() };
  if (read.kind === "version") return { kind: "version", text: versionText() };
  const given = (flag: string) => read.values.get(flag);
  const defaults: EnrolOptions = defaultsOf(enrolFields);
  const options = {
    ...defaultsOf(optionFields),
    nodes: (given("nodes") as string | undefined) ?? podConfiguration,
    certDir: (given("cert-dir") as string | undefined) ?? podCertificates,
  };
  const fleet = fleetOfPod(io, options);
  if (!fleet) throw refuse("enrol", nodeName, "needs a release with fleet.enabled; run it in graftlet's Pod");
  if (!fleet.listener) throw refuse("enrol", nodeName, "needs a listener; set reverse.existingSecret of the release");
  if (!fleet.mayHave(nodeName))
    throw refuse("enrol", nodeName, `use the name of a GraftedNode, such as ${fleet.nodeNames.join(", ")}`);
  const validForMs = (given("valid-for") as number | undefined) ?? defaults.validFor;
  if (validForMs <= 0 || validForMs > maxValidForMs)
    throw refuse("--valid-for", given("valid-for"), "set a duration of at most 168h");
  const address = addressOf(given("address") as string | undefined, fleet.listener.port);
  return { kind: "enrol", nodeName, fleet, address, validForMs, isApproved: given("approved") === true };
}

/** Paths of the configuration and of the certificates in graftlet's Pod. */
const [podConfiguration, podCertificates] = ["/etc/graftlet/configuration/nodes.yaml", "/var/lib/graftlet/pki"];

function addressOf(text: string | undefined, defaultPort: number): EnrolCommand["address"] {
  const [, host, port] = /^([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(?::(\d{1,5}))?$/.exec(text ?? "") ?? [];
  const number = port === undefined ? defaultPort : Number(port);
  if (host === undefined || number < 1 || number > 65_535)
    throw refuse("--address", text, "use HOST or HOST:PORT where machines reach the listener's Service");
  return { host: host.replace(/^\[|\]$/g, ""), port: number };
}
