# 80 and 443: whole, a range, the head alone, two requests over one connection.
# The order of header lines means nothing (RFC 9110, 5.3) and differs behind a proxy.
set -e
for scheme in http https; do
    curl -sS --fail "$scheme://$HOST/file.txt"
    curl -sS --fail -r 3-5 "$scheme://$HOST/file.txt"; echo
    curl -sS --fail -I "$scheme://$HOST/file.txt" | grep -i -E '^(content-length|accept-ranges)' | sort -f
    curl -sS --fail "$scheme://$HOST/large.bin" | sha256sum
    curl -sS -o one -o two -w '%{http_code}\n' "$scheme://$HOST/large.bin" "$scheme://$HOST/none"
done
