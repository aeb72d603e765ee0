// A webhook receiver: node receiver.mjs DELAY_MS [SLOW_MS]; prints its port. Answers 204 after the delay; /slow after SLOW_MS (30 s).
import { createServer } from "node:http";

const delay = Number(process.argv[2]);
const slow = Number(process.argv[3] ?? 30000);
const server = createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    const wait = request.url === "/slow" ? slow : delay;
    const answer = () => response.writeHead(204).end();
    if (wait) setTimeout(answer, wait);
    else answer();
  });
});
server.keepAliveTimeout = 60000;
server.listen(0, "127.0.0.1", 4096, () => console.log(server.address().port));
