const host =
  /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?$/;
const pathComponent = /^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*$/;
const validTag = /^\w[\w.-]{0,127}$/;
const validDigest = /^[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}$/;
const digestLengths: Readonly<Record<string, number>> = { sha256: 64, sha384: 96, sha512: 128 };
const maxRepository = 255;
/** Length of a DNS name and a port; checked before the regular expression runs. */
const maxDomain = 253 + 6;

/** Parses an image reference like `docker pull`: the repository is fully qualified (`docker.io/library/busybox`), and the tag is `latest`
 *  if there is neither tag nor digest.
 *  @throws Error `couldn't parse image name "…": …`.
 *  @see https://github.com/distribution/reference */
export function parseImageName(image: string) {
  const parseError = (why: string) => new Error(`couldn't parse image name ${JSON.stringify(image)}: ${why}`);
  if (/^[a-f0-9]{64}$/.test(image))
    throw parseError(`invalid repository name (${image}), cannot specify 64-byte hexadecimal strings`);
  const [named = "", digest = "", ...rest] = image.split("@");
  const { name, tag } = splitTag(named);
  const [domain, path] = splitDomain(name);
  if (path !== path.toLowerCase())
    throw parseError(`invalid reference format: repository name (${path}) must be lowercase`);
  const wellFormed =
    rest.length === 0 &&
    domain.length <= maxDomain &&
    host.test(domain) &&
    path.split("/").every((part) => pathComponent.test(part));
  if (!wellFormed || (tag !== undefined && !validTag.test(tag))) throw parseError("invalid reference format");
  if (image.includes("@")) checkDigest(digest, parseError);
  const repository = `${domain}/${path}`;
  if (path.length > maxRepository)
    throw parseError(`repository name must not be more than ${maxRepository} characters`);
  return { repository, tag: tag ?? (digest ? "" : "latest"), digest };
}

/** Appends `:latest` if there is neither tag nor digest; the registry stays as written.
 *  @throws Error as parseImageName. */
export function withDefaultTag(image: string): string {
  const { tag, digest } = parseImageName(image);
  return digest || image.endsWith(`:${tag}`) ? image : `${image}:${tag}`;
}

/** The fully qualified name, as runtimes list it; a tag is dropped if there is a digest. @throws Error as parseImageName. */
export function canonicalImageName(image: string): string {
  const { repository, tag, digest } = parseImageName(image);
  return digest ? `${repository}@${digest}` : `${repository}:${tag}`;
}

/** An image name as written, without tag and digest. */
export function bareName(image: string): string {
  return image.replace(/@[^@]*$/, "").replace(/:[^/:]*$/, "");
}

/** The API server's default: an image tagged `latest`, or not at all, may change under its name.
 *  @see https://kubernetes.io/docs/concepts/containers/images/#imagepullpolicy-defaulting */
export function defaultPullPolicy(image: string): "Always" | "IfNotPresent" {
  const { tag, digest } = parseImageName(image);
  return tag === "latest" && !digest ? "Always" : "IfNotPresent";
}

/** A colon after the last slash starts a tag; one before it, a registry's port. */
function splitTag(named: string): { name: string; tag: string | undefined } {
  const colon = named.indexOf(":", named.lastIndexOf("/") + 1);
  return colon < 0 ? { name: named, tag: undefined } : { name: named.slice(0, colon), tag: named.slice(colon + 1) };
}

function splitDomain(name: string): [domain: string, path: string] {
  const slash = name.indexOf("/");
  const first = slash < 0 ? "" : name.slice(0, slash);
  const isDomain = first === "localhost" || /[.:]/.test(first) || first !== first.toLowerCase();
  const domain = !isDomain || first === "index.docker.io" ? "docker.io" : first;
  const path = isDomain ? name.slice(slash + 1) : name;
  return [domain, domain === "docker.io" && !path.includes("/") ? `library/${path}` : path];
}

function checkDigest(digest: string, refuse: (why: string) => Error): void {
  if (!validDigest.test(digest)) throw refuse("invalid reference format");
  const [algorithm = "", hex = ""] = digest.split(":");
  const length = digestLengths[algorithm];
  if (length === undefined) throw refuse("unsupported digest algorithm");
  if (hex.length !== length) throw refuse("invalid checksum digest length");
  if (hex !== hex.toLowerCase()) throw refuse("invalid checksum digest format");
}
