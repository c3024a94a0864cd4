# Makes what the servers of the world serve and what the clients need. Runs outside of it, with the network of the
# machine, as whoever runs the tests. Arguments: the world's folder.
set -euo pipefail
umask 022
world=$1
here=$(dirname "${BASH_SOURCE[0]}")
tools=$world/tools srv=$world/srv
mkdir -p "$tools/bin" "$tools/java" "$tools/ssh" "$srv"/{www,git,pg,redis,ssh,run,log,tls,tmp}
# Programs of a user's own PATH may lie in a home that other uids cannot read.
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
names=(allowed.test a.allowed.test other.test private.test mixed.test v4.test v6.test)

say() { echo "world: $SECONDS s: $*"; }

say "certificates"
san=$(printf 'DNS:%s,' "${names[@]}")
(
    cd "$srv/tls"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj '/CN=Test authority' \
        -addext 'keyUsage=critical,keyCertSign,cRLSign' -keyout ca.key -out ca.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=allowed.test' -keyout key.pem -out csr
    openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out cert.pem \
        -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n' "${san%,}")
    rm ca.key
    chmod 600 key.pem
) 2>/dev/null
cp "$srv/tls/ca.pem" "$tools/ca.pem"
keytool -importcert -noprompt -alias test -file "$tools/ca.pem" -keystore "$tools/ca.p12" -storetype PKCS12 \
    -storepass changeit 2>/dev/null

say "ssh keys"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$srv/ssh/host"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$tools/ssh/key"
chmod 644 "$tools/ssh/key" # The clients copy it; it opens a server that lives as long as this test.
cp "$tools/ssh/key.pub" "$srv/ssh/authorized"
for name in "${names[@]}"; do echo "$name $(cut -d' ' -f1,2 "$srv/ssh/host.pub")"; done > "$tools/ssh/known_hosts"

say "files and a repository"
printf '0123456789 the same inside and outside\n' > "$srv/www/file.txt"
head -c 3000000 /dev/zero | openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv 00112233445566778899aabbccddeeff -nosalt > "$srv/www/large.bin"
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.com GIT_AUTHOR_DATE='2026-01-02T03:04:05Z'
export GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.com GIT_COMMITTER_DATE='2026-01-02T03:04:05Z'
git init -q -b main "$srv/tmp/project"
cp "$srv/www/large.bin" "$srv/tmp/project/blob"
echo first > "$srv/tmp/project/readme"
git -C "$srv/tmp/project" add .
git -C "$srv/tmp/project" commit -q -m First
git clone -q --bare "$srv/tmp/project" "$srv/git/project.git"
git -C "$srv/git/project.git" config http.receivepack true

say "indexes of pip, npm, cargo and apt"
python3 "$here/packages.py" "$srv/www"
(
    mkdir -p "$srv/tmp/deb/DEBIAN" "$srv/tmp/deb/usr/share/demo" "$srv/www/apt"
    cd "$srv/tmp"
    printf 'Package: demo\nVersion: 1.0\nArchitecture: all\nMaintainer: Ada <ada@example.com>\nDescription: A test\n' \
        > deb/DEBIAN/control
    echo 42 > deb/usr/share/demo/answer
    dpkg-deb --root-owner-group -b deb "$srv/www/apt/demo_1.0_all.deb" > /dev/null
    cd "$srv/www/apt"
    {
        cat "$srv/tmp/deb/DEBIAN/control"
        printf 'Filename: ./demo_1.0_all.deb\nSize: %s\nSHA256: %s\n' "$(stat -c %s demo_1.0_all.deb)" \
            "$(sha256sum < demo_1.0_all.deb | cut -d' ' -f1)"
    } > Packages
    printf 'Origin: test\nLabel: test\nSuite: test\nDate: %s\nSHA256:\n %s %s Packages\n' "$(date -Ru)" \
        "$(sha256sum < Packages | cut -d' ' -f1)" "$(stat -c %s Packages)" > Release
)

say "programs: a static client, a Java class, Python with requests, httpx and aiohttp"
gcc -O1 -static -Wall -Werror -o "$tools/bin/tcp" "$here/tcp.c" 2> "$srv/tmp/gcc" || { cat "$srv/tmp/gcc"; exit 1; }
javac -d "$tools/java" "$here/Fetch.java"
/usr/bin/python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: requests httpx aiohttp
