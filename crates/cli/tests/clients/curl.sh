# 80 and 443: whole, a range, the head alone, a body sent, two requests over one connection.
set -e
for scheme in http https; do
    curl -sS --fail "$scheme://$HOST/file.txt"
    curl -sS --fail -r 3-5 "$scheme://$HOST/file.txt"; echo
    curl -sS --fail -I "$scheme://$HOST/file.txt" | grep -i -E '^(content-length|accept-ranges)'
    curl -sS --fail "$scheme://$HOST/large.bin" | sha256sum
    curl -sS -o one -o two -w '%{http_code}\n' "$scheme://$HOST/large.bin" "$scheme://$HOST/none"
done
