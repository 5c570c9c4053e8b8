/** Syntax of Kubernetes names, label keys and label values.
 *  @see https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ @see
 *  https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set */

const dnsLabel = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const subdomainShape = new RegExp(`^${dnsLabel}(\\.${dnsLabel})*$`);
const labelShape = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

/** True if the text is a valid Node name: an RFC 1123 subdomain of at most 253 characters. */
export function isSubdomain(text: string): boolean {
  return text.length <= 253 && subdomainShape.test(text);
}

/** True if the text is a label or taint key: up to 63 characters, with an optional DNS prefix before a slash. */
export function isQualifiedName(text: string): boolean {
  const parts = text.split("/");
  const name = parts.at(-1) ?? "";
  if (parts.length > 2 || (parts.length === 2 && !isSubdomain(parts[0] ?? ""))) return false;
  return name.length <= 63 && labelShape.test(name);
}

/** True if the text is a label value: empty, or up to 63 characters. */
export function isLabelValue(text: string): boolean {
  return text === "" || (text.length <= 63 && labelShape.test(text));
}

const ownLabels = new Set([
  "kubernetes.io/hostname",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
  "failure-domain.beta.kubernetes.io/zone",
  "failure-domain.beta.kubernetes.io/region",
  "beta.kubernetes.io/instance-type",
  "node.kubernetes.io/instance-type",
  "kubernetes.io/os",
  "kubernetes.io/arch",
  "beta.kubernetes.io/os",
  "beta.kubernetes.io/arch",
]);
const ownNamespaces = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/** True if a node may set this label on itself: any outside Kubernetes' own domains, and a few inside.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction */
export function isNodeLabel(key: string): boolean {
  const slash = key.indexOf("/");
  const domain = slash < 0 ? "" : key.slice(0, slash);
  if (!/(^|\.)(kubernetes|k8s)\.io$/.test(domain) || ownLabels.has(key)) return true;
  return ownNamespaces.some((namespace) => domain === namespace || domain.endsWith(`.${namespace}`));
}

const setByTheNode = /^((beta\.)?kubernetes\.io\/(os|arch)|kubernetes\.io\/hostname)$/;

/** True for a label that every node sets on itself. @see https://kubernetes.io/docs/reference/node/node-labels/ */
export function isOwnLabel(key: string): boolean {
  return setByTheNode.test(key);
}

/** The candidate with the smallest edit distance to the word; undefined if more than a third of the word differs. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let minDistance = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < minDistance) [best, minDistance] = [candidate, distance];
  }
  return best;
}

/** Number of insertions, deletions, replacements and swaps of adjacent characters that turn one word into the other.
 *  @see https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance (optimal string alignment) */
function editDistance(from: string, to: string): number {
  const start = Array.from({ length: to.length + 1 }, (_, index) => index);
  const rows = [start];
  for (let i = 1; i <= from.length; i += 1) {
    const above = rows[i - 1] ?? start;
    const row = [i];
    for (let j = 1; j <= to.length; j += 1) {
      const replaced = (above[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      const swapped =
        i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]
          ? (rows[i - 2]?.[j - 2] ?? 0) + 1
          : Infinity;
      row.push(Math.min(replaced, swapped, (above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
    rows.push(row);
  }
  return rows[from.length]?.[to.length] ?? 0;
}
