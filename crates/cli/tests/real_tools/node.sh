step 0 node main.js
step 0 node --test
line 1 'echo "require(\"node:assert\").fail(\"on purpose\")" > bad.test.js; node --test >/dev/null'
step 1 node -e 'process.exit(require("./config.json").name === "shop" ? 1 : 0)'
step 0 node -e 'console.log(process.cwd(), Object.keys(process.env).sort().join(" "))'
step 1 node no-such-file.js
