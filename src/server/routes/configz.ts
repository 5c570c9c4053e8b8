import type { Request, Response } from "express";
import { sendJson } from "../responses.ts";

/** /configz: the effective configuration, whole, as the kubelet shows it.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ */
export function configz(configuration: () => object): (request: Request, response: Response) => void {
  return (_request, response) => sendJson(response, { kubeletconfig: configuration() });
}
