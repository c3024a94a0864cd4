"""Writes static indexes: pip (a wheel and a source archive), npm, cargo. HOST_OF_REQUEST is filled in by the server."""

import base64
import hashlib
import io
import json
import os
import sys
import tarfile
import zipfile

WWW = sys.argv[1]
HOST = "https://HOST_OF_REQUEST"

# A build backend of its own, so that building the source archive needs nothing but what it holds.
BACKEND = '''
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "demo_source-1.0-py3-none-any.whl"
    info = "demo_source-1.0.dist-info/"
    files = {
        "demo_source.py": open("demo_source.py").read(),
        info + "METADATA": "Metadata-Version: 2.1\\nName: demo-source\\nVersion: 1.0\\n",
        info + "WHEEL": "Wheel-Version: 1.0\\nGenerator: demo\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[info + "RECORD"] = "".join(file + ",,\\n" for file in [*files, info + "RECORD"])
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
'''


def write(path, content):
    path = os.path.join(WWW, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def tar_gz(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def pip():
    wheel = io.BytesIO()
    info = "demo_wheel-1.0.dist-info/"
    files = {
        "demo_wheel.py": "answer = 42\n",
        info + "METADATA": "Metadata-Version: 2.1\nName: demo-wheel\nVersion: 1.0\nRequires-Dist: demo-source\n",
        info + "WHEEL": "Wheel-Version: 1.0\nGenerator: demo\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[info + "RECORD"] = "".join(f"{name},,\n" for name in [*files, info + "RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    source = tar_gz({
        "demo_source-1.0/PKG-INFO": "Metadata-Version: 2.1\nName: demo-source\nVersion: 1.0\n",
        "demo_source-1.0/pyproject.toml":
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "demo_source-1.0/backend.py": BACKEND,
        "demo_source-1.0/demo_source.py": "answer = 43\n",
    })
    for project, name, content in [
        ("demo-wheel", "demo_wheel-1.0-py3-none-any.whl", wheel.getvalue()),
        ("demo-source", "demo_source-1.0.tar.gz", source),
    ]:
        digest = hashlib.sha256(content).hexdigest()
        write(f"pip/files/{name}", content)
        write(f"pip/simple/{project}/index.html", f'<a href="../../files/{name}#sha256={digest}">{name}</a>\n')


def npm():
    package = {"name": "demo", "version": "1.0.0", "main": "index.js"}
    content = tar_gz({"package/package.json": json.dumps(package), "package/index.js": "module.exports = 42;\n"})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    tarball = f"{HOST}/npm-files/demo-1.0.0.tgz"
    dist = {"tarball": tarball, "integrity": integrity, "shasum": hashlib.sha1(content).hexdigest()}
    write("npm-files/demo-1.0.0.tgz", content)
    write("npm/demo", json.dumps(
        {"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": dist}}}))
    write("npm-lock", json.dumps({"name": "app", "version": "1.0.0", "lockfileVersion": 3, "packages": {
        "": {"name": "app", "version": "1.0.0", "dependencies": {"demo": "^1.0.0"}},
        "node_modules/demo": {"version": "1.0.0", "resolved": tarball, "integrity": integrity}}}))


def cargo():
    content = tar_gz({
        "demo-1.0.0/Cargo.toml": '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2021"\n',
        "demo-1.0.0/src/lib.rs": "pub const ANSWER: u32 = 42;\n",
    })
    entry = {"name": "demo", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(content).hexdigest(),
             "features": {}, "yanked": False}
    write("cargo/config.json", json.dumps({"dl": f"{HOST}/crates/{{crate}}-{{version}}.crate"}))
    write("cargo/de/mo/demo", json.dumps(entry) + "\n")
    write("crates/demo-1.0.0.crate", content)


pip()
npm()
cargo()
