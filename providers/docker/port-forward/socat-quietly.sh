# shellcheck shell=sh
# socat keeps writing to standard error, so a pipe passes its messages on only until socat is connected. The shell must not keep
# file descriptors open that socat closes.
trap "" PIPE
exec 3<&0 4>&1
"$@" <&3 2>&1 >&4 3<&- 4>&- | {
  exec 3<&- 4>&-
  while IFS= read -r line; do
    echo "$line" >&2
    case $line in *"starting data transfer loop"*) exit ;; esac
  done
} &
exec 0<&- 1>&- 2>&- 3<&- 4>&-
wait
