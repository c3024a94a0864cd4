exec node "$TOOLS/clients/node.mjs"
