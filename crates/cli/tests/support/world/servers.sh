# Starts the servers in their own network and waits until each answers. Arguments as of enter.sh.
set -euo pipefail
world=$1
shift
become=("$@")
here=$(dirname "${BASH_SOURCE[0]}")
srv=$world/srv

until ip link show clients > /dev/null 2>&1; do sleep 0.01; done
ip link set lo up
for address in 93.184.216.10 93.184.216.20 10.77.0.1; do ip addr add "$address/32" dev lo; done
for address in 2606:2800:220::10 2606:2800:220::20; do ip addr add "$address/128" dev lo nodad; done
ip addr add 192.0.2.2/30 dev clients
ip addr add 2001:db8::2/64 dev clients nodad
ip link set clients up
# The servers run as an ordinary user: some refuse root, the others need none of it.
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start

sed "s|WORLD|$world|g" "$here/nginx.conf" > "$srv/nginx.conf"
sed "s|WORLD|$world|g" "$here/sshd_config" > "$srv/run/sshd_config"
chown -R --reference="$srv" "$srv/run"

start() {
    local name=$1
    shift
    "${become[@]}" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin HOME="$srv" "$@" > "$srv/log/$name" 2>&1 < /dev/null &
}
answers() {
    local port=$1
    for _ in $(seq 1000); do
        if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then return; fi
        sleep 0.01
    done
    echo "nothing answers on port $port"
    exit 1
}

postgres=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
cd "$srv"
start dns /usr/bin/python3 "$here/dns.py" 192.0.2.2
start cgi fcgiwrap -s "unix:$srv/run/cgi.sock"
start nginx nginx -p "$srv" -c nginx.conf -e log/nginx-start
start sshd /usr/sbin/sshd -D -e -f "$srv/run/sshd_config"
start redis redis-server --port 6379 --protected-mode no --save '' --dir "$srv/redis"
start postgres sh -c "'$postgres/initdb' -D pg/data -A trust -U server --no-sync > log/initdb 2>&1 &&
    printf 'host all all all trust\n' >> pg/data/pg_hba.conf &&
    exec '$postgres/postgres' -D pg/data -p 5432 -c listen_addresses='*' -c unix_socket_directories='$srv/run' \
        -c fsync=off -c ssl=on -c ssl_cert_file='$srv/tls/cert.pem' -c ssl_key_file='$srv/tls/key.pem'"
for port in 22 80 443 5432 6379; do answers "$port"; done
(exec 3<> /dev/tcp/192.0.2.2/53)
touch "$srv/run/ready"
wait
