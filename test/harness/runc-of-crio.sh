#!/bin/sh
# The runc of CRI-O on a machine without CAP_SYS_RESOURCE, which may not lower the oom_score_adj of a process. containerd's CRI
# (restrict_oom_score_adj) raises what it is asked for to its own value by itself; CRI-O does not, and runc refuses. Nor does CRI-O tolerate
# that there is no controller of huge pages (tolerate_missing_hugetlb_controller).
own=$(cat /proc/self/oom_score_adj)
previous=
for word in "$@"; do
  case $previous in
    --bundle | -b) file=$word/config.json ;;
    --process | -p) file=$word ;;
    *) file= ;;
  esac
  previous=$word
  if [ -f "$file" ]; then
    sed -i -E "s/\"oomScoreAdj\": *-[0-9]+/\"oomScoreAdj\": $own/" "$file"
    [ -e /sys/fs/cgroup/hugetlb ] || sed -z -i -E 's/,[[:space:]]*"hugepageLimits":[[:space:]]*\[[^]]*\]//' "$file"
  fi
done
exec /usr/sbin/runc "$@"
