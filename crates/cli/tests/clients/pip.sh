# A wheel, and a source archive that it needs and that is built here.
set -e
"$TOOLS/venv/bin/pip" install -q --retries 0 --no-cache-dir --disable-pip-version-check --target site \
    --index-url "https://$HOST/pip/simple/" demo-wheel
PYTHONPATH=site "$TOOLS/venv/bin/python" -c 'import demo_wheel, demo_source; print(demo_wheel.answer, demo_source.answer)'
