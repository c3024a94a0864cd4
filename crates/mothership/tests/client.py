"""Walks the tables of the contract with the standard library alone, and stops at the first answer that differs."""
import base64
import http.client
import json
import sys
import threading
import urllib.parse

URL, KEY, OTHER = sys.argv[1:4]
HOST = urllib.parse.urlparse(URL).netloc
API, CONDUITS = "/mothership/api/v1", "/conduits/v1"


def call(method, path, body=None, key=None, territory=None, raw=None, headers=None):
    connection = http.client.HTTPConnection(HOST, timeout=40)
    sent = dict(headers or {})
    if key:
        sent["Authorization"] = "Bearer " + key
    if territory:
        sent["X-Nexus-Territory-Id"] = territory
    data = raw
    if body is not None:
        data = json.dumps(body).encode()
    if data is not None:
        sent.setdefault("Content-Type", "application/json")
    connection.request(method, path, data, sent)
    answer = connection.getresponse()
    text = answer.read()
    kind = answer.getheader("Content-Type", "")
    value = json.loads(text) if kind.startswith("application/json") else text
    connection.close()
    if answer.status >= 400:
        assert set(value) <= {"error", "detail", "code", "hint", "request_id"}, value
        assert value["error"] and value["code"] and value["request_id"], value
    if answer.status == 429:
        assert 0 < int(answer.getheader("Retry-After")) <= 300
    return answer.status, value


def expect(status, result, **members):
    assert result[0] == status, (status, result)
    for name, value in members.items():
        assert result[1].get(name) == value, (name, value, result)
    return result[1]


def b64(data):
    return base64.b64encode(data).decode()


# Enrolment.
token = expect(201, call("POST", API + "/enrollment_tokens", {"labels": {"zone": "a"}, "kind": "server"}, KEY))["token"]
expect(422, call("POST", CONDUITS + "/territories/enroll", {"enroll_token": token, "csr_pem": "bad"}))
enrolled = expect(201, call("POST", CONDUITS + "/territories/enroll", {
    "enroll_token": token, "name": "py", "unknown": {"is": "ignored"}, "metadata": {"capacity": {"max_concurrent": 2}}}), kind="server")
assert set(enrolled["config"]) == {"poll_interval_seconds", "heartbeat_interval_seconds", "lease_ttl_seconds"}
assert all(isinstance(value, int) for value in enrolled["config"].values())
ID = enrolled["territory_id"]
expect(422, call("POST", CONDUITS + "/territories/enroll", {"enroll_token": token}))
expect(422, call("POST", CONDUITS + "/territories/enroll", {}))
expect(422, call("POST", CONDUITS + "/territories/enroll", {"enroll_token": "unknown"}))
assert "BEGIN CERTIFICATE" in expect(200, call("GET", CONDUITS + "/ca"))["ca_bundle_pem"]


def daemon(path, body, bearer=None, territory=ID):
    return call("POST", CONDUITS + path, body, bearer, territory)


# Heartbeats of the territory.
beat = expect(200, daemon("/territories/heartbeat", {}), ok=True, territory_id=ID)
assert "directives" not in beat, "a heartbeat without directives says nothing about them"
expect(401, call("POST", CONDUITS + "/territories/heartbeat", {}))
expect(401, daemon("/territories/heartbeat", {}, territory="00000000-0000-7000-8000-000000000000"))
expect(200, daemon("/territories/heartbeat", {
    "nexus_version": 7, "labels": ["zone=b"], "capacity": {"max_concurrent": 2}, "telemetry": "odd", "running_directives_count": 0}))

# A poll that finds nothing.
empty = expect(200, daemon("/polls", {}))
assert empty["directives"] == [] and isinstance(empty["lease_ttl_seconds"], int) and empty["retry_after_seconds"] <= 300

# A directive.
facility = expect(201, call("POST", API + "/facilities", {"kind": "empty"}, KEY))["facility_id"]
expect(422, call("POST", API + "/facilities", {"kind": "imported_path"}, KEY))
made = expect(201, call("POST", f"{API}/facilities/{facility}/directives", {"command": "make"}, KEY), state="queued")
DIRECTIVE = made["directive_id"]
expect(422, call("POST", f"{API}/facilities/{facility}/directives", {"command": "x", "sandbox_profile": "host"}, KEY))
claims = expect(200, daemon("/polls", {"max_directives_to_claim": 9}))["directives"]
assert len(claims) == 1 and claims[0]["directive_id"] == DIRECTIVE
claim = claims[0]
spec = claim["spec"]
assert spec["command"] == "make" and spec["shell"] == "/bin/sh" and spec["facility"]["id"] == facility
assert spec["facility"]["mount"] == "/workspace" and spec["sandbox_profile"] == "untrusted" and spec["timeout_seconds"] == 300
assert all(isinstance(value, int) for value in spec["limits"].values() if value is not None)
BEARER = claim["directive_token"]
PATH = f"/directives/{DIRECTIVE}"

# Directive calls without rights.
expect(401, daemon(PATH + "/started", {}))
expect(401, daemon(PATH + "/started", {}, BEARER + "x"))
expect(401, call("POST", CONDUITS + PATH + "/started", {}, BEARER))
second = expect(201, call("POST", API + "/enrollment_tokens", {}, KEY))["token"]
ID2 = expect(201, call("POST", CONDUITS + "/territories/enroll", {"enroll_token": second}))["territory_id"]
expect(403, daemon(PATH + "/started", {}, BEARER, ID2))
expect(403, daemon("/directives/00000000-0000-7000-8000-000000000000/started", {}, BEARER))

# Output before the start, the start, and its repetition.
expect(409, daemon(PATH + "/log_chunks", {"stream": "stdout", "seq": 0, "bytes": b64(b"a")}, BEARER))
start = {"sandbox_version": "1", "nexus_version": "1", "runtime_ref": "r", "started_at": "2026-01-01T00:00:00Z"}
expect(200, daemon(PATH + "/started", start, BEARER), ok=True, directive_id=DIRECTIVE, state="running", duplicate=False)
expect(200, daemon(PATH + "/started", start, BEARER), duplicate=True)
expect(409, daemon(PATH + "/started", dict(start, nexus_version="2"), BEARER))

# Heartbeats of the directive.
beat = expect(200, daemon(PATH + "/heartbeat", {"progress": {"phase": "running"}, "last_output_seq": -1}, BEARER),
              cancel_requested=False, lease_renewed=True)
NEW = beat["directive_token"]

# Output: out of order, repeated, in conflict, wrong. The old token stays good.
for seq, data in [(2, b"c"), (0, b"a"), (1, b"\xff\x00b")]:
    expect(200, daemon(PATH + "/log_chunks", {"stream": "stdout", "seq": seq, "bytes": b64(data)}, BEARER),
           ok=True, directive_id=DIRECTIVE, stream="stdout", seq=seq, stored=True, duplicate=False, accepted_bytes=len(data), truncated=False)
expect(200, daemon(PATH + "/log_chunks", {"stream": "stdout", "seq": 1, "bytes": b64(b"\xff\x00b")}, NEW), duplicate=True)
expect(409, daemon(PATH + "/log_chunks", {"stream": "stdout", "seq": 1, "bytes": b64(b"other")}, NEW))
expect(200, daemon(PATH + "/log_chunks", {"stream": "stderr", "seq": 0, "bytes": ""}, NEW), accepted_bytes=0)
for wrong in [{"stream": "both"}, {"seq": -1}, {"seq": "1"}, {"bytes": "*"}, {"bytes": None}, {"bytes": b64(bytes(256 * 1024 + 1))}]:
    expect(422, daemon(PATH + "/log_chunks", dict({"stream": "stdout", "seq": 9, "bytes": ""}, **wrong), NEW))
results = []
same = {"stream": "stderr", "seq": 5, "bytes": b64(b"x")}
threads = [threading.Thread(target=lambda: results.append(daemon(PATH + "/log_chunks", same, NEW))) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert sorted(value["duplicate"] for _, value in results) == [False] + [True] * 15, results

# Events.
expect(200, daemon(PATH + "/events", {"seq": 0, "events": [{"type": "x"}]}, NEW), duplicate=False)
expect(200, daemon(PATH + "/events", {"seq": 0, "events": [{"type": "x"}]}, NEW), duplicate=True)
expect(409, daemon(PATH + "/events", {"seq": 0, "events": []}, NEW))

# The end: wrong, right, repeated with other times, in conflict.
expect(422, daemon(PATH + "/finished", {}, NEW))
expect(422, daemon(PATH + "/finished", {"status": "failed", "diff_base64": "*"}, NEW))
expect(422, daemon(PATH + "/finished", {"status": "failed", "diff_base64": b64(bytes(1024 * 1024 + 1))}, NEW))
end = {"status": "failed", "exit_code": 0, "finished_at": "2026-01-01T00:00:01Z", "diff_base64": b64(b"+a\n"), "timing": {"ms": 1}}
expect(200, daemon(PATH + "/finished", end, NEW), ok=True, directive_id=DIRECTIVE, duplicate=False, final_state="failed")
expect(200, daemon(PATH + "/finished", dict(end, finished_at="2027-01-01T00:00:00Z", timing={"ms": 2}, reason=None), NEW), duplicate=True)
expect(409, daemon(PATH + "/finished", dict(end, exit_code=1), NEW))
expect(409, daemon(PATH + "/heartbeat", {}, NEW))
expect(409, daemon(PATH + "/started", start, NEW))
expect(200, daemon(PATH + "/log_chunks", {"stream": "stdout", "seq": 2, "bytes": b64(b"c")}, NEW), duplicate=True)

# Reads, for the owner and for another account.
seen = expect(200, call("GET", API + PATH, key=KEY), state="failed", exit_code=0, attempt=1, stdout_truncated=False, stderr_truncated=True)
assert seen["territory_id"] == ID and seen["queued_because"] is None
log = expect(200, call("GET", API + PATH + "/log_chunks?stream=stdout&after_seq=-1&limit=2", key=KEY), next_after_seq=1)
assert [base64.b64decode(chunk["bytes_base64"]) for chunk in log["chunks"]] == [b"a", b"\xff\x00b"]
assert set(log["chunks"][0]) == {"seq", "bytes_base64", "bytesize", "truncated", "created_at"}
log = expect(200, call("GET", API + PATH + "/log_chunks?after_seq=1", key=KEY), next_after_seq=2)
assert call("GET", API + PATH + "/diff", key=KEY) == (200, b"+a\n")
expect(404, call("GET", API + PATH + "/receipt", key=KEY))
for bad in ["limit=0", "limit=501", "limit=x", "after_seq=-2", "stream=x", "attempt=-1"]:
    expect(400, call("GET", API + PATH + "/log_chunks?" + bad, key=KEY))
for path in [PATH, PATH + "/log_chunks", PATH + "/diff", PATH + "/events", f"/facilities/{facility}", f"/territories/{ID}",
             f"/facilities/{facility}/directives", f"/facilities/{facility}{PATH}/log_chunks"]:
    expect(404, call("GET", API + path, key=OTHER))
    expect(401, call("GET", API + path))
    expect(401, call("GET", API + path, key="nxk_wrong"))
expect(404, call("POST", API + PATH + "/cancel", {}, OTHER))
expect(404, call("POST", f"{API}/facilities/{facility}/directives", {"command": "x"}, OTHER))
expect(404, call("POST", f"{API}/territories/{ID}/revoke", {}, OTHER))
expect(409, call("POST", API + PATH + "/cancel", {}, KEY))

# A cancel while the directive runs, and an end that ignores it.
expect(201, call("POST", f"{API}/facilities/{facility}/directives", {"command": "x"}, KEY))
claim = expect(200, daemon("/polls", {}))["directives"][0]
PATH = f"/directives/{claim['directive_id']}"
expect(200, daemon(PATH + "/started", {}, claim["directive_token"]))
expect(200, call("POST", API + PATH + "/cancel", {"comment": "enough"}, KEY), state="running")
expect(200, daemon(PATH + "/heartbeat", {}, claim["directive_token"]), cancel_requested=True)
expect(200, daemon(PATH + "/finished", {"status": "succeeded"}, claim["directive_token"]), final_state="succeeded")

# Fields that a user may not set are ignored; bodies that are not JSON are refused.
made = expect(201, call("POST", f"{API}/facilities/{facility}/directives", {
    "command": "x", "state": "succeeded", "account_id": "x", "directive_id": DIRECTIVE}, KEY), state="queued")
assert made["directive_id"] != DIRECTIVE
create = f"{API}/facilities/{facility}/directives"
expect(400, call("POST", create, key=KEY, raw=b"{"))
expect(400, call("POST", create, key=KEY, raw=b'{"x":' + b"[" * 100000))
expect(422, call("POST", create, key=KEY, raw=b"[" * 100000))
expect(422, call("POST", create, key=KEY, raw=b'["make"]'))
expect(415, call("POST", create, key=KEY, raw=b"command=x", headers={"Content-Type": "application/x-www-form-urlencoded"}))
expect(413, call("POST", create, key=KEY, raw=b'{"command":"' + b"x" * (2 * 1024 * 1024) + b'"}'))
expect(405, call("PUT", create, {}, KEY))
expect(404, call("GET", API + "/nothing", key=KEY))
expect(403, call("GET", "/healthz", headers={"Host": "evil.example"}))
expect(400, call("GET", API + "/directives?limit=0", key=KEY))
expect(400, call("GET", API + "/directives?cursor=%27%20OR%201%3D1", key=KEY))
expect(200, call("GET", "/healthz"))
expect(200, call("GET", "/readyz"))
print("all answers are the documented ones")
