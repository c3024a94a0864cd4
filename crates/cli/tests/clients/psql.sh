# With TLS, which begins here in the middle of the conversation, and without.
set -e
for tls in "sslmode=verify-full sslrootcert=$TOOLS/ca.pem" sslmode=disable; do
    psql -X -At "host=$HOST user=server dbname=postgres connect_timeout=10 $tls" \
        -c 'select ssl from pg_stat_ssl where pid = pg_backend_pid()' \
        -c 'select sum(x), md5(string_agg(x::text, $$,$$ order by x)) from generate_series(1, 100000) x'
done
