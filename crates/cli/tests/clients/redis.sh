set -e
redis-cli -e -h "$HOST" ping
redis-cli -e -h "$HOST" set "$RUN" 'the value'
redis-cli -e -h "$HOST" get "$RUN"
redis-cli -e -h "$HOST" del "$RUN"
seq 1000 | sed "s/.*/incr n-$RUN/" | redis-cli -e -h "$HOST" | tail -n 1
redis-cli -e -h "$HOST" del "n-$RUN"
