import { type ApiClient, createApiClient } from "../api/client.ts";
import type { AccessFile } from "../api/kubeconfig.ts";
import type { Clock } from "../lib/clock.ts";
import { silentLog } from "../lib/log.ts";
import { graftletVersion } from "../version.ts";

const requests = { qps: 50, burst: 100 };

/** Opens a command's client of the API server. It logs nothing: a command reports failures itself. */
export function openClient(access: AccessFile, clock: Clock): ApiClient & AsyncDisposable {
  return createApiClient({ access, clock, log: silentLog(), userAgent: `graftlet/${graftletVersion}`, ...requests });
}
