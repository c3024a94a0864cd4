"""A client of the Model Context Protocol that needs nothing but Python, and the scenarios of the tests.

Called with the program, the name of a scenario and its words; the current directory is the workspace.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time

PATIENCE = 60
VERSION = "io.modelcontextprotocol/protocolVersion"
ABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Client:
    """One server and the connection to it. `modern` says which generation of the protocol is spoken."""

    def __init__(self, program, *flags, modern=True, cwd=None, handshake=True):
        self.process = subprocess.Popen(
            [program, "mcp", *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)
        self.modern, self.next_id, self.told = modern, 0, []
        self.answers, self.came, self.strange = {}, threading.Condition(), []
        self.errors = queue.Queue()
        self.readers = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._drain, daemon=True)]
        for reader in self.readers:
            reader.start()
        if handshake and not modern:
            self.greeting = self.ask("initialize", {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
            self.tell("notifications/initialized")

    def _read(self):
        for line in self.process.stdout:
            with self.came:
                try:
                    message = json.loads(line)
                    assert message["jsonrpc"] == "2.0"
                except (ValueError, KeyError, TypeError, AssertionError):
                    self.strange.append(line)
                    continue
                if "method" in message:
                    self.told.append(message)
                else:
                    self.answers.setdefault(json.dumps(message.get("id")), []).append(message)
                self.came.notify_all()
        with self.came:
            self.answers["end"] = True
            self.came.notify_all()

    def _drain(self):
        for line in self.process.stderr:
            self.errors.put(line)

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def tell(self, method, params=None):
        self.send({"method": method, "params": params or {}})

    def begin(self, method, params=None):
        """Sends a request and returns its id."""
        self.next_id += 1
        params = dict(params or {})
        if self.modern:
            meta = {VERSION: "2026-07-28", ABILITIES: {}}
            params["_meta"] = {**meta, **params.get("_meta", {})}
        self.send({"id": self.next_id, "method": method, "params": params})
        return self.next_id

    def answer(self, number, patience=PATIENCE):
        """Waits for the answer to a request; None when there is none in time."""
        key = json.dumps(number)
        with self.came:
            self.came.wait_for(lambda: self.answers.get(key) or "end" in self.answers, patience)
            found = self.answers.get(key)
            return found.pop(0) if found else None

    def ask(self, method, params=None):
        answer = self.answer(self.begin(method, params))
        assert answer is not None, (method, self.stderr())
        assert "result" in answer, answer
        return answer["result"]

    def call(self, name, **arguments):
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        assert result["content"][0]["type"] == "text"
        if self.modern:
            assert result["resultType"] == "complete", result
        return result

    def good(self, name, **arguments):
        result = self.call(name, **arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    def bad(self, name, **arguments):
        """Calls a tool that refuses, and returns the first denial, which names cause, rule and remedy."""
        result = self.call(name, **arguments)
        assert result["isError"], result
        denial = result["structuredContent"]["denials"][0]
        assert denial["cause"] and denial["rule"], denial
        return denial

    def stderr(self):
        lines = []
        while not self.errors.empty():
            lines.append(self.errors.get())
        return b"".join(lines).decode(errors="replace")

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        for reader in self.readers:
            reader.join(PATIENCE)
        assert self.strange == [], self.strange
        assert code == 0, (code, self.stderr())


def wait_for(what, condition):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def running(needle):
    """Processes of this machine with this text in their arguments, all but this test's own."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        if needle.encode() in words and b"nexus" not in words and b"client.py" not in words and int(number) != os.getpid():
            found.append(int(number))
    return found


def more_than_the_file_holds(client):
    """Of more output than its file may hold, the first and the last part are there all the same."""
    endless = client.good("run_command", command="echo first; head -c 80000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert endless["output_bytes"] == 80_000_012 and endless["stdout"].startswith("first\nx"), endless["output_bytes"]
    assert endless["stdout"].endswith("x\nlast\n") and "left out" in endless["stdout"]
    stored = client.good("read_output", run_id=endless["run_id"], offset=0, limit=6)
    assert (stored["text"], stored["end_offset"]) == ("first\n", 64 << 20), stored


def every_tool(program, generation):
    client = Client(program, "--protect", "held", "--may-accept", modern=generation == "modern")
    if generation == "modern":
        found = client.ask("server/discover")
        assert found["supportedVersions"] == ["2026-07-28"] and found["cacheScope"] == "private", found
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "nexus"
    else:
        assert client.greeting["protocolVersion"] == "2025-11-25"
        assert client.ask("ping") == {}
    tools = {tool["name"]: tool for tool in client.ask("tools/list")["tools"]}
    used = set()
    good, bad = client.good, client.bad

    # Commands.
    run = good("run_command", command="echo out; echo err >&2; echo new > made; exit 3")
    assert (run["stdout"], run["stderr"], run["exit_code"], run["reason"]) == ("out\n", "err\n", 3, "exit"), run
    assert run["changes"]["state"] == "committed" and read("made") == "new\n"
    assert good("run_command", argv=["printf", "%s|", "a b", "$HOME"])["stdout"] == "a b|$HOME|"
    os.mkdir("sub")
    assert good("run_command", command="pwd", cwd="sub")["stdout"].endswith("/sub\n")
    missing = bad("run_command", argv=["no-such-program"])
    assert missing["code"] == "not_started", missing
    used.add("run_command")

    # The stored output.
    long = good("run_command", command="seq 1 200000; echo needle 42; seq 1 200000")
    # It came faster than the streams could be told apart, or not: the first and the last part are there.
    assert long["cut_bytes"] > 0 and long["stdout"].startswith("1\n2\n") and "left out" in long["stdout"]
    assert long["stdout"].endswith("199999\n200000\n") and len(long["stdout"]) < 300_000
    whole = "".join(f"{n}\n" for n in range(1, 200001))
    run_id = long["run_id"]
    part = good("read_output", run_id=run_id, offset=len(whole), limit=10)
    assert (part["text"], part["next_offset"]) == ("needle 42\n", len(whole) + 10), part
    assert part["end_offset"] == 2 * len(whole) + 10 and part["first_offset"] == 0
    assert good("read_output", run_id=run_id, tail_lines=2)["text"] == "199999\n200000\n"
    found = good("read_output", run_id=run_id, contains="needle")
    assert found["lines"] == [{"line": 200001, "text": "needle 42"}] and not found["has_more"], found
    assert bad("read_output", run_id="no")["code"] == "no_run"
    if generation == "modern":
        more_than_the_file_holds(client)
    used.add("read_output")

    # Processes in the background.
    process = good("start_process", command="echo ready; trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done")
    number = process["run_id"]
    wait_for("ready", lambda: "ready" in good("inspect_process", run_id=number)["stdout"])
    assert good("inspect_process", run_id=number)["state"] == "running"
    assert good("read_output", run_id=number, tail_lines=1)["text"] == "ready\n"
    assert number in [one["run_id"] for one in good("list_processes")["processes"]]
    assert good("explain_denial", run_id=number)["denials"] == []
    stopped = good("stop_process", run_id=number, grace_ms=5000)
    assert stopped["state"] == "ended" and stopped["stdout"] == "ready\nbye\n", stopped
    assert good("inspect_process", run_id=number)["state"] == "ended"
    used.update(["start_process", "inspect_process", "list_processes", "stop_process"])

    # Changes.
    held = good("run_command", command="echo x > held; echo y > free")
    assert [one["path"] for one in held["changes"]["waiting"]] == ["held"], held
    assert held["denials"][0]["code"] == "changes_wait" and held["run_id"] in held["denials"][0]["remedy"]
    assert not os.path.exists("held") and read("free") == "y\n"
    assert good("explain_denial", run_id=held["run_id"])["denials"] == held["denials"]
    assert [one["run_id"] for one in good("list_changes")["runs"]] == [held["run_id"]]
    shown = good("show_changes", run_id=held["run_id"], diff=True)
    assert shown["changes"][0]["protected"] and "+x" in shown["diff"], shown
    assert bad("accept_changes", run_id=held["run_id"])["code"] == "protected"
    assert bad("accept_changes", run_id=held["run_id"], paths=["held"])["code"] == "protected"
    assert not os.path.exists("held")
    good("reject_changes", run_id=held["run_id"])
    assert not os.path.exists("held")
    review = good("run_command", command="echo a > one; echo b > two", changes="review")
    assert len(review["changes"]["waiting"]) == 2 and not os.path.exists("one")
    good("accept_changes", run_id=review["run_id"], paths=["one"])
    assert read("one") == "a\n" and not os.path.exists("two")
    good("accept_changes", run_id=review["run_id"])
    assert read("two") == "b\n"
    used.update(["list_changes", "show_changes", "accept_changes", "reject_changes", "explain_denial"])

    # Files.
    written = good("write_file", path="deep/er/file", content="äöü\0\nzwei\n", create_directories=True)
    assert written["changes"] == "committed" and read("deep/er/file") == "äöü\0\nzwei\n", written
    assert bad("write_file", path="no/dir/file", content="x")["code"] == "not_found"
    big = "x" * 3_000_000
    good("write_file", path="big", content=big)
    assert read("big") == big
    assert good("read_file", path="big", offset=2_999_990)["content"] == "x" * 10
    part = good("read_file", path="deep/er/file", offset=8, limit=4)
    assert (part["content"], part["size"], part["next_offset"]) == ("zwei", 13, 12), part
    held = client.call("write_file", path="held", content="x")["structuredContent"]
    assert held["denials"][0]["code"] == "changes_wait" and not os.path.exists("held"), held
    assert held["run_id"] in [one["run_id"] for one in good("list_changes")["runs"]]
    good("reject_changes", run_id=held["run_id"])
    listed = good("list_directory", path="deep/er")
    assert listed["entries"] == [{"name": "file", "kind": "file", "size": 13}], listed
    page = good("list_directory", limit=2)
    assert len(page["entries"]) == 2 and page["next_offset"] == 2 and page["total"] > 2
    rest = good("list_directory", offset=2)
    assert len(rest["entries"]) == page["total"] - 2 and rest["next_offset"] is None
    good("write_file", path="deep/code.py", content="import os\nprint(1)\n")
    assert good("search_files", pattern="import o")["hits"] == [{"path": "deep/code.py", "line": 1, "text": "import os"}]
    assert good("search_files", pattern="^pr.*1", regex=True, glob="*.py", path="deep")["total"] == 1
    assert good("search_files", pattern="import", glob="*.rs")["total"] == 0
    assert good("search_files", pattern="import", path="deep/code.py")["hits"][0]["path"] == "deep/code.py"
    assert bad("search_files", pattern="(", regex=True)["code"] == "pattern"
    used.update(["write_file", "read_file", "list_directory", "search_files"])

    assert used == set(tools), used ^ set(tools)
    client.end()


def hostile_paths(program):
    outside = os.path.join(os.environ["HOME"], "outside")
    os.mkdir(outside)
    secret = os.path.join(outside, "secret")
    with open(secret, "w", encoding="utf-8") as file:
        file.write("secret")
    os.mkdir("dir")
    with open("dir/inner", "w", encoding="utf-8") as file:
        file.write("inner")
    with open(".env", "w", encoding="utf-8") as file:
        file.write("TOKEN")
    os.symlink(secret, "to-file")
    os.symlink(outside, "to-dir")
    os.symlink("/etc/hostname", "to-etc")
    os.symlink(os.path.join(outside, "new"), "dangling")
    os.symlink("dir/inner", "to-inner")
    os.mkfifo("fifo")
    client = Client(program, "--hide", ".env")
    good, bad = client.good, client.bad
    tools = {
        "read_file": {}, "write_file": {"content": "hostile"}, "list_directory": {}, "search_files": {"pattern": "secret"},
    }
    # F01
    for path in ["../home/outside/secret", "/etc/passwd", "dir/../../home/outside/secret", "dir//../..", "", "a\0b", secret, "/"]:
        for tool, more in tools.items():
            assert bad(tool, path=path, **more)["code"] == "path", (tool, path)
        assert bad("run_command", command="true", cwd=path)["code"] == "path", path
    for path in ["%2e%2e%2foutside%2fsecret", "..\\secret"]:
        assert bad("read_file", path=path)["code"] == "not_found", path
    assert bad("write_file", path=".", content="x")["code"] == "path"
    # F02, F03
    for tool, more in tools.items():
        for path in ["to-dir/secret", "to-file", "to-dir", "to-etc", "dangling"]:
            code = bad(tool, path=path, **more)["code"]
            assert code in ("outside", "link", "not_found"), (tool, path, code)
    assert bad("write_file", path="to-dir/deep/new", content="x", create_directories=True)["code"] == "outside"
    assert bad("write_file", path="to-inner", content="x")["code"] == "link"
    assert good("read_file", path="to-inner")["content"] == "inner"
    assert good("search_files", pattern="secret")["hits"] == []
    # F04: an alias of a file outside is another file once it is written.
    try:
        os.link(secret, "alias")
        good("write_file", path="alias", content="mine")
        assert read("alias") == "mine"
    except PermissionError:
        pass
    assert read(secret) == "secret" and os.listdir(outside) == ["secret"]
    # F05
    for path in ["fifo", "dir"]:
        began = time.monotonic()
        assert bad("read_file", path=path)["code"] == "not_a_file", path
        assert bad("write_file", path=path, content="x")["code"] == "not_a_file", path
        assert time.monotonic() - began < 20
    kinds = {one["name"]: one["kind"] for one in good("list_directory")["entries"]}
    assert (kinds["fifo"], kinds["dir"], kinds["to-dir"]) == ("other", "directory", "link"), kinds
    # F11: the tool may exactly what a command may.
    for path in ["dir/inner", "dir/new", "new", ".env", "to-inner", "nowhere/x", ".git/hooks/pre-commit"]:
        by_command = client.call("run_command", command=f"cat {path}")["structuredContent"]["exit_code"] == 0
        by_tool = not client.call("read_file", path=path)["isError"]
        assert by_command == by_tool, path
    for path, before in [("dir/inner", "inner"), (".env", "TOKEN")]:
        client.call("write_file", path=path, content="tool")
        tool = read(path)
        client.call("run_command", command=f"printf command > {path}")
        command = read(path)
        assert (tool == "tool") == (command == "command"), (path, tool, command)
    assert read(".env") == "TOKEN" and bad("read_file", path=".env")
    client.end()


def cancelled(program):
    client = Client(program)
    token = f"marker{os.getpid()}"
    script = f"echo begun; sleep 1000 & sleep 1000; echo {token}"
    number = client.begin("tools/call", {
        "name": "run_command", "arguments": {"command": script}, "_meta": {"progressToken": "p"}})
    wait_for("progress", lambda: any("begun" in told["params"]["message"] for told in client.told))
    told = client.told[0]
    assert told["method"] == "notifications/progress" and told["params"]["progressToken"] == "p", told
    assert running(token)
    client.tell("notifications/cancelled", {"requestId": number, "reason": "test"})
    wait_for("the end of everything", lambda: not running(token))
    wait_for("the end of the sandbox", lambda: sessions(program) == [])
    assert client.answer(number, 0.5) is None, "a cancelled call is not answered"
    # One that does not want to end.
    number = client.begin("tools/call", {
        "name": "run_command", "arguments": {"command": f"trap '' TERM; echo begun; while :; do sleep 0.1; done; : {token}x"}})
    wait_for("the start", lambda: running(token + "x"))
    client.tell("notifications/cancelled", {"requestId": number})
    wait_for("the end of it", lambda: not running(token + "x"))
    # What is unknown, or over, is nothing to cancel.
    client.tell("notifications/cancelled", {"requestId": 9999})
    client.tell("notifications/cancelled", {})
    assert client.good("run_command", command="echo still here")["stdout"] == "still here\n"
    began = time.monotonic()
    late = client.good("run_command", command="sleep 1000", timeout_ms=300)
    assert late["exit_code"] == 124 and late["denials"][0]["code"] == "timeout", late
    assert time.monotonic() - began < 30
    client.end()


def sessions(program):
    text = subprocess.run([program, "ps", "--all", "--json"], check=True, capture_output=True).stdout
    return json.loads(text)["sessions"]


def leaves_nothing(program, how):
    client = Client(program)
    token = f"left{os.getpid()}"
    client.good("start_process", command=f"sleep 1000; : {token}")
    client.begin("tools/call", {"name": "run_command", "arguments": {"command": f"sleep 1000; : {token}"}})
    wait_for("both", lambda: len([one for one in sessions(program) if one["state"] == "running"]) == 2)
    if how == "signal":
        client.process.terminate()
        assert client.process.wait(PATIENCE) == 0
    elif how == "kill":
        client.process.kill()
        wait_for("the end of all", lambda: not running(token) and all(one["state"] == "ended" for one in sessions(program)))
        for one in sessions(program):
            subprocess.run([program, "rm", one["id"]], check=True, capture_output=True)
        # The next server clears up the output.
        Client(program).end()
    else:
        client.end()
    assert not running(token) and sessions(program) == []
    state = os.environ["NEXUS_STATE_DIR"]
    assert os.listdir(os.path.join(state, "mcp")) == []


def bad_messages(program):
    client = Client(program, handshake=False)

    def refused(data, code, number=None):
        client.write(data + b"\n")
        answer = client.answer(number)
        assert answer is not None, data[:100]
        assert answer["error"]["code"] == code, (data[:100], answer)

    refused(b"{", -32700)
    refused(b"\xff\xfe", -32700)
    refused(b"[" * 100_000, -32700)
    refused(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, -32700)
    refused(b"[]", -32600)
    refused(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600)
    refused(b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[]}', -32602, 7)
    refused(b'{"jsonrpc":"2.0","id":8,"method":"tools/list"}', -32602, 8)
    refused(b'{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"_meta":{"%s":"1999-01-01","%s":{}}}}'
            % (VERSION.encode(), ABILITIES.encode()), -32022, 9)
    # A line without an end costs no memory.
    for _ in range(64):
        client.write(b"x" * (1 << 20))
    status = read(f"/proc/{client.process.pid}/status")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak < 100_000, peak
    refused(b"", -32700)
    for number, (method, params, code) in enumerate([
            ("nothing/here", {}, -32601), ("initialize", {}, -32601), ("ping", {}, -32601), ("resources/list", {}, -32601),
            ("tools/call", {}, -32602), ("tools/call", {"name": "no_tool"}, -32602), ("tools/call", {"name": 3}, -32602)]):
        answer = client.answer(client.begin(method, params))
        assert answer["error"]["code"] == code, (method, answer)
    for arguments in [{"command": 1}, {}, {"command": "x", "argv": ["y"]}, {"argv": []}, {"argv": [1]}, {"typo": 1, "command": "x"},
                      {"command": "a\0b"}]:
        assert client.bad("run_command", **arguments)["code"] == "arguments", arguments
    client.write(b'\n  \n{"jsonrpc":"2.0","id":5,"result":{}}\n{"jsonrpc":"2.0","method":"notifications/what"}\n')
    # An id that goes on already.
    slow = client.begin("tools/call", {"name": "run_command", "arguments": {"command": "sleep 1; echo slow"}})
    client.next_id -= 1
    client.begin("tools/call", {"name": "list_processes"})
    assert client.answer(slow)["error"]["code"] == -32600
    assert client.answer(slow)["result"]["structuredContent"]["stdout"] == "slow\n"
    # A command cannot draw in the protocol.
    forged = '{"jsonrpc":"2.0","id":1,"result":{}}'
    printed = client.good("run_command", argv=["printf", "%s\\n\\033[2J", forged])
    assert printed["stdout"] == forged + "\n\033[2J", printed
    client.end()


def narrows(program):
    # An ordinary user may have no groups that a memory limit needs.
    is_root = os.geteuid() == 0
    memory = ["--memory", "512M"] if is_root else []
    client = Client(program, "--timeout", "5s", "--pids", "64", "--changes", "review", "--allow", "example.com", *memory)
    more_memory = [{"memory_bytes": 1 << 30}] if is_root else []
    for more in [{"timeout_ms": 5001}, {"max_processes": 65}, {"changes": "commit"}, {"network": "unrestricted"}, *more_memory]:
        denial = client.bad("run_command", command="true", **more)
        assert denial["code"] == "widens" and denial["remedy"], denial
    less = client.good("run_command", command="echo x > kept; ulimit -a", timeout_ms=4000, max_processes=20,
                       network="none", changes="discard", hide=["*.key"], **({"memory_bytes": 256 << 20} if is_root else {}))
    assert less["changes"]["state"] == "discarded" and not os.path.exists("kept"), less
    parked = client.good("run_command", command="echo x > kept")
    assert parked["changes"]["state"] == "parked" and not os.path.exists("kept")
    number = client.good("list_changes")["runs"][0]["run_id"]
    assert number == parked["run_id"]
    denial = client.bad("accept_changes", run_id=number)
    assert denial["code"] == "may_not_accept" and number in denial["remedy"], denial
    assert not os.path.exists("kept")
    client.good("reject_changes", run_id=number)
    with_net = client.good("run_command", command="echo ${HTTPS_PROXY:-none}")["stdout"]
    without = client.good("run_command", command="echo ${HTTPS_PROXY:-none}", network="none")["stdout"]
    assert with_net != "none\n" and without == "none\n", (with_net, without)
    client.end()
    for flag in ["--direct", "--json", "--tty", "--detach", "--allow-host-port=8080", "--publish=8080:80", "--shell=true"]:
        done = subprocess.run([program, "mcp", flag], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 2 and done.stdout == b"" and b"nexus mcp" in done.stderr, (flag, done)


def two_servers(program):
    os.mkdir("a")
    os.mkdir("b")
    one, two = Client(program, cwd="a"), Client(program, cwd="b", modern=False)
    first = one.good("start_process", command="echo one; sleep 1000")["run_id"]
    for tool in ["inspect_process", "stop_process", "read_output", "show_changes", "accept_changes", "reject_changes", "explain_denial"]:
        assert two.bad(tool, run_id=first)["code"] == "no_run", tool
    assert two.good("list_processes")["processes"] == [] and two.good("list_changes")["runs"] == []
    one.good("write_file", path="file", content="of one")
    assert two.bad("read_file", path="file")["code"] == "not_found"
    assert two.bad("read_file", path="../a/file")["code"] == "path"
    assert two.bad("read_file", path=os.path.abspath("a/file"))["code"] == "path"
    two.end()
    assert one.good("inspect_process", run_id=first)["state"] == "running", "the end of one server ends nothing of another"
    # Many calls at a time: each gets its own answer.
    numbers = [one.begin("tools/call", {"name": "run_command", "arguments": {"command": f"sleep 0.2; echo {n}"}}) for n in range(12)]
    for n, number in enumerate(numbers):
        assert one.answer(number)["result"]["structuredContent"]["stdout"] == f"{n}\n"
    one.end()


def denials(program, table):
    """Plays what is typically denied. `table` is the one of the guide: its first column names the cases, and its second their codes."""
    with open(os.path.join(os.environ["HOME"], "notes"), "w", encoding="utf-8") as file:
        file.write("of the caller")
    with open(".env", "w", encoding="utf-8") as file:
        file.write("TOKEN")
    with open("plain", "w", encoding="utf-8") as file:
        file.write("text")
    os.symlink("/etc/hostname", "out")
    os.symlink("plain", "link")
    os.mkfifo("fifo")
    os.mkdir("dir")
    client = Client(program, "--hide", ".env", "--protect", "held", "--pids", "200", "--timeout", "60s")
    allowing = Client(program, "--allow", "example.org", "--changes", "review")
    home = os.environ["HOME"]
    run = client.good("run_command", command="echo x > held")
    number = run["run_id"]
    begun = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait"

    def line(command, **more):
        return client, "run_command", {"command": command, **more}

    cases = {
        "a network, where there is none": line("curl -sS https://example.com"),
        "a host that no rule allows": (allowing, "run_command", {"command": "curl -sS https://example.com"}),
        "writing to the system": line("echo x > /etc/hosts"),
        "reading a hidden file": line("cat .env"),
        "reading a file of the home": line(f"cat {home}/notes"),
        "more time": line("sleep 100", timeout_ms=300),
        "more processes": line(begun, max_processes=5),
        "a protected name": line("echo y > held"),
        "a program that is not there": (client, "run_command", {"argv": ["no-such-program"]}),
        "a file that is no program": (client, "run_command", {"argv": ["/etc/passwd"]}),
        "tracing a process": line("strace true"),
        "a namespace": line("unshare -U true"),
        "a mount": line("mount -t tmpfs none /mnt"),
        "a working directory that is not there": line("true", cwd="nowhere"),
        "a path with ..": (client, "read_file", {"path": "../x"}),
        "a path outside": (client, "read_file", {"path": "/etc/passwd"}),
        "a link that leads out": (client, "read_file", {"path": "out"}),
        "writing through a link": (client, "write_file", {"path": "link", "content": "x"}),
        "a FIFO": (client, "read_file", {"path": "fifo"}),
        "a file that is not there": (client, "read_file", {"path": "nowhere"}),
        "a hidden file, by a tool": (client, "read_file", {"path": ".env"}),
        "a list of a file": (client, "list_directory", {"path": "plain"}),
        "too much to write": (client, "write_file", {"path": "big", "content": "x" * (4 * 1024 * 1024 + 1)}),
        "a regular expression that is none": (client, "search_files", {"pattern": "(", "regex": True}),
        "more time than the server has": line("true", timeout_ms=60_001),
        "a network by the call": line("true", network="unrestricted"),
        "laxer changes": (allowing, "run_command", {"command": "true", "changes": "commit"}),
        "accepting changes": (client, "accept_changes", {"run_id": number}),
        "a run of another server": (allowing, "inspect_process", {"run_id": number}),
        "an argument that no tool has": line("true", rw="/"),
    }
    found = {}
    for name, (to, tool, arguments) in cases.items():
        result = to.call(tool, **arguments)
        denials = result["structuredContent"]["denials"]
        assert denials, (name, result)
        for denial in denials:
            assert denial["cause"] and denial["rule"] and denial["remedy"], (name, denial)
        found[name] = denials[0]["code"]
        # A model that reads the text alone learns the same.
        assert denials[0]["code"] in result["content"][0]["text"] or result["isError"], (name, result)
    for one in client.good("list_changes")["runs"]:
        client.good("reject_changes", run_id=one["run_id"])
    client.end()
    allowing.end()
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines() if row.startswith("| ")]
    said = {row[0]: row[1].strip("`") for row in rows if row[1] != "code"}
    differences = {name: (said.get(name), found.get(name)) for name in {**said, **found} if said.get(name) != found.get(name)}
    assert said == found and len(found) == 30, json.dumps(differences, indent=1)


if __name__ == "__main__":
    globals()[sys.argv[2]](sys.argv[1], *sys.argv[3:])
