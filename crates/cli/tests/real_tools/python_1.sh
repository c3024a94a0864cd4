step 0 /usr/bin/python3 -m venv venv
step 0 venv/bin/python -m pip --version
step 0 venv/bin/python -c 'import sys; print(sys.prefix, sys.executable, sys.base_prefix)'
step 0 venv/bin/python -m unittest -v
line 0 'ls __pycache__ | sort'
step 1 venv/bin/python -m unittest no_such_test
line 1 'venv/bin/python -c "import no_such_module"'
step 1 venv/bin/python -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:1/")'
step 1 venv/bin/python -m pip install --no-index --quiet --disable-pip-version-check no-such-package
step 0 venv/bin/python -c 'import os; print(sorted(os.environ))'
step 0 venv/bin/python -c 'import socket; print(socket.if_nameindex(), socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM))'
step 0 note_dates
