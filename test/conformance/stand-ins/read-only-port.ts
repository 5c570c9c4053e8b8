// The kubelet's read-only port, which graftlet does not have: what the suite reads there, from the kubelet API of the same machine.
import { createServer } from "node:http";
import { request } from "node:https";

/** Statistics, metrics and health are read without a name, as the suite configures the agent. */
const far = { host: "127.0.0.1", port: 10250, rejectUnauthorized: false };

createServer((asked, answer) => {
  const { method, url: path } = asked;
  const onward = request({ ...far, method, path, agent: false }, (told) => {
    answer.writeHead(told.statusCode ?? 502, told.headers);
    told.pipe(answer);
  });
  // As on a port where nobody listens: the agent is being restarted.
  onward.on("error", () => answer.destroy());
  asked.pipe(onward);
}).listen(10255, "0.0.0.0");
