import http.server
import multiprocessing
import multiprocessing.shared_memory
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

import shop


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("you asked for " + self.path).encode())

    def log_message(self, *_):
        pass


class Shop(unittest.TestCase):
    def test_sqlite_in_the_workspace(self):
        self.assertEqual(shop.total("sales.db", [("tea", 3), ("cake", 4)]), 7)

    def test_sqlite_in_a_temporary_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(shop.total(pathlib.Path(folder) / "x.db", [("tea", 3)]), 3)

    def test_a_pool_that_forks_and_one_that_spawns(self):
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(shop.square, range(10)), [n * n for n in range(10)])

    def test_shared_memory(self):
        memory = multiprocessing.shared_memory.SharedMemory(create=True, size=1 << 20)
        try:
            memory.buf[:5] = b"hello"
            again = multiprocessing.shared_memory.SharedMemory(name=memory.name)
            self.assertEqual(bytes(again.buf[:5]), b"hello")
            again.close()
        finally:
            memory.close()
            memory.unlink()

    def test_a_child_process(self):
        child = subprocess.run([sys.executable, "-c", "import sys; print(sys.stdin.read()[::-1]); sys.exit(5)"],
                               input="abc", capture_output=True, text=True)
        self.assertEqual((child.returncode, child.stdout), (5, "cba\n"))
        killed = subprocess.run(["sh", "-c", "kill -9 $$"])
        self.assertEqual(killed.returncode, -9)

    def test_a_server_on_loopback(self):
        for address in ("127.0.0.1", "localhost"):
            with http.server.ThreadingHTTPServer((address, 0), Handler) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                with urllib.request.urlopen(f"http://{address}:{server.server_port}/page", timeout=10) as answer:
                    self.assertEqual(answer.read(), b"you asked for /page")
                server.shutdown()

    def test_files(self):
        os.makedirs("made/deep", exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir="made", delete=False) as file:
            file.write("x")
        os.replace(file.name, "made/deep/file")
        os.symlink("deep/file", "made/link")
        os.link("made/deep/file", "made/hard")
        os.chmod("made/deep/file", 0o640)
        self.assertEqual(os.stat("made/hard").st_nlink, 2)
        self.assertEqual(os.stat("made/hard").st_mode & 0o777, 0o640)
        os.rename("made/deep", "made/moved")
        self.assertEqual(sorted(os.listdir("made")), ["hard", "link", "moved"])

    @unittest.skip("to show how a skipped test looks")
    def test_skipped(self):
        self.fail()


if __name__ == "__main__":
    unittest.main()
