exec "$TOOLS/bin/tcp" "$HOST" 6379
