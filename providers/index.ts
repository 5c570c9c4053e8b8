import type { ProviderFactory } from "../src/seams/provider.ts";
import { criProvider } from "./cri/provider.ts";
import { dockerProvider } from "./docker/provider.ts";

/** Every provider that comes with graftlet, by the name that `--provider` and GraftletConfiguration take. */
export const providers: Readonly<Record<string, ProviderFactory>> = {
  cri: criProvider,
  docker: dockerProvider,
};
