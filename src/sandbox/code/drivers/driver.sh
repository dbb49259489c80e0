# Runs cells of bash for run_code (docs/run-code.md): an interactive shell without a terminal whose standard input is the
# channel, so that it reads our requests as its commands: only such a shell comes back to its prompt after an interrupt
# with everything it knows. It gets this text in its environment and evaluates it at its first prompt. What happens at
# later prompts tells how the cell ended, on descriptor 250, which programs do not get.
# shellcheck shell=bash
exec 250>&0
set +o history +H
PS1= PS2= PS4='+ '
__sandbar_state=idle
declare -A __sandbar_seen
trap 'builtin exit 143' TERM

# A cell begins, in the directory that is named, if one is. The request is one line that calls this and then evaluates.
__sandbar_begin() {
  __sandbar_home= __sandbar_status=
  trap - INT
  __sandbar_since=$EPOCHREALTIME
  __sandbar_ticks __sandbar_cpu
  __sandbar_state=running
  if [ -n "$1" ]; then
    __sandbar_home=$PWD
    cd -- "$1" || return
  fi
  __sandbar_top=$PWD
  trap __sandbar_failed ERR
  set -E
  printf '{"type":"begun"}\n' >&250
}

# User, system and children's time in ticks, into the variable that is named: a subshell would cost a millisecond.
__sandbar_ticks() {
  local stat fields
  IFS= read -r stat 2>/dev/null </proc/$$/stat || return
  IFS=' ' read -ra fields <<<"${stat##*) }"
  printf -v "$1" %d $((fields[11] + fields[12] + fields[13] + fields[14]))
}

# Ends the cell, not the shell; in a subshell it is the real one.
exit() {
  [ "$BASHPID" = "$$" ] || builtin exit "$@"
  __sandbar_status=${1:-$?}
  kill -INT $$
}

# `set -e` ends the cell as well.
__sandbar_failed() {
  local status=$?
  case $- in *e*) [ "$__sandbar_state" = running ] && exit "$status" ;; esac
  return "$status"
}

__sandbar_prompt() {
  local status=$?
  [ "$__sandbar_state" = running ] || return
  trap '' INT # from here on an interrupt is too late; before, it leads here again
  set +eEux
  trap - ERR
  __sandbar_state=idle
  __sandbar_end "${__sandbar_status:-$status}" ''
}

# Told before the shell is gone: `exec` of nothing, a signal, end of input.
trap '[ "$__sandbar_state" != running ] || { __sandbar_state=idle; __sandbar_end "$?" ",\"leaving\":true"; }' EXIT

__sandbar_end() {
  local status=$1 name=ExitStatus text="exit status $1" rss=0 line more=false now
  local LC_ALL=C
  if [ "$status" -eq 130 ] && [ -z "$__sandbar_status" ]; then name=KeyboardInterrupt text=interrupted; fi
  [ "$status" -eq 0 ] ||
    printf '{"type":"error","name":"%s","value":"%s","traceback":""}\n' "$name" "$text" >&250
  __sandbar_artifacts || more=true
  __sandbar_ticks now
  while read -r name line; do [ "$name" = VmHWM: ] && rss=$((${line% kB} * 1024)); done 2>/dev/null </proc/$$/status
  [ -z "$__sandbar_home" ] || cd -- "$__sandbar_home"
  name=ok
  [ "$status" -eq 0 ] || name=error
  printf '{"type":"end","status":"%s","exitCode":%d,"cpuMs":%d,"maxRssBytes":%d,"artifactsTruncated":%s%s}\n' \
    "$name" "$status" $(((${now:-0} - ${__sandbar_cpu:-0}) * 10)) "$rss" "$more" "$2" >&250
}

# Files below the cell's directory that were made or changed; false when there are more than are told.
__sandbar_artifacts() {
  local size stamp path found=0 hashed=0 sha line
  type -P find timeout sha256sum >/dev/null || return 0
  # File times come from a clock that may be some milliseconds behind.
  local since=$((${__sandbar_since/./} - 10000))
  since=${since:0:-6}.${since: -6}
  while IFS=' ' read -r -d '' size stamp path; do
    [ -n "$path" ] || return 1
    [ "${__sandbar_seen[$path]}" != "$size $stamp" ] || continue
    [[ $path != *[[:cntrl:]]* ]] || continue
    [ $((found += 1)) -le 200 ] || return 1
    [ "${#__sandbar_seen[@]}" -lt 800 ] || __sandbar_seen=()
    __sandbar_seen[$path]="$size $stamp"
    sha=
    if [ $((hashed + size)) -le $((64 << 20)) ]; then
      hashed=$((hashed + size))
      line=$(sha256sum 2>/dev/null <"$path")
      [ -z "$line" ] || sha=",\"sha256\":\"${line:0:64}\""
    fi
    path=${path//\\/\\\\}
    printf '{"type":"artifact","path":"%s","size":%d%s}\n' "${path//\"/\\\"}" "$size" "$sha" >&250
    # Where it may not write, it did not: images hold many files.
  done < <(timeout 3 find "$__sandbar_top" -xdev \
    \( -type d ! -writable ! -path "$__sandbar_top" -o -name node_modules -o -name .git -o -name __pycache__ -o -name .venv -o -name .cache \) -prune \
    -o -type f -newerct "@$since" -printf '%s %C@ %p\0' 2>/dev/null || printf '0 0 \0')
  return 0
}

# Last: an interrupt before this has it all evaluated again.
PROMPT_COMMAND=__sandbar_prompt
export -n PS1 PROMPT_COMMAND
unset HISTFILE __sandbar_driver
