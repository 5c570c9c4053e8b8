# shellcheck shell=sh
# Sets $parent and $started, the parent of a process and when it was started; fails if there is no such process.
look_up() {
  read -r stat 2>/dev/null <"/proc/$1/stat" || return
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  parent=$2
  shift 19
  started=$1
}

# Prints the addresses of the SSH connection that a process was started over, if any.
connection_of() { { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^SSH_CONNECTION=//p'; } 2>/dev/null; }

# Prints which process serves this SSH connection, when it was started, and the boot: the parent of the first one that was started over the
# connection. Prints nothing if there is no SSH connection.
serving_process() {
  at=$$ connection=$(connection_of $$)
  while look_up "$at" && [ "$parent" -gt 1 ]; do
    at=$parent
    above=$(connection_of "$at")
    if [ -n "$connection" ] && [ "$above" != "$connection" ]; then
      read -r boot </proc/sys/kernel/random/boot_id
      look_up "$at" && echo "$at $started $boot"
      return
    fi
    connection=$above
  done
}
