import type { Request, Response } from "express";
import { sendJson } from "../answer.ts";

/** /configz: the effective configuration. Headers for fetching static pods may contain credentials: only their names are shown.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ */
export function configz(configuration: () => object): (request: Request, response: Response) => void {
  return (_request, response) => {
    const shown: Record<string, unknown> = { ...configuration() };
    const headers = shown["staticPodURLHeader"];
    if (typeof headers === "object" && headers !== null) {
      shown["staticPodURLHeader"] = Object.fromEntries(Object.keys(headers).map((name) => [name, ["<masked>"]]));
    }
    sendJson(response, { kubeletconfig: shown });
  };
}
