/** Files of test/contract that take longer than the others, seconds. */
export const slowContracts: Readonly<Record<string, number>> = {
  "host-ssh-trouble": 145,
  "runtime-cri": 50,
  "runtime-docker": 45,
  "docker-sandboxes": 45,
  "way-load": 50,
  relay: 50,
  release: 60,
  "hostile-ssh": 60,
  "hostile-way": 55,
  "http-client": 45,
  "host-ssh-link": 55,
  "bind-part": 50,
  "host-ssh-reverse": 45,
  "runtime-docker-ssh": 50,
  "hostile-cri": 40,
};
