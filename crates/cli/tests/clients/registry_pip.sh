set -e
pip install -q --no-cache-dir --target site six==1.16.0
PYTHONPATH=site python -c 'import six; print(six.__version__)'
