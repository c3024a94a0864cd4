//! The rows of the project table: what is fetched, how it is built, and how its own tests are run.

/// Rule by which the number of passed tests is read from the output of a runner.
#[derive(Clone, Copy)]
pub enum Count {
    /// The numbers before each such word.
    Before(&'static str),
    /// The numbers behind each such word.
    Behind(&'static str),
    /// The lines that begin with this.
    Lines(&'static str),
}

/// One project of the table.
pub struct Row {
    pub name: &'static str,
    /// A program without which there is nothing to compare.
    pub needs: &'static str,
    /// Shell that fetches it into the working directory, outside, with the functions of `fetch.sh`.
    pub fetch: &'static str,
    /// Shell that builds it, inside and outside.
    pub build: &'static str,
    /// Shell that runs its tests.
    pub test: &'static str,
    pub count: Count,
    /// At least so many tests pass; fewer means that the suite did not really run.
    pub at_least: u64,
    /// True where a test of the suite fails outside as well; the row says why. A runner that stopped early did not
    /// run its suite, however much it printed.
    pub may_fail: bool,
    /// Continuous integration plays it too; `suites` and `clients` play more of such kinds.
    pub is_quick: bool,
    /// Flags of `nexus run`: none, but where the row says why.
    pub flags: &'static [&'static str],
}

const ROW: Row = Row {
    name: "",
    needs: "sh",
    fetch: "",
    build: "",
    test: "",
    count: Count::Before("passed"),
    at_least: 1,
    may_fail: false,
    is_quick: false,
    flags: &[],
};

const JUNIT: &str = "mkdir src; cat > src/SumTest.java <<'X'
import static org.junit.Assert.*;
public class SumTest {
    @org.junit.Test public void adds() { assertEquals(5, 2 + 3); }
    @org.junit.Test public void joins() { assertEquals(\"ab\", \"a\" + \"b\"); }
}
X
debian_files junit4 libhamcrest-java; mkdir lib; cp debian/usr/share/java/junit4-*.jar debian/usr/share/java/hamcrest-*.jar lib; rm -r debian";

const GO_SERVER: &str = "cat > go.mod <<'X'
module example.com/server

go 1.19
X
cat > server.go <<'X'
package server

import (\"fmt\"; \"net/http\")

func Hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, \"hello\") }
X
cat > server_test.go <<'X'
package server

import (\"io\"; \"net/http\"; \"net/http/httptest\"; \"testing\")

func TestHello(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(Hello))
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil { t.Fatal(err) }
	text, _ := io.ReadAll(answer.Body)
	if string(text) != \"hello\" { t.Fatal(string(text)) }
}
X";

const MINITEST: &str = "cat > test.rb <<'X'
require 'minitest/autorun'
require 'socket'
class ServerTest < Minitest::Test
  def test_echo
    server = TCPServer.new('127.0.0.1', 0)
    thread = Thread.new { client = server.accept; client.puts client.gets.upcase; client.close }
    socket = TCPSocket.new('127.0.0.1', server.addr[1])
    socket.puts 'hello'
    assert_equal \"HELLO\\n\", socket.gets
    thread.join
  end
  def test_sum
    assert_equal 5, 2 + 3
  end
end
X";

const REACT: &str = "mkdir src; cat > package.json <<'X'
{\"name\": \"app\", \"private\": true, \"type\": \"module\", \"scripts\": {\"build\": \"vite build\", \"test\": \"vitest run\"}}
X
echo '<div id=\"root\"></div><script type=\"module\" src=\"/src/main.jsx\"></script>' > index.html
cat > src/main.jsx <<'X'
import { createElement } from 'react'
import { createRoot } from 'react-dom/client'
createRoot(document.getElementById('root')).render(createElement('p', null, 'hello'))
X
echo \"import { expect, test } from 'vitest'; test('adds', () => expect(2 + 3).toBe(5))\" > src/sum.test.js
npm install --silent --no-audit --no-fund vite@6.3.5 vitest@3.1.4 react@19.1.0 react-dom@19.1.0";

const PYTEST: &str = "python3 -m pytest -q -p no:cacheprovider";

/// All rows of the newcomer's table.
pub const ROWS: &[Row] = &[
    Row {
        name: "click 8.1.8 (pytest)",
        fetch: "pip_source click==8.1.8; pip_tools",
        test: "cd project && PYTHONPATH=src:../tools PYTEST tests",
        at_least: 600,
        ..ROW
    },
    Row {
        name: "click 8.1.8 (pytest-xdist)",
        fetch: "pip_source click==8.1.8; pip_tools",
        test: "cd project && PYTHONPATH=src:../tools PYTEST -n 2 tests",
        at_least: 600,
        ..ROW
    },
    Row {
        name: "itsdangerous 2.2.0",
        fetch: "pip_source itsdangerous==2.2.0; pip_tools",
        test: "cd project && PYTHONPATH=src:../tools PYTEST tests",
        at_least: 290,
        is_quick: true,
        ..ROW
    },
    Row {
        name: "attrs 25.3.0 (hypothesis)",
        fetch: "pip_source attrs==25.3.0; pip_tools",
        test: "cd project && PYTHONPATH=src:../tools PYTEST -p no:randomly tests --ignore=tests/test_mypy.yml",
        at_least: 1200,
        // One test failed outside where this row was played first.
        may_fail: true,
        ..ROW
    },
    Row {
        name: "tomlkit 0.13.2",
        fetch: "pip_source tomlkit==0.13.2; pip_tools",
        test: "cd project && PYTHONPATH=.:../tools PYTEST tests",
        at_least: 500,
        ..ROW
    },
    Row {
        name: "more-itertools 10.7.0 (unittest)",
        fetch: "pip_source more-itertools==10.7.0",
        test: "cd project && python3 -m unittest 2>&1",
        count: Count::Behind("Ran"),
        at_least: 500,
        ..ROW
    },
    Row {
        name: "qs 6.13.0 (tape)",
        needs: "node",
        fetch: "npm_source qs@6.13.0; npm_tools tape@5.9.0 es-value-fixtures@1.5.0 has-override-mistake@1.0.1 \
                mock-property@1.1.0 iconv-lite@0.5.1 qs-iconv@1.0.4 has-symbols@1.0.3 object-inspect@1.13.2 safer-buffer@2.1.2 \
                side-channel@1.0.6 has-bigints@1.0.2 for-each@0.3.3",
        test: "cd project && node ../node_modules/tape/bin/tape 'test/*.js'",
        count: Count::Behind("pass"),
        at_least: 700,
        is_quick: true,
        ..ROW
    },
    Row {
        name: "zod 4 (vitest)",
        needs: "node",
        fetch: "npm_source zod@4.0.5; npm_tools zod@4.0.5 vitest@3.1.4 typescript@5.8.3",
        test: "cd project && node ../node_modules/vitest/vitest.mjs run src/v4/classic/tests src/v4/core/tests",
        count: Count::Before("passed"),
        at_least: 300,
        // Not known to pass as a whole outside.
        may_fail: true,
        ..ROW
    },
    Row {
        name: "zod's types (tsc --strict)",
        needs: "node",
        fetch: "npm_tools zod@4.0.5 typescript@5.8.3; \
                echo \"import { z } from 'zod'; const p = z.object({ a: z.number() }); const n: number = p.parse({ a: 1 }).a; console.log(n)\" > a.ts",
        test: "node node_modules/typescript/bin/tsc --strict --noEmit --module nodenext --moduleResolution nodenext --skipLibCheck false --listFiles a.ts",
        count: Count::Lines("/"),
        at_least: 50,
        ..ROW
    },
    Row {
        name: "an application of vite, vitest and react",
        needs: "node",
        fetch: "REACT",
        build: "npm run build",
        test: "npm test",
        count: Count::Before("passed"),
        at_least: 1,
        ..ROW
    },
    Row {
        name: "semver 1.0.26 (cargo)",
        needs: "cargo",
        fetch: "crate semver 1.0.26",
        test: "cd project && cargo test --offline 2>&1",
        at_least: 38,
        ..ROW
    },
    Row {
        name: "tempfile 3.20.0 (cargo)",
        needs: "cargo",
        fetch: "crate tempfile 3.20.0",
        test: "cd project && cargo test --offline 2>&1",
        at_least: 50,
        ..ROW
    },
    Row {
        name: "cobra 1.6.1 (Go, GOPATH)",
        needs: "go",
        fetch: "debian_files golang-github-spf13-cobra-dev golang-github-spf13-pflag-dev golang-gopkg-yaml.v3-dev \
                golang-github-cpuguy83-go-md2man-v2-dev golang-github-russross-blackfriday-v2-dev \
                golang-github-inconshreveable-mousetrap-dev; mv debian/usr/share/gocode gopath; rm -r debian",
        test: "GO111MODULE=off GOPATH=$PWD/gopath GOFLAGS=-count=1 go test github.com/spf13/cobra/...",
        count: Count::Lines("ok"),
        at_least: 2,
        // Go keeps results of builds in the home, which no run has without it.
        flags: &["--cache"],
        ..ROW
    },
    Row {
        name: "a module of Go with an HTTP server",
        needs: "go",
        fetch: "GO_SERVER",
        test: "go test -count=1 ./...",
        count: Count::Lines("ok"),
        at_least: 1,
        flags: &["--cache"],
        ..ROW
    },
    Row {
        name: "a test of JUnit 4 (javac, java)",
        needs: "javac",
        fetch: "JUNIT",
        build: "javac -cp 'lib/*' -d out src/SumTest.java",
        test: "java -cp 'out:lib/*' org.junit.runner.JUnitCore SumTest",
        count: Count::Behind("OK"),
        at_least: 2,
        ..ROW
    },
    Row { name: "Maven (mvn -v)", needs: "mvn", test: "mvn -v", count: Count::Lines(""), at_least: 4, ..ROW },
    Row {
        name: "cJSON (C, cmake, ctest)",
        needs: "cmake",
        fetch: "debian_source cjson",
        build: "cmake -S project -B build && cmake --build build",
        test: "cd build && ctest",
        count: Count::Behind("of"),
        at_least: 19,
        ..ROW
    },
    Row {
        name: "zlib (configure, make)",
        needs: "make",
        fetch: "debian_source zlib",
        build: "cd project && ./configure && make",
        test: "cd project && make test",
        count: Count::Lines("\t\t*** zlib"),
        at_least: 2,
        ..ROW
    },
    Row {
        name: "sed (autotools)",
        needs: "make",
        fetch: "debian_source sed",
        // One test expects that its user cannot write to a closed directory: root can outside, and inside the user is not root.
        build: "cd project && ./configure FORCE_UNSAFE_CONFIGURE=1 && sed -i 's, testsuite/panic-tests.sh,,' Makefile && make",
        test: "cd project && make check SUBDIRS=. 2>&1",
        count: Count::Behind("PASS"),
        // Without its library's tests, and without those that skip themselves where a language is not installed.
        at_least: 50,
        ..ROW
    },
    Row {
        name: "lz4 (make)",
        needs: "make",
        fetch: "debian_source lz4",
        // Debian's source builds the program with its library, which its tests expect to be there.
        build: "cd project && make -C lib liblz4.a && make -C programs lz4 && make -C tests datagen",
        test: "cd project && make -C tests test-lz4-basic",
        count: Count::Lines(""),
        at_least: 40,
        ..ROW
    },
    Row {
        name: "JSON (Perl, MakeMaker)",
        needs: "perl",
        fetch: "debian_source libjson-perl",
        build: "cd project && perl Makefile.PL && make",
        test: "cd project && make test",
        count: Count::Behind("Tests"),
        at_least: 20_000,
        ..ROW
    },
    Row {
        name: "Test::Deep (Perl)",
        needs: "perl",
        fetch: "debian_source libtest-deep-perl",
        test: "cd project && prove -l -r t",
        count: Count::Behind("Tests"),
        at_least: 1000,
        ..ROW
    },
    Row {
        name: "minitest with a TCPServer (Ruby)",
        needs: "ruby",
        fetch: "MINITEST",
        test: "ruby test.rb",
        count: Count::Before("runs"),
        at_least: 2,
        ..ROW
    },
    Row {
        name: "the extensions of PHP",
        needs: "php",
        test: "php -m && php --ini",
        count: Count::Lines(""),
        at_least: 20,
        ..ROW
    },
];

/// Puts longer texts in the place of their names.
pub fn full(text: &str) -> String {
    let names =
        [("GO_SERVER", GO_SERVER), ("MINITEST", MINITEST), ("REACT", REACT), ("JUNIT", JUNIT), ("PYTEST", PYTEST)];
    names.iter().fold(text.to_owned(), |text, (name, long)| text.replace(name, long))
}
