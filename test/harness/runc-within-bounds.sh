#!/bin/sh
# The runc of a Docker Engine on a machine without CAP_SYS_RESOURCE: the next one on the PATH, asked for no capability that the machine
# does not have. containerd's CRI does the same by itself; Docker asks for all where a container is privileged, and runc refuses.
previous=
for word in "$@"; do
  case $previous in
    --bundle | -b) file=$word/config.json ;;
    --process | -p) file=$word ;;
    *) file= ;;
  esac
  previous=$word
  if [ -f "$file" ]; then sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$file"; fi
done
PATH=${PATH#*:} exec runc "$@"
