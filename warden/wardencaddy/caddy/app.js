// A shop with four connections to a database, each 40 ms a request. A client that leaves stops nothing.
const http = require('node:http');

let free = 4;
const waiting = [];

async function query(ms) {
  if (free > 0) free--;
  else await new Promise((next) => waiting.push(next));
  await new Promise((done) => setTimeout(done, ms));
  const next = waiting.shift();
  if (next) next();
  else free++;
}

http.createServer(async (req, res) => {
  if (req.url === '/stream') {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (let i = 0; i < 5; i++) {
      res.write(`data: ${i}\n\n`);
      await new Promise((done) => setTimeout(done, 100));
    }
    res.end();
    return;
  }
  await query(req.url === '/hang' ? 60000 : 40);
  res.end(`done ${req.url}\n`);
}).listen(process.env.PORT || 8000, '127.0.0.1');
