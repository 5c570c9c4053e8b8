import type { ConditionView, NodeView, PodView } from "../messages.ts";
import { make } from "./dom.ts";
import { age, bytes, count } from "./format.ts";
import type { Model, Scope } from "./model.ts";

/** Draws the heading of the selection: name, facts and conditions. */
export function drawScope(into: HTMLElement, model: Model, scope: Scope, choose: (scope: Scope) => void): void {
  const node = scope.node === undefined ? undefined : model.shown.get(scope.node);
  const pod = node && (model.pods.get(node.name) ?? []).find(({ uid }) => uid === scope.pod);
  const parts = pod && node ? podHead(pod, node, model, choose) : node ? nodeHead(node, model) : allHead(model);
  into.replaceChildren(...parts);
}

function allHead(model: Model): readonly Node[] {
  const troubled = [...model.shown.values()].filter(
    ({ name, state }) => model.nodes.includes(name) && state !== "Ready",
  );
  return [
    make("h2", { text: "All nodes" }),
    ...troubled.map(({ name, why, state }) => make("p", { class: "trouble", text: `${name}: ${why || state}` })),
  ];
}

function nodeHead(node: NodeView, model: Model): readonly Node[] {
  const image = model.usage.get(node.name)?.imageDisk;
  const facts = [
    node.address,
    node.version && `kubelet ${node.version}`,
    node.os,
    node.cpus > 0 ? `${count(node.cpus, "CPU")}, ${bytes(node.memory)}` : "",
    node.images > 0 ? `${count(node.images, "image")}, ${bytes(node.imageBytes)}` : "",
    image ? `image disk ${bytes(image.used)} of ${bytes(image.capacity)}` : "",
  ];
  return [
    make("h2", { text: node.name }),
    make("p", { class: "faint", text: facts.filter(Boolean).join(" · ") }),
    make("p", { class: "chips" }, node.conditions.map(chip)),
    ...(node.why ? [make("p", { class: "trouble", text: node.why })] : []),
  ];
}

function chip({ type, status, reason, message, bad }: ConditionView): Node {
  return make("span", {
    class: bad ? "pill bad" : "pill",
    text: bad ? `${type}: ${reason || status}` : `${type} ${status}`,
    title: message,
  });
}

function podHead(pod: PodView, node: NodeView, model: Model, choose: (scope: Scope) => void): readonly Node[] {
  const back = make("button", { class: "link", text: `‹ ${node.name}` });
  back.addEventListener("click", () => choose({ node: node.name }));
  const facts = [
    `${pod.ready} of ${pod.of} containers ready`,
    count(pod.restarts, "restart"),
    pod.since > 0 ? `since ${age(model.now - pod.since)}` : "",
  ];
  return [
    back,
    make("h2", { text: `${pod.namespace} / ${pod.name}` }, [
      make("span", { class: pod.bad ? "pill bad" : "pill", text: pod.status }),
    ]),
    make("p", { class: "faint", text: facts.filter(Boolean).join(" · ") }),
  ];
}
