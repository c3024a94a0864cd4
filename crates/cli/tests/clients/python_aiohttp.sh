exec "$TOOLS/venv/bin/python" "$TOOLS/clients/python.py" aiohttp
