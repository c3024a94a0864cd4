# Static java options only: a message about options from the environment would be a difference.
exec java -XX:TieredStopAtLevel=1 -Xshare:auto -Djavax.net.ssl.trustStore="$TOOLS/ca.p12" \
    -Djavax.net.ssl.trustStorePassword=changeit -cp "$TOOLS/java" Fetch "https://$HOST/large.bin" "https://$HOST/none"
