// Node's own fetch: a whole file, a range, a miss.
import { createHash } from "node:crypto";

const wanted = [["/large.bin", {}], ["/file.txt", { range: "bytes=3-5" }], ["/none", {}]];
for (const [path, headers] of wanted) {
    const answer = await fetch(`https://${process.env.HOST}${path}`, { headers, signal: AbortSignal.timeout(10000) });
    const body = Buffer.from(await answer.arrayBuffer());
    console.log(answer.status, createHash("sha256").update(body).digest("hex"));
}
