import type { Request, Response } from "express";
import { stringify } from "yaml";
import { queryOf } from "./path.ts";
import type { Handler } from "./responses.ts";

/** One diagnostic page: a text for people, and an object for programs.
 *  @see https://kubernetes.io/docs/reference/instrumentation/zpages/ */
export interface ZPage {
  readonly name: "flagz" | "statusz";
  readonly kind: "Flagz" | "Statusz";
  text(): string;
  /** Fields of the object besides kind, apiVersion and metadata. */
  fields(): Readonly<Record<string, unknown>>;
}

const group = "config.k8s.io";
/** The component's name on its pages. */
export const component = "kubelet";
/** Separators between names and values; one is chosen at random, so that no program relies on the format. */
export const separators = [":", ": ", "=", " "] as const;

/** First lines of a page's text. */
export function heading(name: ZPage["name"]): string {
  return `
${component} ${name}
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`;
}

/** Media types in the order of the kubelet's preference. */
const mediaTypes = ["application/json", "application/yaml", "text/plain"] as const;
type MediaType = (typeof mediaTypes)[number];

interface Accepted {
  readonly mediaType: MediaType;
  /** Version of the requested object. */
  readonly version?: string;
  readonly pretty: boolean;
}

/** Serves a page: as text unless the Accept header asks for its object by `as`, `g` and `v`; 406 if it accepts neither. */
export function zpage(page: ZPage): Handler {
  return (request, response) => {
    const header = request.headers.accept ?? "";
    const accepted = header.trim() === "" ? asText : negotiate(header, (params) => versionOf(page, params));
    if (accepted === undefined) return notAcceptable(request, response);
    const { mediaType, version, pretty } = accepted;
    if (version === undefined) return end(response, 200, "text/plain; charset=utf-8", page.text());
    if (version === "v1alpha1") {
      const text = `This version of the ${page.name} endpoint is deprecated. Please use a newer version.`;
      response.set("Warning", `299 - "${text}"`);
    }
    const object = {
      kind: page.kind,
      apiVersion: `${group}/${version}`,
      metadata: { name: component },
      ...page.fields(),
    };
    const type = `${mediaType};g=${group};v=${version};as=${page.kind}`;
    end(response, 200, type, serialized(object, mediaType, pretty || isForPeople(request)));
  };
}

const asText: Accepted = { mediaType: "text/plain", pretty: false };

/** The version that parameters of a media type ask for; undefined for one that the page does not have. */
function versionOf({ kind }: ZPage, params: ReadonlyMap<string, string>): string | undefined {
  const version = params.get("v");
  const known = version === "v1alpha1" || version === "v1beta1";
  return params.get("as") === kind && params.get("g") === group && known ? version : undefined;
}

/** The first acceptable clause with the first media type that it matches.
 *  @param objectOf the version of a requested object; without it, no clause may ask for an object. */
function negotiate(
  header: string,
  objectOf?: (params: ReadonlyMap<string, string>) => string | undefined,
): Accepted | undefined {
  for (const { type, params } of clausesOf(header)) {
    const asksForObject = ["as", "g", "v"].some((name) => params.has(name));
    // No stream and no version of the server's group is served.
    if (params.get("stream") || params.get("sv")) continue;
    const pretty = params.get("pretty") === "1";
    for (const mediaType of mediaTypes) {
      if (!matches(type, mediaType)) continue;
      if (!objectOf || mediaType === "text/plain") {
        if (!asksForObject) return { mediaType, pretty };
        continue;
      }
      const version = objectOf(params);
      if (version !== undefined) return { mediaType, version, pretty };
    }
  }
  return undefined;
}

function matches(type: string, mediaType: MediaType): boolean {
  return type === mediaType || type === "*/*" || type === `${mediaType.split("/", 1)[0]}/*`;
}

interface Clause {
  readonly type: string;
  readonly params: ReadonlyMap<string, string>;
}

/** The clauses of an Accept header, the preferred one first; malformed ones are left out. */
function clausesOf(header: string): readonly Clause[] {
  const clauses = header.split(",").flatMap((part) => {
    const [range = "", ...rest] = part.split(";").map((one) => one.trim());
    const type = range === "*" ? "*/*" : range;
    if (!/^[^/\s]+\/[^/\s]+$/.test(type)) return [];
    const params = new Map(
      rest.flatMap((one) => {
        const [name = "", value, more] = one.split("=").map((piece) => piece.trim());
        return value === undefined || value === "" || more !== undefined ? [] : [[name, value] as const];
      }),
    );
    const quality = Number(params.get("q") ?? 1);
    params.delete("q");
    return [{ type, params, quality: Number.isNaN(quality) ? 0 : quality }];
  });
  const stars = ({ type }: Clause) => type.split("*").length;
  return clauses.toSorted((one, other) => other.quality - one.quality || stars(one) - stars(other));
}

/** Responds 406 with a Status, in the client's media type if there is one for it. */
function notAcceptable(request: Request, response: Response): void {
  const status = {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message: `only the following media types are accepted: ${mediaTypes.join(", ")}`,
    reason: "NotAcceptable",
    code: 406,
  };
  const accepted = negotiate(request.headers.accept ?? "");
  if (!accepted) return end(response, 406, "application/json", JSON.stringify(status, null, 2));
  const { mediaType, pretty } = accepted;
  end(response, 406, mediaType, serialized(status, mediaType, pretty || isForPeople(request)));
}

function serialized(object: object, mediaType: MediaType, pretty: boolean): string {
  if (mediaType === "application/yaml") return stringify(object, { sortMapEntries: true });
  return pretty ? JSON.stringify(object, null, 2) : `${JSON.stringify(object)}\n`;
}

/** True for a client that displays the response to a person. */
function isForPeople(request: Request): boolean {
  const pretty = queryOf(request.originalUrl).get("pretty");
  if (pretty) return /^(1|t|T|TRUE|true|True)$/.test(pretty);
  return /^(curl|Wget|Mozilla\/5\.0)/.test(request.headers["user-agent"] ?? "");
}

function end(response: Response, status: number, type: string, text: string): void {
  // Not express's `type` or `set`, which would add a character set.
  response.status(status).setHeader("Content-Type", type);
  response.end(text);
}
