# shellcheck shell=sh disable=SC2034,SC2086
# Sets gl_group to the shell's process group and gl_start to the start time of the group's first process, in ticks since boot; 0 if
# /proc does not show it. With sudo that process is sudo.
gl_group_in() { gl_group=$3; }
gl_start_in() { shift 19; gl_start=$1; }
gl_group=$$; gl_start=0
if read -r gl_s </proc/$$/stat; then gl_group_in ${gl_s##*) }; fi 2>/dev/null
if read -r gl_s </proc/$gl_group/stat; then gl_start_in ${gl_s##*) }; fi 2>/dev/null
