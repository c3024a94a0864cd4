# PID 1 of the world, root of its namespaces: makes the clients' network and /etc, starts the servers in a network of
# their own, says "ready", and ends with everything in it when its input does.
#
#  clients' network 192.0.2.1 ──veth── 192.0.2.2 servers' network: public-looking addresses on lo
#
# Two networks, since a sandbox may not reach its host's own addresses. Neither has a way out.
# Arguments: the world's folder, and the words that turn root of the namespaces into the servers' user.
# CLIENT_UID and SERVER_UID are the numbers of the two users.
set -euo pipefail
umask 022
world=$1
shift
become=("$@")
here=$(dirname "${BASH_SOURCE[0]}")
srv=$world/srv

# The clients' own /etc: the names' server, the authority of the servers' certificates, names for the users.
mkdir "$world/etc"
mount -t tmpfs -o mode=755 etc "$world/etc"
# An ordinary user cannot read a few files; no client needs them.
cp -a /etc/. "$world/etc/" 2>/dev/null || true
etc=$world/etc
rm -f "$etc"/{resolv.conf,nsswitch.conf,hosts,passwd,group} "$etc/ssl/certs/ca-certificates.crt"
echo 'nameserver 192.0.2.2' > "$etc/resolv.conf"
printf 'passwd: files\ngroup: files\nhosts: files dns\nservices: files\n' > "$etc/nsswitch.conf"
echo '127.0.0.1 localhost' > "$etc/hosts"
{ cat /etc/passwd; echo "client:x:$CLIENT_UID:$CLIENT_UID::/nonexistent:/bin/sh"; echo "server:x:$SERVER_UID:$SERVER_UID::$srv:/bin/sh"; } > "$etc/passwd"
{ cat /etc/group; echo "client:x:$CLIENT_UID:"; echo "server:x:$SERVER_UID:"; } > "$etc/group"
cat /etc/ssl/certs/ca-certificates.crt "$world/tools/ca.pem" > "$etc/ssl/certs/ca-certificates.crt"
mount --bind "$world/etc" /etc

ip link set lo up
unshare --net -- bash "$here/servers.sh" "$world" "${become[@]}" > "$srv/log/servers" 2>&1 &
servers=$!
mine=$(readlink /proc/self/ns/net)
until theirs=$(readlink "/proc/$servers/ns/net") && [ "$theirs" != "$mine" ]; do sleep 0.01; done
ip link add name servers type veth peer name clients netns "$servers"
ip addr add 192.0.2.1/30 dev servers
ip addr add 2001:db8::1/64 dev servers nodad
ip link set servers up
ip route add default via 192.0.2.2
ip -6 route add default via 2001:db8::2

for _ in $(seq 6000); do
    if [ -e "$srv/run/ready" ]; then
        echo ready
        break
    fi
    if ! kill -0 "$servers" 2>/dev/null; then
        echo "the servers ended"
        break
    fi
    sleep 0.01
done
cat > /dev/null
exec 2> /dev/null
kill -KILL -1 || true
umount -l /etc "$world/etc"
rm -rf --one-file-system "$world"
