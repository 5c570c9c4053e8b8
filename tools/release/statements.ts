import type { Sbom } from "./sbom.ts";
import { repository, type Source } from "./source.ts";

/** A thing that a statement is of. */
export interface Subject {
  readonly name: string;
  /** SHA-256, hexadecimal. */
  readonly sha256: string;
}

/** What somebody states of things. @see https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md */
export interface Statement {
  readonly _type: "https://in-toto.io/Statement/v1";
  readonly subject: readonly { readonly name: string; readonly digest: { readonly sha256: string } }[];
  readonly predicateType: string;
  readonly predicate: object;
}

/** Where the things were made of what. Pure.
 *  @param builder an address that names who built them. @see https://slsa.dev/spec/v1.0/provenance */
export function provenanceOf(subjects: readonly Subject[], source: Source, builder: string): Statement {
  const commit = { uri: `git+${repository}`, digest: { gitCommit: source.revision } };
  return statementOf(subjects, "https://slsa.dev/provenance/v1", {
    buildDefinition: {
      buildType: `${repository}/blob/main/docs/releasing.md`,
      externalParameters: { version: source.version },
      resolvedDependencies: [commit],
    },
    runDetails: { builder: { id: builder } },
  });
}

/** What things are made of. Pure. */
export function sbomStatement(subjects: readonly Subject[], sbom: Sbom): Statement {
  return statementOf(subjects, "https://spdx.dev/Document", sbom);
}

function statementOf(subjects: readonly Subject[], predicateType: string, predicate: object): Statement {
  const subject = subjects.map(({ name, sha256 }) => ({ name, digest: { sha256 } }));
  return { _type: "https://in-toto.io/Statement/v1", subject, predicateType, predicate };
}
