#!/bin/sh
# Three regions on this machine: a Redis server and two nodes each. Ctrl-C stops all of them.
#
#   examples/regions/run.sh
#
# TIDEGATE   the program [default: tidegate]
# PORT       first port of the nodes, or 0 for free ports [default: 8100]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tidegate=${TIDEGATE:-tidegate}
port=${PORT:-8100}
regions="eu us ap"
work=$(mktemp -d)
processes=

stop() {
  trap - EXIT INT TERM
  # The nodes return what they borrowed before the servers stop.
  for process in $processes; do kill "$process" 2>/dev/null && wait "$process" || true; done
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 0' INT TERM

for region in $regions; do
  redis-server --port 0 --unixsocket "$work/$region.sock" --dir "$work" --save '' \
    --maxmemory 64mb --maxmemory-policy noeviction --logfile "$work/$region-redis" &
  servers="${servers:-} $!"
  echo "$region redis process $!"
done
processes=$servers
for region in $regions; do
  until [ -S "$work/$region.sock" ]; do sleep 0.05; done
done

# The same secret in all regions: otherwise they do not lend to each other.
head -c 32 /dev/urandom | base64 > "$work/secret"

next_port() {
  [ "$port" = 0 ] || port=$((port + 1))
}

for region in $regions; do
  stores=
  for other in $regions; do
    [ "$other" = "$region" ] || stores="$stores --region-store $other=unix://$work/$other.sock"
  done
  for number in 1 2; do
    next_port; http=$port
    next_port; admin=$port
    # shellcheck disable=SC2086
    "$tidegate" serve --config "$here/rules.yaml" --region "$region" \
      --store "unix://$work/$region.sock" $stores --key-secret-file "$work/secret" \
      --http "127.0.0.1:$http" --admin "127.0.0.1:$admin" --grpc off --resp off \
      --log-level warn > "$work/$region-$number" &
    processes="$! $processes"
  done
done

for region in $regions; do
  for number in 1 2; do
    until grep -q '^listening admin' "$work/$region-$number" 2>/dev/null; do sleep 0.05; done
    sed "s/^/$region-$number /" "$work/$region-$number"
  done
done
echo "ready; Ctrl-C stops all of them"
wait
